"""Fuse an operation with a scalar and one with a tile into ``nisa.scalar_tensor_tensor``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Buffer, Instr, Kernel
from .dataflow import Dataflow, Site, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import ScalarStep, TensorStep, scalar_step, tensor_step
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class ScalarTensorOption(Option):
    """An operation of two tiles, one of which comes from an operation with a scalar.

    Attributes:
        instr: where the operation of two tiles is.
        operand: the tile made with a scalar.
        left: whether that is the left operand.
        result: the result.
    """

    instr: Path
    operand: str
    left: bool
    result: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.operand}` and `{self.result}` in one nisa.scalar_tensor_tensor"


class FuseScalarTensor(Rewrite[ScalarTensorOption]):
    """``(x op0 a) op1 y`` becomes one instruction."""

    name = "fuse-scalar-tensor"
    summary = (
        "An operation of a tile with a scalar comes free with the operation of two tiles that follows it, in "
        "nisa.scalar_tensor_tensor"
    )
    targets = ("vector", "scalar", "latency")

    def find(self, kernel: Kernel) -> Iterator[ScalarTensorOption]:
        """Every operation of two tiles with an operand from a scalar step."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            step = tensor_step(site.instr)
            if step is None or step.left.tensor is step.right.tensor:
                continue
            for left in (True, False):
                operand = step.left if left else step.right
                producer = flow.producer(operand, site)
                if producer is not None and scalar_step(producer.instr) is not None:
                    yield ScalarTensorOption(site.path, operand.tensor.name, left, site.instr.dst.tensor.name)

    def edit(self, kernel: Kernel, option: ScalarTensorOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        step = tensor_step(site.instr)
        if step is None:
            raise RewriteError("option", "there is no operation of two tiles")
        first, other = _parts(flow, site, step, option.left)
        in_psum = [a for a in (first.data, other) if a.tensor.buffer is Buffer.PSUM]
        if len(in_psum) == 2:
            raise RewriteError("psum", "both tiles would be read from PSUM")
        if 0 in other.broadcast_axes() or 0 in first.data.broadcast_axes():
            raise RewriteError(
                "operation", "a tile that repeats along the partitions has to be an operand of its own"
            )
        attrs = {"op0": first.op, "op1": step.op, "reverse0": first.reverse, "reverse1": not option.left}
        args = {"data": first.data, "operand0": first.scalar, "operand1": other}
        fused = Instr(
            "nisa.scalar_tensor_tensor", site.instr.dsts, args, attrs, site.instr.mask, site.instr.line
        )
        replace_instr(kernel, site.instr, [fused])
        drop_dead(kernel)


def _parts(flow: Dataflow, site: Site, step: TensorStep, left: bool) -> tuple[ScalarStep, Access]:
    """The scalar step and the other tile.

    Raises:
        RewriteError: if they cannot be fused.
    """
    operand, other = (step.left, step.right) if left else (step.right, step.left)
    producer = flow.producer(operand, site)
    first = scalar_step(producer.instr) if producer is not None else None
    if producer is None or first is None:
        raise RewriteError("option", "the operand does not come from an operation with a scalar")
    if producer.instr.mask != site.instr.mask:
        raise RewriteError("mask", "the two operations have different masks")
    if not flow.can_replace(producer, site):
        raise RewriteError("dependence", "an operand of the first operation changes before the second")
    return first, other
