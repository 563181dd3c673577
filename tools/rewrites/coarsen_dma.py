"""Coarsen DMA: load or store several neighbouring tiles at once, apart from the computation on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Instr, Kernel, Loop, Tensor
from .extraction import extract
from .layout import merge_block_into_free
from .loops import split_loop
from .merging import merge_iterations, mergeable_factors
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, instrs_in, instrs_of, is_local, loop_at, loops_of


@dataclasses.dataclass(frozen=True)
class CoarsenOption(Option):
    """Merge one load or store over some iterations of a loop.

    Attributes:
        loop: where the loop is.
        instr: where the load or store is, inside the loop.
        name: the loop's index.
        tensor: the HBM tensor.
        tile: the tile on chip.
        stores: whether it is a store.
        trips: iterations of the loop.
        factor: how many transfers become one.
    """

    loop: Path
    instr: Path
    name: str
    tensor: str
    tile: str
    stores: bool
    trips: int
    factor: int

    def describe(self) -> str:
        """See `Option`."""
        count = f"all {self.trips}" if self.factor == self.trips else f"{self.factor} of the {self.trips}"
        if self.stores:
            return f"Store {count} tiles `{self.tile}` of the loop over {self.name} to `{self.tensor}` in one transfer"
        return f"Load {count} tiles `{self.tile}` of the loop over {self.name} from `{self.tensor}` in one transfer"


class CoarsenDma(Rewrite[CoarsenOption]):
    """Move transfers into a loop of their own and merge it, so that each piece is longer."""

    name = "coarsen-dma"
    summary = (
        "Load or store several neighbouring tiles in one transfer, so that each contiguous piece in HBM is longer; "
        "computation goes on in the tiles it had"
    )
    targets = ("memory", "latency", "gpsimd")

    def candidates(self, kernel: Kernel) -> Iterator[CoarsenOption]:
        """Every load and store with every loop around it whose index it uses."""
        for path, loop, _ in loops_of(kernel):
            for where, instr, around in instrs_of(kernel):
                if loop not in around or instr.op not in ("nl.load", "nl.store"):
                    continue
                stores = instr.op == "nl.store"
                operand = instr.args["value" if stores else "src"]
                if not isinstance(operand, Access):
                    continue
                hbm, tile = (instr.dst, operand) if stores else (operand, instr.dst)
                if loop.var not in hbm.loops():
                    continue
                for factor in mergeable_factors(loop):
                    names = (loop.var.name, hbm.tensor.name, tile.tensor.name)
                    yield CoarsenOption(path, where, *names, stores, loop.trips, factor)

    def edit(self, kernel: Kernel, option: CoarsenOption) -> None:
        """See `Rewrite`."""
        instr, _, _, _ = instr_at(kernel, option.instr)
        loop, _ = loop_at(kernel, option.loop)
        if option.factor < loop.trips:
            _, loop = split_loop(kernel, loop, option.factor)
            # Splitting has replaced the instructions; the option's path leads through one more loop now.
            depth = len(option.loop)
            instr, _, _, _ = instr_at(kernel, (*option.loop, 0, *option.instr[depth:]))
        merge_transfers(kernel, loop, instr)


def merge_transfers(kernel: Kernel, loop: Loop, instr: Instr) -> None:
    """Make the transfers of all iterations of a loop one transfer, before the loop (loads) or after it (stores).

    Raises:
        RewriteError: if the transfers cannot be moved or do not continue one another.
    """
    stores = instr.op == "nl.store"
    tile = instr.args["value"] if stores else instr.dst
    if not isinstance(tile, Access) or not is_local(tile.tensor):
        raise RewriteError("shape", f"{instr.op} does not move a tile of the kernel's own")
    tensor = tile.tensor
    if len(list(instrs_in(loop.body))) > 1:
        (moved,) = extract(kernel, loop, [instr], keep_loop=True, after=stores)
        assert isinstance(moved, Loop)
        loop = moved
    merge_block_into_free(kernel, tensor, _block_of(loop, tensor))
    merge_iterations(kernel, loop, loop.trips)


def _block_of(loop: Loop, tensor: Tensor) -> int:
    """The block dimension that a loop indexes."""
    for instr, _ in instrs_in(loop.body):
        for access in (*instr.dsts, *instr.args.values()):
            if isinstance(access, Access) and access.tensor is tensor:
                for dim in range(tensor.par_dim):
                    if loop.var in access.affine[dim].terms:
                        return dim
    raise RewriteError("shape", f"`{tensor.name}` has no block for each iteration of {loop.var.name}")
