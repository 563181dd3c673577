"""Reductions over free axes and over loops, and the composites made of them."""

from __future__ import annotations

import numpy as np

from ...ir import Access, Affine, Instr, LoopVar
from ..program import Engine, Kind
from .emitter import free_elements
from .memory import Memory


class Reductions(Memory):
    """Lowerings to VectorE reductions."""

    def reduce(self, src: Access, dst: Access, label: str) -> None:
        """TENSOR_REDUCE over free axes on VectorE."""
        self.emit(
            Kind.REDUCE, Engine.VECTOR, dst, [self.spread(src, dst.shape[0])], label=label,
            elements=free_elements(src),
        )  # fmt: skip

    def op_tensor_reduce(self, instr: Instr) -> None:
        """`tensor_reduce`."""
        self.reduce(self.tile(instr, "data"), instr.dst, label=str(instr.attrs.get("op", "reduce")))

    def op_mean(self, instr: Instr) -> None:
        """Sum, then one small multiply."""
        total = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(self.tile(instr, "x"), total, label="sum")
        self.tensor_scalar(total, instr.dst, ("multiply",), label="multiply")

    def op_var(self, instr: Instr) -> None:
        """Mean, squared distance on ScalarE, mean again."""
        x = self.tile(instr, "x")
        mean = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(x, mean, label="sum")
        distance = self.temp(x.shape, np.dtype(np.float32))
        self.activate(x, distance, label="square", side=(mean,))
        total = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(distance, total, label="sum")
        self.tensor_scalar(total, instr.dst, ("multiply",), label="multiply")

    def op_tensor_partition_reduce(self, instr: Instr) -> None:
        """Across partitions on GpSimd: every lane's elements pass through one core (documented only as slow)."""
        src = self.tile(instr, "data")
        self.emit(
            Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], elements=free_elements(src), per_element=16.0
        )

    def op_all_reduce(self, instr: Instr) -> None:
        """`all_reduce`."""
        self.reduce(self.tile(instr, "x"), instr.dst, label="all_reduce")

    def op_loop_reduce(self, instr: Instr) -> None:
        """One VectorE TENSOR_TENSOR per partial; the first partial costs nothing.

        With a single loop and [P, 1] partials they are gathered and reduced by one TENSOR_REDUCE instead
        (rmsnorm_matmul's counters).
        """
        x = self.tile(instr, "x")
        loops = tuple(v for v in instr.attrs.get("loops", ()) if isinstance(v, LoopVar))
        if len(loops) == 1 and free_elements(instr.dst) == 1 and loops[0].trips <= 8:
            # The partial itself is `x`, which PSUM placement puts into a bank; only the last iteration reduces.
            self.emit(
                Kind.REDUCE, Engine.VECTOR, instr.dst, [_repeated(x, loops[0])], label="loop_reduce",
                elements=loops[0].trips, last_of=loops,
            )  # fmt: skip
            return
        self.emit(
            Kind.TENSOR_TENSOR,
            Engine.VECTOR,
            instr.dst,
            [x],
            label="loop_reduce",
            after_first=loops,
            accumulates=True,
        )

    def op_softmax(self, instr: Instr) -> None:
        """`softmax`."""
        x, dst = self.tile(instr, "x"), instr.dst
        column, f32 = (dst.shape[0], *(1 for _ in dst.shape[1:])), np.dtype(np.float32)
        peak, shifted, raised = self.temp(column, f32), self.temp(dst.shape, f32), self.temp(dst.shape, f32)
        total, inverse = self.temp(column, f32), self.temp(column, f32)
        self.reduce(x, peak, label="max")
        self.tensor_scalar(x, shifted, ("subtract",), (peak,), label="subtract")
        self.activate(shifted, raised, label="exp")
        self.reduce(raised, total, label="sum")
        self.reciprocal(total, inverse)
        self.tensor_scalar(raised, dst, ("multiply",), (inverse,), label="multiply")

    def op_rms_norm(self, instr: Instr) -> None:
        """`rms_norm`."""
        x, dst = self.tile(instr, "x"), instr.dst
        column, f32 = (dst.shape[0], *(1 for _ in dst.shape[1:])), np.dtype(np.float32)
        squared, total = self.temp(dst.shape, f32), self.temp(column, f32)
        mean, inverse, scaled = self.temp(column, f32), self.temp(column, f32), self.temp(dst.shape, f32)
        self.activate(x, squared, label="square")
        self.reduce(squared, total, label="sum")
        self.tensor_scalar(total, mean, ("multiply",), label="multiply")
        self.activate(mean, inverse, label="rsqrt")
        weight = instr.args.get("w")
        self.tensor_scalar(
            x, scaled if isinstance(weight, Access) else dst, ("multiply",), (inverse,), label="multiply"
        )
        if isinstance(weight, Access):
            self.tensor_tensor(scaled, weight, dst, "multiply")


def _repeated(partial: Access, loop: LoopVar) -> Access:
    """All partials of a loop as one access: a trailing axis that runs over the loop."""
    axis = len(partial.shape)
    moved = partial.substitute({loop: Affine.of(axis)})
    return Access(moved.tensor, moved.index, (*partial.shape, loop.trips))
