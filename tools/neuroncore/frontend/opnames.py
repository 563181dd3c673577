"""Names of ALU operations and activation functions, as kernels may spell them.

Kernels pass operations as values: ``nl.add``, ``np.add``, ``np.max``, ``nl.exp``. Each is resolved to one canonical
string. Sources: tables of supported operators and activation functions of SDK 2.26 (`nki.api.shared`). No engine divides:
`nl.divide` is a function of its own, and neuronx-cc refuses it as an operation ("unsupported operator 'divide'").
"""

from __future__ import annotations

from typing import Any

from ..errors import NKIError
from .session import current

ARITHMETIC = (
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "greater_equal",
    "greater",
    "less_equal",
    "less",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "rsqrt",
    "reciprocal",
    "abs",
    "power",
    "mod",
    "fmod",
    "square",
)
UNARY_ARITHMETIC = ("logical_not", "rsqrt", "reciprocal", "abs", "square")
BINARY_ARITHMETIC = tuple(op for op in ARITHMETIC if op not in UNARY_ARITHMETIC)
NOT_ON_VECTOR = ("rsqrt", "power")
"""Operations that GpSimd and ScalarE have and VectorE has not."""
BITVEC = ("invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
REDUCIBLE = (
    "add",
    "multiply",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "logical_and",
    "logical_or",
    "logical_xor",
    "subtract",
)
ACTIVATIONS = (
    "copy",
    "identity",
    "square",
    "sigmoid",
    "relu",
    "gelu",
    "gelu_dx",
    "gelu_apprx_tanh",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "silu",
    "silu_dx",
    "tanh",
    "softplus",
    "mish",
    "erf",
    "erf_dx",
    "exp",
    "sign",
    "abs",
    "log",
    "sin",
    "cos",
    "arctan",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "negative",
)

_ALIASES = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "sum": "add",
    "prod": "multiply",
    "true_divide": "divide",
    "absolute": "abs",
    "remainder": "mod",
    "bitwise_not": "invert",
    "bitwise_invert": "invert",
    "logical_shift_left": "left_shift",
    "logical_shift_right": "right_shift",
    "identity": "copy",
    "pow": "power",
    "tensor_copy": "copy",
    "arithmetic_shift_right": "right_shift",
    "is_equal": "equal",
    "negate": "negative",
}


def op_name(value: Any, allowed: tuple[str, ...], what: str) -> str:
    """The canonical name of an operation given as a value.

    Raises:
        NKIError: if the engine has no such operation; says which it has.
    """
    name = getattr(value, "nki_op", None) or getattr(value, "__name__", None)
    if isinstance(value, str):
        name = value
    name = _ALIASES.get(name, name) if isinstance(name, str) else None
    if name in allowed:
        return str(name)
    shown = getattr(value, "__name__", repr(value))
    raise NKIError(
        "unsupported_op",
        f"{what} does not support `{shown}`",
        line=current().line(),
        remedy="multiply by the result of nisa.reciprocal"
        if name == "divide"
        else f"use one of {', '.join(a for a in allowed if a != 'identity')}",
    )


def alu_op(value: Any, what: str) -> str:
    """An ALU operation of `tensor_scalar` and the like."""
    return op_name(value, ARITHMETIC + BITVEC, what)


def binary_op(value: Any, what: str) -> str:
    """An ALU operation of two tiles."""
    return op_name(value, BINARY_ARITHMETIC + tuple(op for op in BITVEC if op != "invert"), what)


def vector_op(value: Any, what: str, allowed: tuple[str, ...] = ARITHMETIC + BITVEC) -> str:
    """An ALU operation of an instruction that only VectorE has."""
    return op_name(value, tuple(op for op in allowed if op not in NOT_ON_VECTOR), what)


def reduce_op(value: Any, what: str) -> str:
    """A reduction operation."""
    return op_name(value, REDUCIBLE, what)


def activation_op(value: Any, what: str) -> str:
    """A ScalarE activation function."""
    return op_name(value, ACTIVATIONS, what)
