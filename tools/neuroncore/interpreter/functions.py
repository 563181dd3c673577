"""Element-wise functions of the engines: ALU operations and activation functions by NKI's names.

Every function has the calling convention of a NumPy ufunc: ``f(x, out=None)`` or ``f(x, y, out=None)``. `out` may be `x`
itself. Floating-point inputs are float32 (the engines compute in it, whatever the storage type); the functions are
evaluated exactly, where the hardware has piecewise polynomials (`nki.api.shared`, SDK 2.26: table of activation functions).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Unary = Callable[..., Array]
Binary = Callable[..., Array]


def _rsqrt(x: Array, out: Array | None = None) -> Array:
    root = np.sqrt(x, out=out)
    return np.reciprocal(root, out=root)


def _sigmoid(x: Array, out: Array | None = None) -> Array:
    y = np.negative(x, out=out)
    np.exp(y, out=y)
    np.add(y, np.float32(1), out=y)
    return np.reciprocal(y, out=y)


def _relu(x: Array, out: Array | None = None) -> Array:
    return np.maximum(x, np.float32(0), out=out)


def _silu(x: Array, out: Array | None = None) -> Array:
    return np.multiply(x, _sigmoid(x), out=out)


def _silu_dx(x: Array, out: Array | None = None) -> Array:
    s = _sigmoid(x)
    slope = np.subtract(np.float32(1), s)
    slope *= x
    slope += np.float32(1)
    return np.multiply(slope, s, out=out)


def _softplus(x: Array, out: Array | None = None) -> Array:
    return np.logaddexp(x, np.float32(0), out=out)


def _mish(x: Array, out: Array | None = None) -> Array:
    y = _softplus(x)
    np.tanh(y, out=y)
    return np.multiply(x, y, out=out)


_ERF_LIMIT = 3.93
_ERF_NUMERATOR = (
    1.12837916709551, 1.85149422912e-1, 5.42548329921e-2, 3.84034780317e-3, 3.77162972e-4, 4.61989127e-6, -1.28572222e-8,
)  # fmt: skip
_ERF_DENOMINATOR = (1.0, 4.97417811e-1, 1.13887546e-1, 1.54349319e-2, 1.30241464e-3, 6.24993028e-5)


def _horner(s: Array, coefficients: tuple[float, ...]) -> Array:
    value = np.full_like(s, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value *= s
        value += c
    return value


def _erf(x: Array, out: Array | None = None) -> Array:
    """x·P(x²)/Q(x²), our own least-squares fit to `math.erf`.

    Evaluated in float64 so that only the final rounding to float32 counts. Beyond the limit erf is 1 to 3e-8.
    """
    wide = np.clip(x, -_ERF_LIMIT, _ERF_LIMIT, dtype=np.float64)
    s = wide * wide
    wide *= _horner(s, _ERF_NUMERATOR)
    wide /= _horner(s, _ERF_DENOMINATOR)
    if out is None:
        return wide.astype(np.float32)
    np.copyto(out, wide, casting="same_kind")
    return out


def _erf_dx(x: Array, out: Array | None = None) -> Array:
    y = np.square(x)
    np.negative(y, out=y)
    np.exp(y, out=y)
    return np.multiply(y, np.float32(2 / math.sqrt(math.pi)), out=out)


def _gelu(x: Array, out: Array | None = None) -> Array:
    y = _erf(np.multiply(x, np.float32(math.sqrt(0.5))))
    y += np.float32(1)
    y *= np.float32(0.5)
    return np.multiply(x, y, out=out)


def _gelu_dx(x: Array, out: Array | None = None) -> Array:
    cumulative = _erf(np.multiply(x, np.float32(math.sqrt(0.5))))
    cumulative += np.float32(1)
    cumulative *= np.float32(0.5)
    density = np.square(x)
    density *= np.float32(-0.5)
    np.exp(density, out=density)
    density *= np.float32(1 / math.sqrt(2 * math.pi))
    density *= x
    return np.add(cumulative, density, out=out)


def _gelu_tanh(x: Array, out: Array | None = None) -> Array:
    inner = np.square(x)
    inner *= np.float32(0.044715)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= np.float32(0.5)
    return np.multiply(x, inner, out=out)


def _gelu_sigmoid(x: Array, out: Array | None = None) -> Array:
    return np.multiply(x, _sigmoid(np.multiply(x, np.float32(1.702))), out=out)


def _gelu_sigmoid_dx(x: Array, out: Array | None = None) -> Array:
    s = _sigmoid(np.multiply(x, np.float32(1.702)))
    slope = np.subtract(np.float32(1), s)
    slope *= x
    slope *= np.float32(1.702)
    slope += np.float32(1)
    return np.multiply(slope, s, out=out)


def _copy(x: Array, out: Array | None = None) -> Array:
    return np.positive(x, out=out)


UNARY: dict[str, Unary] = {
    "copy": _copy,
    "identity": _copy,
    "square": np.square,
    "sigmoid": _sigmoid,
    "relu": _relu,
    "gelu": _gelu,
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": _gelu_sigmoid,
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "silu": _silu,
    "silu_dx": _silu_dx,
    "tanh": np.tanh,
    "softplus": _softplus,
    "mish": _mish,
    "erf": _erf,
    "erf_dx": _erf_dx,
    "exp": np.exp,
    "exp2": np.exp2,
    "sign": np.sign,
    "abs": np.absolute,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "reciprocal": np.reciprocal,
    "negative": np.negative,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "logical_not": np.logical_not,
    "invert": np.invert,
}
"""Functions of one operand: activations and the unary calls of `nki.language`."""


def _absolute_max(x: Array, y: Array, out: Array | None = None) -> Array:
    return np.maximum(np.absolute(x), np.absolute(y), out=out)


def _absolute_min(x: Array, y: Array, out: Array | None = None) -> Array:
    return np.minimum(np.absolute(x), np.absolute(y), out=out)


def _logical_right_shift(x: Array, y: Array, out: Array | None = None) -> Array:
    if x.dtype.kind != "i":
        return np.right_shift(x, y, out=out)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    shifted = np.right_shift(x.view(unsigned), np.asarray(y).astype(unsigned)).view(x.dtype)
    if out is None:
        return shifted
    np.copyto(out, shifted)
    return out


BINARY: dict[str, Binary] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs_max": _absolute_max,
    "abs_min": _absolute_min,
    "power": np.power,
    "mod": np.mod,
    "fmod": np.fmod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": _logical_right_shift,
}
"""Functions of two operands: ALU operations and the binary calls of `nki.language`."""

BITWISE = frozenset(["invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
"""Operations on raw integer bits; everything else computes in float32 or, on integers, exactly."""

EXACT_ON_INTEGERS = frozenset(
    ["add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal", "less",
     "less_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "abs", "negative", "copy", "identity",
     "square", "sign", "relu"]
)  # fmt: skip
"""Operations that GpSimd does in true integer arithmetic when every operand is an integer."""

PREDICATES = frozenset(
    ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
     "logical_not"]
)  # fmt: skip
"""Operations whose result is 0 or 1."""

REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "subtract": np.subtract,
}
"""Operations that reduce an axis. A subtraction reduces from the left: x0 - x1 - x2 ..."""


def converted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values as another element type, as the hardware writes them.

    To integers: round to nearest even, then saturate; NaN gives 0. To floating types: round to nearest even.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind not in "iu":
        return values.astype(dtype)
    info = np.iinfo(dtype)
    if values.dtype.kind == "b":
        return values.astype(dtype)
    if values.dtype.kind in "iu":
        return np.clip(values.astype(np.int64), info.min, info.max).astype(dtype)
    rounded = np.rint(values.astype(np.float64))
    return np.clip(np.nan_to_num(rounded, nan=0.0), info.min, info.max).astype(dtype)
