"""Block a loop: run a block of its iterations inside one of its inner loops, so that they share what that loop loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel, Loop
from .extraction import extract, writers_closure
from .hoist_invariant import invariant_instrs
from .loops import push_inside, split_loop
from .merging import mergeable_factors
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, loop_at, loops_of


@dataclasses.dataclass(frozen=True)
class BlockOption(Option):
    """Push a block of a loop's iterations inside a loop in its body.

    Attributes:
        loop: where the loop is.
        child: position of the inner loop in its body.
        name: the loop's index.
        child_name: the inner loop's index.
        trips: iterations of the loop.
        factor: iterations in a block; all of them exchanges the loops.
    """

    loop: Path
    child: int
    name: str
    child_name: str
    trips: int
    factor: int

    def describe(self) -> str:
        """See `Option`."""
        if self.factor == self.trips:
            return (
                f"Run the loop over {self.name} inside the loop over {self.child_name}, loading what it shares once "
                f"for all {self.trips} iterations"
            )
        return (
            f"Block the loop over {self.name} by {self.factor}: the loop over {self.child_name} goes outside, and what "
            f"it loads is shared by {self.factor} iterations of {self.name}"
        )


class BlockLoop(Rewrite[BlockOption]):
    """Exchange a block of a loop with an inner loop and hoist what has become invariant."""

    name = "block-loop"
    summary = (
        "Run a block of iterations of an outer loop inside an inner loop, so that operands of the inner loop are loaded "
        "once for the block instead of once for every iteration"
    )
    targets = ("memory", "spill")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[BlockOption]:
        """Every loop with every loop directly inside it and every divisor of its trip count."""
        for path, loop, _ in loops_of(kernel):
            for position, node in enumerate(loop.body):
                if isinstance(node, Loop):
                    for factor in mergeable_factors(loop):
                        yield BlockOption(path, position, loop.var.name, node.var.name, loop.trips, factor)

    def edit(self, kernel: Kernel, option: BlockOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        child = loop.body[option.child] if option.child < len(loop.body) else None
        if not isinstance(child, Loop):
            raise RewriteError("option", "there is no loop at that position")
        if option.factor < loop.trips:
            _, loop = split_loop(kernel, loop, option.factor)
        _, inner = push_inside(kernel, loop, child)
        hoist_everything(kernel, inner)


def hoist_everything(kernel: Kernel, loop: Loop) -> None:
    """Take everything out of a loop that does not depend on it.

    Raises:
        RewriteError: if nothing can be.
    """
    invariant = invariant_instrs(loop)
    if not invariant:
        raise RewriteError("option", f"iterations of {loop.var.name} share nothing")
    extract(kernel, loop, writers_closure(loop, invariant), keep_loop=False)
