"""Fold a scaling or a shift into the activation that follows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.dtypes import FLOAT32
from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Loop, Tensor
from .constants import constant_column
from .dataflow import Dataflow, Site, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import FunctionStep, Scalar, ScalarStep, activation, scalar_step
from .structure import Path, instr_at


@dataclasses.dataclass(frozen=True)
class FoldOption(Option):
    """An activation whose operand is a scaled or shifted tile.

    Attributes:
        instr: where the activation is.
        function: what it computes.
        operand: the scaled or shifted tile.
        op: how it was made from its source.
    """

    instr: Path
    function: str
    operand: str
    op: str

    def describe(self) -> str:
        """See `Option`."""
        slot = "scale" if self.op == "multiply" else "bias"
        return f"Fold the {self.op} that makes `{self.operand}` into the {slot} of the {self.function} activation"


class FoldIntoActivation(Rewrite[FoldOption]):
    """``f(x * a)`` and ``f(x + b)`` become ``nisa.activation(f, x, scale=a, bias=b)``."""

    name = "fold-into-activation"
    summary = "nisa.activation computes f(x * scale + bias) at no extra cost: fold the preceding multiply, add or subtract"
    targets = ("vector", "scalar", "latency")

    def find(self, kernel: Kernel) -> Iterator[FoldOption]:
        """Every activation on the result of a scalar step."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            step = flow.function(site)
            if step is None:
                continue
            producer = flow.producer(step.data, site)
            before = scalar_step(producer.instr) if producer is not None else None
            if before is not None and before.op in ("add", "subtract", "multiply"):
                yield FoldOption(site.path, step.function, step.data.tensor.name, before.op)

    def edit(self, kernel: Kernel, option: FoldOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        step = flow.function(site)
        producer = flow.producer(step.data, site) if step is not None else None
        before = scalar_step(producer.instr) if producer is not None else None
        if step is None or producer is None or before is None:
            raise RewriteError("option", "there is no scaled or shifted operand to fold")
        if producer.instr.mask != site.instr.mask:
            raise RewriteError("mask", "the step and the activation have different masks")
        if not flow.can_replace(producer, site):
            raise RewriteError("dependence", "an operand of the step changes before the activation")
        extra: list[Instr] = []
        folded = fold(kernel, step, before, site, extra)
        replace_instr(kernel, site.instr, [*extra, activation(site.instr.dst, folded, site.instr)])
        drop_dead(kernel)


def fold(
    kernel: Kernel, step: FunctionStep, before: ScalarStep, site: Site, extra: list[Instr]
) -> FunctionStep:
    """The activation of the step's own source.

    Args:
        kernel: where constant tiles are added.
        step: ``f(y * scale + bias)``.
        before: how ``y`` is made.
        site: where the activation is.
        extra: filled with small instructions to run before it.

    Raises:
        RewriteError: if the activation's scale or bias is taken already.
    """
    scope = site.loops[-1] if site.loops else None
    if before.op == "multiply":
        return dataclasses.replace(step, data=before.data, scale=_product(step.scale, before.scalar))
    if before.op not in ("add", "subtract"):
        raise RewriteError("operation", f"{before.op} is neither a scale nor a bias")
    if step.bias is not None or isinstance(step.scale, Access):
        raise RewriteError("operation", "the activation has a bias already")
    sign = -1.0 if before.op == "subtract" and not before.reverse else 1.0
    scale = -step.scale if before.op == "subtract" and before.reverse else step.scale
    partitions = site.instr.dst.shape[0]
    bias = _scaled(kernel, before.scalar, sign * step.scale, partitions, scope, extra)
    return FunctionStep(before.data, step.function, float(scale), bias)


def _product(a: Scalar, b: Scalar) -> Scalar:
    if not isinstance(a, Access) and not isinstance(b, Access):
        return float(a) * float(b)
    if not isinstance(a, Access) and a == 1.0:
        return _as_float32(b)
    if not isinstance(b, Access) and b == 1.0:
        return _as_float32(a)
    raise RewriteError("operation", "the activation has a scale already")


def _as_float32(value: Scalar) -> Scalar:
    if isinstance(value, Access) and value.dtype != FLOAT32:
        raise RewriteError("dtype", "the scale of an activation must be float32")
    return value


def _scaled(
    kernel: Kernel, value: Scalar, factor: float, partitions: int, scope: Loop | None, extra: list[Instr]
) -> Access:
    """A bias tile that holds ``value * factor``."""
    if not isinstance(value, Access):
        return constant_column(kernel, float(value) * factor, partitions)
    if factor == 1.0:
        return value
    tensor = Tensor(
        f"{value.tensor.name}_scaled", (value.shape[0], 1), np.dtype(np.float32), Buffer.SBUF, scope=scope
    )
    name = "neg_" + value.tensor.name if factor == -1.0 else tensor.name
    tensor.name = name
    extra.append(Instr("nl.multiply", (tensor.whole(),), {"x": value, "y": factor}))
    return tensor.whole()
