"""When a loop has settled: successive iterations, or groups of up to four, advance every clock alike."""

from __future__ import annotations

import dataclasses

MIN_HEAD = 3
MAX_HEAD = 24
"""Iterations that are observed before a loop may be skipped, and after which it is in any case."""

WORTH_SKIPPING = 128
"""Executions that skipping must save: short loops are simulated to the end."""

_LONGEST_CYCLE = 4
_TOLERANCE = 0.005
"""Iterations after which a steady loop may repeat its pattern, and the relative difference that counts as the same."""


@dataclasses.dataclass(slots=True)
class Mark:
    """The clocks after one iteration.

    Attributes:
        clocks: ends of the engines' instruction streams and of the two DMA rings.
        queues: what `DmaQueues.marks` says.
        worked: time every lane has worked, and output stores so far.
        live: bytes that tiles hold of a crowded memory.
    """

    clocks: list[float]
    queues: list[float]
    worked: list[float]
    live: float


def advance(before: Mark, after: Mark) -> float:
    """How far the busiest clock moved between two marks."""
    return max(b - a for a, b in zip(before.clocks, after.clocks, strict=True))


def settled_cycle(marks: list[Mark]) -> int:
    """Iterations after which the progress repeats; 0 while it does not, the longest once patience is over."""
    if len(marks) >= MAX_HEAD:
        return _LONGEST_CYCLE
    for cycle in range(1, _LONGEST_CYCLE + 1):
        if len(marks) < 2 * cycle + 1:
            return 0
        whole = advance(marks[-1 - cycle], marks[-1])
        if whole <= 0:
            return 0
        if all(abs(_step(marks, k) - _step(marks, k + cycle)) <= _TOLERANCE * whole for k in range(cycle)):
            return cycle
    return 0


def _step(marks: list[Mark], back: int) -> float:
    return advance(marks[-2 - back], marks[-1 - back])
