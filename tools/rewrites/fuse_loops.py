"""Fuse a loop that produces values with the loop that consumes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel, Loop, Node
from .layout import contract
from .loops import fuse, make_neighbours
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, is_local, locate, loop_at, loops_of, tensors_in


@dataclasses.dataclass(frozen=True)
class FuseLoopsOption(Option):
    """Two loops of one body.

    Attributes:
        first: where the first loop is.
        second: position of the second in the same body.
        name: index of the first.
        second_name: index of the second.
        trips: their iterations.
    """

    first: Path
    second: int
    name: str
    second_name: str
    trips: int

    def describe(self) -> str:
        """See `Option`."""
        return f"Fuse the loop over {self.name} with the later loop over {self.second_name} ({self.trips} iterations)"


class FuseLoops(Rewrite[FuseLoopsOption]):
    """Run producer and consumer in one loop, so that what passes between them is one iteration's worth."""

    name = "fuse-loops"
    summary = (
        "Run a producing and a consuming loop as one: the intermediate shrinks to one iteration's part, which neither "
        "spills nor travels through HBM"
    )
    targets = ("spill", "memory", "latency")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[FuseLoopsOption]:
        """Every two loops of one body with the same trip count."""
        for path, loop, _ in loops_of(kernel):
            body, position, _ = locate(kernel, path)
            for later in range(position + 1, len(body)):
                node: Node = body[later]
                if isinstance(node, Loop) and node.trips == loop.trips:
                    yield FuseLoopsOption(path, later, loop.var.name, node.var.name, loop.trips)

    def edit(self, kernel: Kernel, option: FuseLoopsOption) -> None:
        """See `Rewrite`."""
        first, _ = loop_at(kernel, option.first)
        second, _ = loop_at(kernel, (*option.first[:-1], option.second))
        if first is second:
            raise RewriteError("option", "a loop cannot be fused with itself")
        make_neighbours(kernel, first, second)
        fused = fuse(kernel, first, second)
        for tensor in tensors_in(fused.body):
            if is_local(tensor):
                contract(kernel, tensor)
