"""Coarsen DMA: load or store several neighbouring tiles at once, apart from the computation on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Instr, Kernel, Loop, clone
from .extraction import extract
from .layout import blocks_of, merge_block_into_free
from .loops import split_loop
from .merging import merge_iterations, mergeable_factors
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, find, instr_at, instrs_in, instrs_of, is_local, loop_at, loops_of


@dataclasses.dataclass(frozen=True)
class CoarsenOption(Option):
    """Merge one load or store over some iterations of a loop.

    Attributes:
        loop: where the loop is.
        instr: where the load or store is, inside the loop; empty for all of them.
        name: the loop's index.
        tensor: the HBM tensor; all of them, listed.
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
        if not self.instr:
            return f"Load and store {count} tiles of the loop over {self.name} in one transfer each: {self.tensor}"
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
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[CoarsenOption]:
        """Every load and store with every loop around it whose index it uses, then all those of a loop together."""
        for path, loop, _ in loops_of(kernel):
            moved: dict[str, None] = {}
            for where, instr, around in instrs_of(kernel):
                if loop not in around or not _moves(instr, loop):
                    continue
                stores = instr.op == "nl.store"
                hbm, tile = _sides(instr)
                moved[f"`{hbm.tensor.name}`"] = None
                for factor in mergeable_factors(loop):
                    names = (loop.var.name, hbm.tensor.name, tile.tensor.name)
                    yield CoarsenOption(path, where, *names, stores, loop.trips, factor)
            if len(moved) > 1:
                for factor in mergeable_factors(loop):
                    yield CoarsenOption(
                        path, (), loop.var.name, ", ".join(moved), "", False, loop.trips, factor
                    )

    def edit(self, kernel: Kernel, option: CoarsenOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        instr = instr_at(kernel, option.instr)[0] if option.instr else None
        if option.factor < loop.trips:
            _, loop = split_loop(kernel, loop, option.factor)
            if option.instr:
                # Splitting has replaced the instructions; the option's path leads through one more loop now.
                depth = len(option.loop)
                instr, _, _, _ = instr_at(kernel, (*option.loop, 0, *option.instr[depth:]))
        if instr is not None:
            merge_transfers(kernel, loop, instr)
        else:
            _merge_all(kernel, loop)


def _moves(instr: Instr, loop: Loop) -> bool:
    """Whether an instruction is a transfer that depends on a loop."""
    if instr.op not in ("nl.load", "nl.store"):
        return False
    hbm, _ = _sides(instr)
    return loop.var in hbm.loops()


def _sides(instr: Instr) -> tuple[Access, Access]:
    """The access to HBM and the tile on chip of a load or store."""
    operand = instr.args["value" if instr.op == "nl.store" else "src"]
    assert isinstance(operand, Access)
    return (instr.dst, operand) if instr.op == "nl.store" else (operand, instr.dst)


def _merge_all(kernel: Kernel, loop: Loop) -> None:
    """Merge every transfer of a loop that can be.

    Raises:
        RewriteError: if fewer than two can.
    """
    transfers = [instr for instr, _ in instrs_in(loop.body) if _moves(instr, loop)]
    path = find(kernel, loop)
    possible = []
    for position, instr in enumerate(transfers):
        trial = clone(kernel)
        trial_loop, _ = loop_at(trial, path)
        candidates = [i for i, _ in instrs_in(trial_loop.body) if _moves(i, trial_loop)]
        try:
            merge_transfers(trial, trial_loop, candidates[position])
        except RewriteError:
            continue
        possible.append((instr.op, _sides(instr)[1].tensor))
    if len(possible) < 2:
        raise RewriteError("option", "fewer than two transfers of the loop can be merged")
    for op, tensor in possible:
        # Moving one transfer copies the instructions that stay, so each is looked up again.
        remaining = [i for i, _ in instrs_in(loop.body) if i.op == op and _moves(i, loop)]
        merge_transfers(kernel, loop, next(i for i in remaining if _sides(i)[1].tensor is tensor))


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
    block = dict(blocks_of(loop)).get(tensor)
    if block is None:
        raise RewriteError("shape", f"`{tensor.name}` has no block for each iteration of {loop.var.name}")
    merge_block_into_free(kernel, tensor, block)
    merge_iterations(kernel, loop, loop.trips)
