"""Use one activation function where a chain of instructions computes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Kernel
from .dataflow import Dataflow, Site, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import FunctionStep, activation, reciprocal_of, scalar_step, tensor_step
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class FunctionOption(Option):
    """The last instruction of a chain.

    Attributes:
        instr: where it is.
        function: what the chain computes.
        result: its result.
    """

    instr: Path
    function: str
    result: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.result}` with one {self.function} activation"


class UseFusedFunction(Rewrite[FunctionOption]):
    """Recognize sigmoid, silu and rsqrt in the instructions that spell them out."""

    name = "use-fused-function"
    summary = (
        "1 / (1 + exp(-x)) is one sigmoid activation, x / (1 + exp(-x)) one silu, 1 / sqrt(x) one rsqrt: one instruction "
        "on the scalar engine instead of several on two engines"
    )
    targets = ("vector", "scalar", "latency")

    def find(self, kernel: Kernel) -> Iterator[FunctionOption]:
        """Every instruction that ends such a chain."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            step = recognize(flow, site)
            if step is not None:
                yield FunctionOption(site.path, step.function, site.instr.dst.tensor.name)

    def edit(self, kernel: Kernel, option: FunctionOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        step = recognize(flow, site)
        if step is None or step.function != option.function:
            raise RewriteError(
                "option", f"the instruction does not end a chain that computes {option.function}"
            )
        replace_instr(kernel, site.instr, [activation(site.instr.dst, step, site.instr)])
        drop_dead(kernel)


def recognize(flow: Dataflow, site: Site) -> FunctionStep | None:
    """The function that the chain ending at an instruction computes of the chain's source; None if none is known."""
    inverse = _sigmoid(flow, site) or _rsqrt(flow, site)
    return inverse if inverse is not None else _silu(flow, site)


def _chain(flow: Dataflow, access: Access, reader: Site) -> Site | None:
    """The producer of a tile, if the reader may read the producer's operands in its place."""
    producer = flow.producer(access, reader)
    if producer is None or producer.instr.mask != reader.instr.mask or not flow.can_replace(producer, reader):
        return None
    return producer


def _denominator(flow: Dataflow, access: Access, reader: Site) -> FunctionStep | None:
    """``x`` if a tile is ``1 + exp(-x)``, as a sigmoid of it."""
    sum_site = _chain(flow, access, reader)
    added = scalar_step(sum_site.instr) if sum_site is not None else None
    if sum_site is None or added is None or added.op != "add" or added.scalar != 1:
        return None
    exp_site = _chain(flow, added.data, sum_site)
    exp = flow.function(exp_site) if exp_site is not None else None
    if (
        exp_site is None
        or exp is None
        or exp.function != "exp"
        or exp.bias is not None
        or isinstance(exp.scale, Access)
    ):
        return None
    if not _reaches(flow, exp_site, reader):
        return None
    if exp.scale < 0:
        return FunctionStep(exp.data, "sigmoid", -float(exp.scale), None)
    negative_site = _chain(flow, exp.data, exp_site)
    negated = scalar_step(negative_site.instr) if negative_site is not None else None
    if (
        negative_site is None
        or negated is None
        or negated.op != "multiply"
        or isinstance(negated.scalar, Access)
    ):
        return None
    if negated.scalar >= 0 or not _reaches(flow, negative_site, reader):
        return None
    return FunctionStep(negated.data, "sigmoid", -float(exp.scale) * float(negated.scalar), None)


def _reaches(flow: Dataflow, first: Site, reader: Site) -> bool:
    return flow.can_replace(first, reader)


def _sigmoid(flow: Dataflow, site: Site) -> FunctionStep | None:
    operand = reciprocal_of(site.instr)
    return _denominator(flow, operand, site) if operand is not None else None


def _rsqrt(flow: Dataflow, site: Site) -> FunctionStep | None:
    operand = reciprocal_of(site.instr)
    root_site = _chain(flow, operand, site) if operand is not None else None
    root = flow.function(root_site) if root_site is not None else None
    if root is None or root.function != "sqrt":
        return None
    return dataclasses.replace(root, function="rsqrt")


def _silu(flow: Dataflow, site: Site) -> FunctionStep | None:
    """``x * sigmoid(x)`` or ``x / (1 + exp(-x))``."""
    instr = site.instr
    if instr.op == "nl.divide":
        x, y = instr.args["x"], instr.args["y"]
        if not isinstance(x, Access) or not isinstance(y, Access):
            return None
        return _as_silu(x, _denominator(flow, y, site))
    product = tensor_step(instr)
    if product is None or product.op != "multiply":
        return None
    for x, other in ((product.left, product.right), (product.right, product.left)):
        gate_site = _chain(flow, other, site)
        if gate_site is None:
            continue
        found = flow.function(gate_site)
        gate = found if found is not None and found.function == "sigmoid" else _sigmoid(flow, gate_site)
        if gate is not None and gate.bias is None and _gate_reaches(flow, gate, gate_site, site):
            silu = _as_silu(x, gate)
            if silu is not None:
                return silu
    return None


def _gate_reaches(flow: Dataflow, gate: FunctionStep, gate_site: Site, site: Site) -> bool:
    return flow.unchanged_between(gate.data, gate_site, site)


def _as_silu(x: Access, gate: FunctionStep | None) -> FunctionStep | None:
    if (
        gate is None
        or gate.function != "sigmoid"
        or gate.scale != 1.0
        or gate.bias is not None
        or gate.data != x
    ):
        return None
    return FunctionStep(x, "silu", 1.0, None)
