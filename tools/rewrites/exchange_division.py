"""Divide by multiplying with a reciprocal, or the other way round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Tensor
from .dataflow import Dataflow, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import column, reciprocal_of
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class DivisionOption(Option):
    """A division, or a product with a reciprocal.

    Attributes:
        instr: where it is.
        to_reciprocal: whether the division becomes a product.
        result: its result.
    """

    instr: Path
    to_reciprocal: bool
    result: str

    def describe(self) -> str:
        """See `Option`."""
        if self.to_reciprocal:
            return f"Compute `{self.result}` by multiplying with a reciprocal instead of dividing"
        return f"Compute `{self.result}` with one division instead of a reciprocal and a product"


class ExchangeDivision(Rewrite[DivisionOption]):
    """``x / y`` and ``x * (1 / y)`` for each other."""

    name = "exchange-division"
    summary = (
        "A division by one value per row is dearer than the reciprocal of that value and a scaling; a division of full "
        "tiles may be cheaper than reciprocal and product"
    )
    targets = ("vector",)

    def find(self, kernel: Kernel) -> Iterator[DivisionOption]:
        """Every division of tiles and every product with a reciprocal."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            instr = site.instr
            if instr.op == "nl.divide":
                yield DivisionOption(site.path, True, instr.dst.tensor.name)
            elif instr.op == "nl.multiply" and isinstance(instr.args["y"], Access):
                yield DivisionOption(site.path, False, instr.dst.tensor.name)

    def edit(self, kernel: Kernel, option: DivisionOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        instr = site.instr
        x, y = instr.args.get("x"), instr.args.get("y")
        if option.to_reciprocal and instr.op == "nl.divide":
            replace_instr(kernel, instr, _as_product(instr))
            return
        if instr.op != "nl.multiply" or not isinstance(x, Access) or not isinstance(y, Access):
            raise RewriteError("option", "there is no division or product of tiles")
        for numerator, inverse in ((x, y), (y, x)):
            producer = flow.producer(inverse, site)
            denominator = reciprocal_of(producer.instr) if producer is not None else None
            if producer is None or denominator is None or denominator.shape != numerator.shape:
                continue
            if producer.instr.mask != instr.mask or not flow.can_replace(producer, site):
                continue
            args = {"x": numerator, "y": denominator}
            replace_instr(kernel, instr, [Instr("nl.divide", instr.dsts, args, {}, instr.mask, instr.line)])
            drop_dead(kernel)
            return
        raise RewriteError("option", "no factor is a reciprocal computed just before")


def _as_product(instr: Instr) -> list[Instr]:
    x, y = instr.args["x"], instr.args["y"]
    if isinstance(y, int | float):
        if y == 0:
            raise RewriteError("operation", "division by zero")
        return [Instr("nl.multiply", instr.dsts, {"x": x, "y": 1.0 / float(y)}, {}, instr.mask, instr.line)]
    if not isinstance(y, Access):
        raise RewriteError("operation", "the divisor is not a tile")
    narrow = column(y)
    source = narrow if narrow is not None else y
    if narrow is None and instr.mask:
        scratch_mask = instr.mask
    else:
        scratch_mask = ()
    scope = None
    tensor = Tensor(
        f"inverse_{y.tensor.name}", source.shape, np.dtype(instr.dst.dtype), Buffer.SBUF, scope=scope
    )
    tensor.scope = y.tensor.scope if y.tensor.scope is not None else instr.dst.tensor.scope
    inverse = Instr("nl.reciprocal", (tensor.whole(),), {"x": source}, {}, scratch_mask, instr.line)
    operand = tensor.whole()
    if narrow is not None:
        operand = Access(tensor, operand.index, y.shape)
    if isinstance(x, int | float) and x == 1:
        return [Instr("nl.reciprocal", instr.dsts, {"x": y}, {}, instr.mask, instr.line)]
    return [inverse, Instr("nl.multiply", instr.dsts, {"x": x, "y": operand}, {}, instr.mask, instr.line)]
