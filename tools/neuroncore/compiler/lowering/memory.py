"""API calls that move data between memories: DMA transfers, and the copies that PSUM needs beside them."""

from __future__ import annotations

import numpy as np

from ...ir import Access, Affine, Buffer, Instr
from ..program import Engine, Kind, Role, Transfer
from ..transfers import cut
from .elementwise import Elementwise
from .emitter import free_elements, indices_of


class Memory(Elementwise):
    """Lowerings to DMA."""

    def dma(
        self, dst: Access, src: Access, elementwise: bool = False, after: tuple[Access, ...] = ()
    ) -> None:
        """A transfer between any two memories; PSUM has no DMA port, so its side goes through a copy.

        It waits for the tiles of `after`, too.
        """
        if src.tensor.buffer is Buffer.PSUM:
            staged = self.temp(src.shape, src.dtype)
            self.copy(src, staged)
            src = staged
        if dst.tensor.buffer is Buffer.PSUM:
            staged = self.temp(dst.shape, dst.dtype)
            self.dma(staged, src, elementwise)
            self.copy(staged, dst)
            return
        src_hbm, dst_hbm = not src.tensor.buffer.on_chip, not dst.tensor.buffer.on_chip
        role = Role.COPY if src_hbm == dst_hbm else Role.LOAD if src_hbm else Role.STORE
        rows, pieces, size, single = cut(dst, src) if role is Role.STORE else cut(src, dst)
        if elementwise:
            # A transposing transfer gathers single elements, whatever the pattern on the other side.
            side = src if src_hbm else dst
            rows, pieces, size, single = side.shape[0], free_elements(side), side.dtype.itemsize, True
        scratch = src.tensor.storage in self.scratch or dst.tensor.storage in self.scratch
        scattered = [side for side in (src, dst) if any(_varies(index) for index in indices_of(side))]
        for side in scattered:
            after = (*after, self._descriptors(side, rows, pieces))
        transfer = Transfer(role, rows, pieces, size, single, src_hbm, dst_hbm, scratch, bool(scattered))
        # tile axes of an HBM destination are those of the call, so its mask applies unchanged
        self.emit(
            Kind.DMA,
            Engine.DMA,
            dst,
            [src],
            transfer=transfer,
            elements=free_elements(src),
            side_reads=after,
        )

    def _descriptors(self, side: Access, rows: int, pieces: int) -> Access:
        """What GpSimd writes before an indirect transfer: a descriptor for each piece, out of the index tiles.

        "GpSimd generates DMA descriptors ... the only mode that supports indirect operations" (descriptor generation
        guide). The cost is not documented; a descriptor is taken for an element of the cost table.
        """
        made = self.temp((rows, pieces), np.dtype(np.uint32))
        self.emit(
            Kind.GPSIMD_MISC,
            Engine.GPSIMD,
            made,
            list(indices_of(side)),
            elements=rows * pieces,
            mask=(),
            varies=frozenset(
                v for e in side.index for v in (e if isinstance(e, Affine) else e.offset).loops()
            ),
            label="descriptors",
        )
        return made

    def op_load(self, instr: Instr) -> None:
        """`load`."""
        self.dma(instr.dst, self.tile(instr, "src"))

    def op_store(self, instr: Instr) -> None:
        """`store`."""
        value = instr.args.get("value")
        if isinstance(value, Access):
            self.dma(instr.dst, value)
        else:
            filled = self.temp(instr.dst.shape, instr.dst.dtype)
            self.emit(Kind.MEMSET, Engine.VECTOR, filled, [])
            self.dma(instr.dst, filled)

    def op_dma_copy(self, instr: Instr) -> None:
        """`dma_copy`; one that adds to what is there fetches that first (DMA engines add as data pass)."""
        src = self.tile(instr, "src")
        if not instr.attrs.get("dst_rmw_op"):
            self.dma(instr.dst, src)
            return
        old = self.temp(instr.dst.shape, instr.dst.dtype)
        self.dma(old, instr.dst)
        self.dma(instr.dst, src, after=(old,))

    def op_load_transpose2d(self, instr: Instr) -> None:
        """`load_transpose2d`."""
        self.dma(instr.dst, self.tile(instr, "src"), elementwise=True)

    op_dma_transpose = op_load_transpose2d

    def op_atomic_rmw(self, instr: Instr) -> None:
        """HBM read-modify-write: a read and a write of the same rows."""
        value = self.tile(instr, "value")
        old = self.temp(value.shape, value.dtype)
        self.dma(old, instr.dst)
        total = self.temp(value.shape, value.dtype)
        self.emit(Kind.TENSOR_TENSOR, Engine.VECTOR, total, [old, value])
        self.dma(instr.dst, total)


def _varies(index: Access) -> bool:
    """Whether an index tile holds a position for every row, not one for the whole transfer."""
    return any(e.axes() for e in index.affine)
