"""Instructions seen as what they compute, whichever API spells it: a tile with a scalar, two tiles, a function of a tile."""

from __future__ import annotations

import dataclasses

from ..neuroncore.ir import Access, Instr

Scalar = float | int | Access
"""A number, or a tile with one value for each partition."""

BINARY = frozenset(["add", "subtract", "multiply", "maximum", "minimum"])
"""Operations that both `nl` calls and the ALU fields of ISA calls have, on fp32."""

FUNCTIONS = frozenset(
    [
        "exp", "square", "sqrt", "rsqrt", "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh", "silu", "silu_dx", "tanh",
        "softplus", "mish", "erf", "erf_dx", "sign", "abs", "log", "sin", "arctan", "copy",
    ]
)  # fmt: skip
"""Functions that ``nisa.activation`` computes of ``data * scale + bias``."""


@dataclasses.dataclass(frozen=True)
class ScalarStep:
    """``data op scalar``, or ``scalar op data`` if reversed."""

    data: Access
    op: str
    scalar: Scalar
    reverse: bool


@dataclasses.dataclass(frozen=True)
class TensorStep:
    """``left op right`` of two full tiles."""

    left: Access
    op: str
    right: Access


@dataclasses.dataclass(frozen=True)
class FunctionStep:
    """``function(data * scale + bias)``."""

    data: Access
    function: str
    scale: Scalar
    bias: Access | None


def column(access: Access) -> Access | None:
    """A tile that repeats one value along every free axis, as a tile with one value for each partition."""
    free = [k for k, n in enumerate(access.shape) if k > 0 and n > 1]
    if access.is_indirect or any(k in e.terms for e in access.affine for k in free):
        return None
    if 0 in access.broadcast_axes():
        return None
    if not access.tensor.buffer.on_chip:
        return None
    return Access(access.tensor, access.index, (access.shape[0], *(1,) * (len(access.shape) - 1)))


def scalar_step(instr: Instr) -> ScalarStep | None:
    """The instruction as one operation of a tile with a scalar, if it is one."""
    if len(instr.dsts) != 1 or instr.attrs.get("accumulate"):
        return None
    if instr.op == "nl.negative":
        return ScalarStep(_tile(instr, "x"), "multiply", -1.0, False)
    if instr.op == "nisa.tensor_scalar" and "op1" not in instr.attrs:
        op = str(instr.attrs["op0"])
        operand = instr.args["operand0"]
        if op not in BINARY or operand is None:
            return None
        return ScalarStep(_tile(instr, "data"), op, operand, bool(instr.attrs.get("reverse0")))
    if instr.op == "nisa.activation" and instr.attrs["op"] == "copy" and instr.args.get("bias") is None:
        return ScalarStep(_tile(instr, "data"), "multiply", instr.args["scale"] or 1.0, False)
    name = instr.op.removeprefix("nl.")
    if not instr.op.startswith("nl.") or name not in BINARY:
        return None
    x, y = instr.args["x"], instr.args["y"]
    if isinstance(x, Access) and not isinstance(y, Access) and y is not None:
        return ScalarStep(x, name, y, False)
    if isinstance(y, Access) and not isinstance(x, Access) and x is not None:
        return ScalarStep(y, name, x, True)
    if isinstance(x, Access) and isinstance(y, Access) and x.free_size > 1:
        if (narrow := column(y)) is not None and column(x) is None:
            return ScalarStep(x, name, narrow, False)
        if (narrow := column(x)) is not None and column(y) is None:
            return ScalarStep(y, name, narrow, True)
    return None


def tensor_step(instr: Instr) -> TensorStep | None:
    """The instruction as one operation of two full tiles, if it is one."""
    if len(instr.dsts) != 1 or instr.attrs.get("accumulate"):
        return None
    if instr.op == "nisa.tensor_tensor" and instr.attrs["op"] in BINARY:
        return TensorStep(_tile(instr, "data1"), str(instr.attrs["op"]), _tile(instr, "data2"))
    name = instr.op.removeprefix("nl.")
    if not instr.op.startswith("nl.") or name not in BINARY or scalar_step(instr) is not None:
        return None
    x, y = instr.args["x"], instr.args["y"]
    return TensorStep(x, name, y) if isinstance(x, Access) and isinstance(y, Access) else None


def function_step(instr: Instr) -> FunctionStep | None:
    """The instruction as an activation function of a scaled and shifted tile, if it is one."""
    if len(instr.dsts) != 1:
        return None
    if instr.op == "nisa.activation":
        bias = instr.args.get("bias")
        scale = instr.args.get("scale")
        if bias is not None and not isinstance(bias, Access):
            return None
        return FunctionStep(
            _tile(instr, "data"), str(instr.attrs["op"]), 1.0 if scale is None else scale, bias
        )
    name = instr.op.removeprefix("nl.")
    if instr.op.startswith("nl.") and name in FUNCTIONS and name != "copy":
        return FunctionStep(_tile(instr, "x"), name, 1.0, None)
    step = tensor_step(instr)
    if step is not None and step.op == "multiply" and step.left == step.right:
        return FunctionStep(step.left, "square", 1.0, None)
    return None


def reciprocal_of(instr: Instr) -> Access | None:
    """The tile of which an instruction is the reciprocal, if it is one."""
    if instr.op == "nl.reciprocal":
        return _tile(instr, "x")
    if instr.op == "nisa.reciprocal":
        return _tile(instr, "data")
    if instr.op == "nl.divide" and instr.args["x"] == 1 and isinstance(instr.args["y"], Access):
        return instr.args["y"]
    return None


def activation(dst: Access, step: FunctionStep, like: Instr) -> Instr:
    """``nisa.activation`` for a function step, with the mask of another instruction."""
    args = {"data": step.data, "bias": step.bias, "scale": step.scale}
    if step.bias is None:
        del args["bias"]
    return Instr("nisa.activation", (dst,), args, {"op": step.function}, like.mask, like.line)


def tensor_scalar(
    dst: Access, first: ScalarStep, second: ScalarStep | None, like: Instr, engine: str = "unknown"
) -> Instr:
    """``nisa.tensor_scalar`` for one or two scalar steps (the second on the result of the first)."""
    args = {"data": first.data, "operand0": first.scalar}
    attrs: dict[str, object] = {"op0": first.op, "reverse0": first.reverse}
    if second is not None:
        args["operand1"] = second.scalar
        attrs |= {"op1": second.op, "reverse1": second.reverse}
    attrs["engine"] = engine
    return Instr("nisa.tensor_scalar", (dst,), args, attrs, like.mask, like.line)


def _tile(instr: Instr, name: str) -> Access:
    value = instr.args[name]
    assert isinstance(value, Access)
    return value
