"""Fuse a sum into the instruction that computes what is summed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Instr, Kernel
from .dataflow import Dataflow, drop_dead, replace_instr
from .reductions import activation_reduce, reduction
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import ScalarStep, scalar_step
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class ReductionOption(Option):
    """A reduction and the producer of its operand.

    Attributes:
        instr: where the reduction is.
        operand: what it reduces.
        result: its result.
        call: the fused call.
    """

    instr: Path
    operand: str
    result: str
    call: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.operand}` and its reduction `{self.result}` in one {self.call}"


class FuseReduction(Rewrite[ReductionOption]):
    """``f(x)`` and its sum over the free axes become one instruction."""

    name = "fuse-reduction"
    summary = (
        "nisa.activation_reduce sums what it computes, and nisa.tensor_scalar_reduce reduces it, in one pass over the data: "
        "no separate reduction on the vector engine"
    )
    targets = ("vector", "latency")

    def find(self, kernel: Kernel) -> Iterator[ReductionOption]:
        """Every reduction whose operand comes from an activation or a scalar step."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            found = reduction(site.instr)
            producer = flow.producer(found.operand, site) if found is not None else None
            if found is None or producer is None:
                continue
            if flow.function(producer) is not None:
                call = "nisa.activation_reduce"
            elif scalar_step(producer.instr) is not None and found.divisor == 1:
                call = "nisa.tensor_scalar_reduce"
            else:
                continue
            yield ReductionOption(site.path, found.operand.tensor.name, site.instr.dst.tensor.name, call)

    def edit(self, kernel: Kernel, option: ReductionOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        found = reduction(site.instr)
        producer = flow.producer(found.operand, site) if found is not None else None
        if found is None or producer is None:
            raise RewriteError("option", "there is no reduction of a computed tile")
        if producer.instr.mask or site.instr.mask:
            raise RewriteError("mask", "fused reductions take no mask")
        if not flow.can_replace(producer, site):
            raise RewriteError("dependence", "an operand changes before the reduction")
        for other in (
            *flow.readers.get(site.instr.dst.tensor.storage, ()),
            *flow.readers.get(found.operand.tensor, ()),
        ):
            if producer.order < other.order < site.order:
                raise RewriteError("dependence", f"`{other.instr.dst.tensor.name}` is computed in between")
        function, scalar = flow.function(producer), scalar_step(producer.instr)
        fused = None
        if option.call == "nisa.activation_reduce" and function is not None:
            scope = site.loops[-1] if site.loops else None
            fused = activation_reduce(producer.instr.dst, function, site.instr, scope)
        elif option.call == "nisa.tensor_scalar_reduce" and scalar is not None and found.divisor == 1:
            dst = producer.instr.dst
            fused = [_tensor_scalar_reduce(dst, site.instr.dst, scalar, found.combine, site.instr)]
        if fused is None:
            raise RewriteError("operation", "the two cannot be fused")
        replace_instr(kernel, producer.instr, [])
        replace_instr(kernel, site.instr, fused)
        drop_dead(kernel)


def _tensor_scalar_reduce(dst: Access, result: Access, step: ScalarStep, combine: str, like: Instr) -> Instr:
    if combine not in ("add", "subtract", "multiply", "maximum", "minimum"):
        raise RewriteError("operation", f"nisa.tensor_scalar_reduce cannot reduce with {combine}")
    attrs = {"op0": step.op, "reverse0": step.reverse, "reduce_op": combine}
    return Instr(
        "nisa.tensor_scalar_reduce",
        (dst, result),
        {"data": step.data, "operand0": step.scalar},
        attrs,
        (),
        like.line,
    )
