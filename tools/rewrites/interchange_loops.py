"""Interchange a loop with a loop inside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel, Loop
from .loops import push_inside
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, loop_at, loops_of


@dataclasses.dataclass(frozen=True)
class InterchangeOption(Option):
    """Exchange a loop with one directly inside it.

    Attributes:
        loop: where the outer loop is.
        child: position of the inner loop in its body.
        name: index of the outer loop.
        child_name: index of the inner loop.
    """

    loop: Path
    child: int
    name: str
    child_name: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Run the loop over {self.child_name} outside of the loop over {self.name}"


class InterchangeLoops(Rewrite[InterchangeOption]):
    """Exchange two nested loops; what surrounds the inner one gets loops of its own."""

    name = "interchange-loops"
    summary = (
        "Exchange two nested loops so that the operand that is dearer to load changes in the outer one; values that "
        "cross over stay in SBUF blocks"
    )
    targets = ("memory", "tensor", "vector")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[InterchangeOption]:
        """Every loop with every loop directly inside it."""
        for path, loop, _ in loops_of(kernel):
            for position, node in enumerate(loop.body):
                if isinstance(node, Loop):
                    yield InterchangeOption(path, position, loop.var.name, node.var.name)

    def edit(self, kernel: Kernel, option: InterchangeOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        child = loop.body[option.child] if option.child < len(loop.body) else None
        if not isinstance(child, Loop):
            raise RewriteError("option", "there is no loop at that position")
        push_inside(kernel, loop, child)
