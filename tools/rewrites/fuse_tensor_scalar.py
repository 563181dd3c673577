"""Fuse two operations with scalars into one ``nisa.tensor_scalar``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel
from .dataflow import Dataflow, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import scalar_step, tensor_scalar
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class FuseScalarOption(Option):
    """The second of two steps.

    Attributes:
        instr: where it is.
        first: result of the first step.
        second: result of the second step.
    """

    instr: Path
    first: str
    second: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.first}` and `{self.second}` in one nisa.tensor_scalar with op0 and op1"


class FuseTensorScalar(Rewrite[FuseScalarOption]):
    """``(x op0 a)`` followed by ``op1 b`` becomes one instruction."""

    name = "fuse-tensor-scalar"
    summary = "Two operations of a tile with scalars cost as much as one when nisa.tensor_scalar does both"
    targets = ("vector", "scalar", "latency")

    def find(self, kernel: Kernel) -> Iterator[FuseScalarOption]:
        """Every scalar step on the result of another."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            step = scalar_step(site.instr)
            if step is None:
                continue
            producer = flow.producer(step.data, site)
            if producer is not None and scalar_step(producer.instr) is not None:
                yield FuseScalarOption(site.path, step.data.tensor.name, site.instr.dst.tensor.name)

    def edit(self, kernel: Kernel, option: FuseScalarOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        second = scalar_step(site.instr)
        producer = flow.producer(second.data, site) if second is not None else None
        first = scalar_step(producer.instr) if producer is not None else None
        if second is None or producer is None or first is None:
            raise RewriteError("option", "there are no two steps with scalars to fuse")
        if producer.instr.mask != site.instr.mask:
            raise RewriteError("mask", "the two steps have different masks")
        if not flow.can_replace(producer, site):
            raise RewriteError("dependence", "an operand of the first step changes before the second")
        replace_instr(kernel, site.instr, [tensor_scalar(site.instr.dst, first, second, site.instr)])
        drop_dead(kernel)
