"""Drop instructions whose results nobody reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Kernel, clone
from .dataflow import drop_dead
from .refusal import RewriteError
from .rewrite import Option, Rewrite


@dataclasses.dataclass(frozen=True)
class DeadOption(Option):
    """All dead instructions of a kernel.

    Attributes:
        count: how many there are.
    """

    count: int

    def describe(self) -> str:
        """See `Option`."""
        return f"Drop {self.count} instruction{'s' if self.count > 1 else ''} whose results are never read"


class DropDeadCode(Rewrite[DeadOption]):
    """Remove loads and computations that lead to no output."""

    name = "drop-dead-code"
    summary = "Loads and computations whose results are never read cost time for nothing"
    targets = ("memory", "vector", "scalar", "tensor")

    def find(self, kernel: Kernel) -> Iterator[DeadOption]:
        """One option, if there is anything to drop."""
        count = drop_dead(clone(kernel))
        if count:
            yield DeadOption(count)

    def edit(self, kernel: Kernel, option: DeadOption) -> None:
        """See `Rewrite`."""
        if not drop_dead(kernel):
            raise RewriteError("option", "every instruction's result is read")
