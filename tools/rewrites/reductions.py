"""Reductions over all free axes, and the scalar engine's way of summing: a by-product of an activation."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..neuroncore.dtypes import is_float
from ..neuroncore.ir import Access, Buffer, Instr, Loop, Tensor
from .axes import REDUCTIONS
from .steps import FunctionStep


@dataclasses.dataclass(frozen=True)
class Reduction:
    """One value for each partition, of all elements of a tile in it.

    Attributes:
        operand: the tile.
        combine: the operation that takes the elements together.
        divisor: what the combined value is divided by: the number of elements for a mean, else 1.
    """

    operand: Access
    combine: str
    divisor: int = 1


def reduction(instr: Instr) -> Reduction | None:
    """The instruction as a reduction over all free axes, if it is one."""
    combine = instr.attrs["op"] if instr.op == "nisa.tensor_reduce" else _COMBINES.get(instr.op)
    operand = instr.args.get("x", instr.args.get("data"))
    if combine is None or not isinstance(operand, Access):
        return None
    if instr.dst.free_size != 1 or instr.attrs.get("negate"):
        return None
    rank = len(operand.shape)
    if {a % rank for a in instr.attrs["axis"]} != set(range(1, rank)):
        return None
    return Reduction(operand, str(combine), operand.free_size if instr.op == "nl.mean" else 1)


_COMBINES = {op: REDUCTIONS[op] for op in ("nl.sum", "nl.max", "nl.min")} | {"nl.mean": "add"}
"""How elements combine; partial means do not, but the sums behind them do."""


def activation_reduce(dst: Access, step: FunctionStep, like: Instr, scope: Loop | None) -> list[Instr] | None:
    """``nisa.activation_reduce`` that leaves a function of a tile in `dst` and its sum or mean where `like` has it.

    Args:
        dst: where the function's values go.
        step: the function.
        like: the reduction.
        scope: the innermost loop around it.

    Returns:
        the instructions to run in the place of both; None if the reduction does not add up, or is not kept in fp32.
    """
    found = reduction(like)
    if found is None or found.combine != "add" or like.dst.dtype != np.dtype(np.float32):
        return None
    args = {"data": step.data, "bias": step.bias, "scale": step.scale}
    if step.bias is None:
        del args["bias"]
    attrs = {"op": step.function, "reduce_op": "add"}
    if found.divisor == 1:
        return [Instr("nisa.activation_reduce", (dst, like.dst), args, attrs, (), like.line)]
    total = Tensor(
        f"{like.dst.tensor.name}_sum", (dst.shape[0], 1), np.dtype(np.float32), Buffer.SBUF, scope=scope
    ).whole()
    return [
        Instr("nisa.activation_reduce", (dst, total), args, attrs, (), like.line),
        Instr("nl.multiply", (like.dst,), {"x": total, "y": 1 / found.divisor}, {}, (), like.line),
    ]


def on_scalar_engine(like: Instr, scope: Loop | None) -> list[Instr] | None:
    """A sum or mean as the by-product of a copy that nobody reads; None if the scalar engine cannot do it.

    Args:
        like: the reduction.
        scope: the innermost loop around it.
    """
    found = reduction(like)
    if found is None or like.mask or not is_float(found.operand.dtype) or 0 in found.operand.broadcast_axes():
        return None
    operand = found.operand
    copied = Tensor(
        f"{operand.tensor.name}_copied", operand.shape, np.dtype(np.float32), Buffer.SBUF, scope=scope
    )
    return activation_reduce(copied.whole(), FunctionStep(operand, "copy", 1.0, None), like, scope)
