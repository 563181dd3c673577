"""Widen tiles: one instruction where there were several over neighbouring columns (or rows)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel
from .layout import blocks_of, merge_block_into_free
from .merging import merge_iterations, mergeable_factors
from .rewrite import Option, Rewrite
from .structure import Path, loop_at, loops_of


@dataclasses.dataclass(frozen=True)
class WidenOption(Option):
    """Merge iterations of one loop.

    Attributes:
        loop: where the loop is.
        name: its index.
        trips: its iterations.
        factor: how many become one.
    """

    loop: Path
    name: str
    trips: int
    factor: int

    def describe(self) -> str:
        """See `Option`."""
        if self.factor == self.trips:
            return f"Merge all {self.trips} iterations of the loop over {self.name} into wider tiles"
        return f"Merge {self.factor} of {self.trips} iterations of the loop over {self.name} into {self.factor}x wider tiles"


class WidenTile(Rewrite[WidenOption]):
    """Merge iterations that work on neighbouring tiles."""

    name = "widen-tile"
    summary = (
        "Merge neighbouring iterations of a loop into wider tiles: fewer instructions and fewer, larger DMA pieces "
        "spread the fixed cost of each"
    )
    targets = ("memory", "vector", "scalar", "latency")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[WidenOption]:
        """Every loop with every divisor of its trip count."""
        for path, loop, _ in loops_of(kernel):
            for factor in mergeable_factors(loop):
                yield WidenOption(path, loop.var.name, loop.trips, factor)

    def edit(self, kernel: Kernel, option: WidenOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        for tensor, block in list(blocks_of(loop)):
            merge_block_into_free(kernel, tensor, block)
        merge_iterations(kernel, loop, option.factor)
