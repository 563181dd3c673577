"""Matmuls and transposes: LoadStationary and MultiplyMoving pairs into PSUM, evictions included."""

from __future__ import annotations

import numpy as np

from ...ir import Access, Buffer, Instr
from ..program import Engine, Kind
from .emitter import free_elements
from .reductions import Reductions


class TensorEngine(Reductions):
    """Lowerings to TensorE."""

    def passes_of(self, *tiles: Access) -> int:
        """LS+MM pairs: two for fp32 operands, one for narrower types."""
        wide = any(t.dtype.itemsize == 4 for t in tiles)
        return int(self.machine.fp32_passes) if wide else 1

    def transpose(self, src: Access, dst: Access, hidden: bool = False, label: str = "transpose") -> None:
        """Matmul against the identity into PSUM; a result wanted in SBUF is evicted by ScalarE."""
        self.identity_needed = True
        target = dst
        if dst.tensor.buffer is not Buffer.PSUM:
            target = self.temp(dst.shape, np.dtype(np.float32), Buffer.PSUM)
        self.emit(
            Kind.TRANSPOSE, Engine.TENSOR, target, [src], passes=self.passes_of(src), rows_contracted=src.shape[0],
            stationary_columns=free_elements(src), elements=src.shape[0], hidden=hidden, label=label, mask=(),
        )  # fmt: skip
        if target is not dst:
            self.emit(Kind.COPY, Engine.SCALAR, dst, [target], label="copy", hidden=hidden, mask=())

    def op_transpose(self, instr: Instr) -> None:
        """`transpose`."""
        self.transpose(self.tile(instr, "x"), instr.dst)

    def op_nc_transpose(self, instr: Instr) -> None:
        """`nc_transpose`."""
        data = self.tile(instr, "data")
        small = data.shape[0] <= 32 and free_elements(data) <= 32
        if instr.attrs.get("engine") == "vector" or (small and instr.dst.tensor.buffer is not Buffer.PSUM):
            self.emit(
                Kind.COPY,
                Engine.VECTOR,
                instr.dst,
                [data],
                label="nc_transpose",
                elements=free_elements(data),
            )
        else:
            self.transpose(data, instr.dst, label="nc_transpose")

    def op_nc_matmul(self, instr: Instr) -> None:
        """`nc_matmul`."""
        stationary, moving = self.tile(instr, "stationary"), instr.args.get("moving")
        if not isinstance(moving, Access):
            raise TypeError(f"line {instr.line}: {instr.op} needs a moving tile")
        self.matmul(instr, stationary, moving)

    op_nc_matmul_mx = op_nc_matmul

    def op_matmul(self, instr: Instr) -> None:
        """X @ y: x is transposed on the array first unless the call says that it already is."""
        x, y = instr.args.get("x"), instr.args.get("y")
        if not (isinstance(x, Access) and isinstance(y, Access)):
            raise TypeError(f"line {instr.line}: {instr.op} needs two tiles")
        if not instr.attrs.get("transpose_x"):
            turned = self.temp((free_elements(x), x.shape[0]), x.dtype)
            self.transpose(x, turned, hidden=True)
            x = turned
        self.matmul(instr, x, y)

    def _in_sbuf(self, tile: Access) -> Access:
        """An operand that repeats over partitions, as TensorE can read it."""
        spread = self.spread(tile, tile.shape[0])
        if spread is tile or spread.tensor.buffer is not Buffer.PSUM:
            return spread
        evicted = self.temp(spread.shape, spread.dtype)
        self.emit(Kind.COPY, Engine.SCALAR, evicted, [spread], label="copy", mask=())
        return evicted

    def matmul(self, instr: Instr, stationary: Access, moving: Access) -> None:
        """One or two LS+MM pairs; a masked moving operand still runs at the tile's full width.

        What the call claims of its operands makes it cheaper only where the kernel shows that it is so.
        """
        stationary, moving = (self._in_sbuf(tile) for tile in (stationary, moving))
        claimed = bool(instr.attrs.get("is_stationary_onezero"))
        one_zero = claimed and self.contents.ones_and_zeros(stationary)
        turning = bool(instr.attrs.get("is_transpose")) and self.contents.identity(moving)
        dst = instr.dst
        target = dst
        if dst.tensor.buffer is not Buffer.PSUM:
            target = self.temp(dst.shape, np.dtype(np.float32), Buffer.PSUM)
        self.emit(
            Kind.TRANSPOSE if turning else Kind.MATMUL, Engine.TENSOR, target, [stationary, moving],
            passes=1 if one_zero else self.passes_of(stationary, moving), rows_contracted=stationary.shape[0],
            stationary_columns=free_elements(stationary), stationary_resident=one_zero and not stationary.loops(),
            elements=free_elements(moving), accumulates=bool(instr.attrs.get("accumulate")), mask=(),
            label="transpose" if turning else "matmul",
        )  # fmt: skip
        if target is not dst:
            self.emit(Kind.COPY, Engine.SCALAR, dst, [target], label="copy")
