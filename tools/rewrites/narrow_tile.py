"""Narrow tiles: work through wide ones piece by piece, so that what is live at once fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Instr, Kernel
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .splitting import split_tiles
from .structure import Path, instr_at, instrs_of, loop_at, loops_of

SMALLEST_PIECE = 512
"""Columns below which a piece no longer pays for its instructions: a 2 KiB row of float32."""


@dataclasses.dataclass(frozen=True)
class NarrowOption(Option):
    """Cut the tiles of a loop's body.

    Attributes:
        loop: where the loop is.
        instr: an instruction in it whose result is as wide as the tiles.
        name: the loop's index.
        columns: how wide the tiles are.
        pieces: how many pieces they are cut into.
        scans: whether a scan hands its state from piece to piece.
    """

    loop: Path
    instr: Path
    name: str
    columns: int
    pieces: int
    scans: bool

    def describe(self) -> str:
        """See `Option`."""
        size = self.columns // self.pieces
        what = f"Work through the {self.columns} columns inside the loop over {self.name} in {self.pieces} pieces of {size}"
        return f"{what}, handing the scan's state on" if self.scans else what


class NarrowTile(Rewrite[NarrowOption]):
    """Cut wide tiles into pieces with a loop over them."""

    name = "narrow-tile"
    summary = (
        "Work through wide tiles in pieces: several pieces fit into SBUF where few whole tiles do, so that loads and engines "
        "overlap; a scan hands its last value from piece to piece"
    )
    targets = ("spill", "memory", "latency")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[NarrowOption]:
        """Every loop with tiles of at least two smallest pieces, cut as often as that divides them."""
        for path, loop, _ in loops_of(kernel):
            inside = [(where, instr) for where, instr, around in instrs_of(kernel) if loop in around]
            widest = max((i.dst.shape[-1] for _, i in inside if _is_wide(i)), default=0)
            if widest < 2 * SMALLEST_PIECE:
                continue
            where = next(p for p, i in inside if _is_wide(i) and i.dst.shape[-1] == widest)
            scans = any(i.op == "nisa.tensor_tensor_scan" for _, i in inside)
            for pieces in range(2, widest // SMALLEST_PIECE + 1):
                if widest % pieces == 0:
                    yield NarrowOption(path, where, loop.var.name, widest, pieces, scans)

    def edit(self, kernel: Kernel, option: NarrowOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        instr, _, _, around = instr_at(kernel, option.instr)
        if loop not in around or instr.dst.shape[-1] != option.columns:
            raise RewriteError("option", "the instruction is not one of the loop's wide ones")
        split_tiles(kernel, loop, instr, option.pieces)


def _is_wide(instr: Instr) -> bool:
    return instr.dst.tensor.buffer.on_chip and len(instr.dst.shape) == 2
