"""Compute the same value with fewer operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Operand, Tensor
from .dataflow import Dataflow, Site, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import ScalarStep, scalar_step, tensor_step
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class AlgebraOption(Option):
    """An instruction that can be had with fewer operations.

    Attributes:
        instr: where it is.
        law: which identity applies.
        result: its result.
    """

    instr: Path
    law: str
    result: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.result}` by {_LAWS[self.law]}"


_LAWS = {
    "factor": "factoring out: x - c*x = (1 - c)*x",
    "combine": "combining two constants: c*(d*x) = (c*d)*x, or (x + d) + c = x + (d + c)",
    "distribute": "moving the factor into the terms of the sum: c*(a*x + b*y) = (c*a)*x + (c*b)*y",
}


class SimplifyAlgebra(Rewrite[AlgebraOption]):
    """Identities of multiplication and addition with constants."""

    name = "simplify-algebra"
    summary = (
        "Save operations with constants: x - c*x is (1-c)*x, c*(d*x) is (c*d)*x, and a factor of a sum of scaled terms moves "
        "into their factors"
    )
    targets = ("vector", "scalar")

    def find(self, kernel: Kernel) -> Iterator[AlgebraOption]:
        """Every instruction to which an identity applies."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            for law, find in _FINDERS.items():
                if find(flow, site) is not None:
                    yield AlgebraOption(site.path, law, site.instr.dst.tensor.name)

    def edit(self, kernel: Kernel, option: AlgebraOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        replacement = _FINDERS[option.law](flow, site) if option.law in _FINDERS else None
        if replacement is None:
            raise RewriteError("option", f"{option.law} does not apply to the instruction")
        replace_instr(kernel, site.instr, replacement)
        drop_dead(kernel)


def _made_by(flow: Dataflow, access: Access, reader: Site) -> tuple[Site, ScalarStep] | None:
    """How an operand is made, if by one operation with a number that the reader may redo."""
    producer = flow.producer(access, reader)
    step = scalar_step(producer.instr) if producer is not None else None
    if producer is None or step is None or isinstance(step.scalar, Access):
        return None
    if producer.instr.mask != reader.instr.mask or not flow.can_replace(producer, reader):
        return None
    return producer, step


def _scaled(dst: Access, data: Access, factor: float, like: Instr) -> Instr:
    return Instr("nl.multiply", (dst,), {"x": data, "y": factor}, {}, like.mask, like.line)


def _factor(flow: Dataflow, site: Site) -> list[Instr] | None:
    """The identity for x - c*x, x + c*x, c*x + x and c*x - x."""
    step = tensor_step(site.instr)
    if step is None or step.op not in ("add", "subtract"):
        return None
    for whole, part, left in ((step.left, step.right, True), (step.right, step.left, False)):
        made = _made_by(flow, part, site)
        if made is None or made[1].op != "multiply" or made[1].data != whole:
            continue
        c = float(made[1].scalar)  # type: ignore[arg-type]
        factor = 1.0 + c if step.op == "add" else (1.0 - c if left else c - 1.0)
        return [_scaled(site.instr.dst, whole, factor, site.instr)]
    return None


def _combine(flow: Dataflow, site: Site) -> list[Instr] | None:
    """c*(d*x) and (x + d) + c."""
    step = scalar_step(site.instr)
    if step is None or isinstance(step.scalar, Access):
        return None
    made = _made_by(flow, step.data, site)
    if made is None or isinstance(made[1].scalar, Access):
        return None
    before = made[1]
    assert not isinstance(before.scalar, Access)
    if step.op == "multiply" and before.op == "multiply":
        return [_scaled(site.instr.dst, before.data, float(step.scalar) * float(before.scalar), site.instr)]
    if step.op == "add" and before.op == "add":
        total = float(step.scalar) + float(before.scalar)
        args: dict[str, Operand] = {"x": before.data, "y": total}
        return [Instr("nl.add", site.instr.dsts, args, {}, site.instr.mask, site.instr.line)]
    return None


def _distribute(flow: Dataflow, site: Site) -> list[Instr] | None:
    """c*(t + u) where t and u are scaled tiles of which nothing else is made."""
    step = scalar_step(site.instr)
    if step is None or step.op != "multiply" or isinstance(step.scalar, Access):
        return None
    total = flow.producer(step.data, site)
    if total is None or not flow.is_used_once(step.data.tensor) or total.instr.mask != site.instr.mask:
        return None
    terms = tensor_step(total.instr)
    if terms is None or terms.op not in ("add", "subtract") or not flow.can_replace(total, site):
        return None
    out: list[Instr] = []
    operands: list[Access] = []
    for term in (terms.left, terms.right):
        made = _made_by(flow, term, total)
        if made is None or made[1].op != "multiply" or not flow.is_used_once(term.tensor):
            return None
        if not flow.can_replace(made[0], site):
            return None
        factor = float(step.scalar) * float(made[1].scalar)  # type: ignore[arg-type]
        if factor == 1.0:
            operands.append(made[1].data)
            continue
        tensor = _like(term.tensor)
        operand = Access(tensor, term.index, term.shape)
        out.append(_scaled(operand, made[1].data, factor, made[0].instr))
        operands.append(operand)
    left, right = operands
    total_instr = Instr(
        f"nl.{terms.op}", site.instr.dsts, {"x": left, "y": right}, {}, site.instr.mask, site.instr.line
    )
    return [*out, total_instr]


def _like(tensor: Tensor) -> Tensor:
    return Tensor(
        tensor.name,
        tensor.shape,
        np.dtype(tensor.dtype),
        Buffer.SBUF,
        par_dim=tensor.par_dim,
        scope=tensor.scope,
    )


_FINDERS = {"factor": _factor, "combine": _combine, "distribute": _distribute}
