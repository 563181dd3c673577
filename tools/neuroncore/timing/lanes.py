"""Time on one engine, or on all DMA queues together: what is taken, and the idle gaps before the end.

The compiler schedules instructions statically and may pull one into an earlier idle gap of its engine (pure program
order makes adamw 30 % and add_rmsnorm_matmul 38 % too slow). DMA work is cut into pieces over sixteen queues, so it
fills gaps piecewise.
"""

from __future__ import annotations

_MAX_GAPS = 48


class EngineLane:
    """An in-order engine whose instruction stream the compiler has reordered: first fitting gap, else the end."""

    __slots__ = ("tail", "gaps")

    def __init__(self) -> None:
        """Idle from time 0."""
        self.tail = 0.0
        self.gaps: list[tuple[float, float]] = []

    def place(self, earliest: float, duration: float) -> float:
        """Start of an instruction that cannot start before `earliest`."""
        tail = self.tail
        if earliest < tail:
            gaps = self.gaps
            for k in range(len(gaps)):
                low, high = gaps[k]
                if high <= earliest:
                    continue
                start = low if low > earliest else earliest
                if start + duration <= high:
                    replacement = []
                    if start > low:
                        replacement.append((low, start))
                    if start + duration < high:
                        replacement.append((start + duration, high))
                    gaps[k : k + 1] = replacement
                    return start
            self.tail = tail + duration
            return tail
        if earliest > tail:
            self.gaps.append((tail, earliest))
            if len(self.gaps) > _MAX_GAPS:
                del self.gaps[0]
        self.tail = earliest + duration
        return earliest

    def warp(self, since: float, shift: float, idle_share: float) -> None:
        """Move everything after `since` by `shift`: iterations that were not simulated."""
        if self.tail <= since:
            return
        self.gaps = [(a + shift, b + shift) for a, b in self.gaps if a >= since]
        self.tail += shift


class DmaLane:
    """All DMA queues as one divisible resource: work flows into the earliest free time.

    A gap carries the share of the queues that is free in it.
    """

    __slots__ = ("tail", "gaps")

    def __init__(self) -> None:
        """Idle from time 0."""
        self.tail = 0.0
        self.gaps: list[tuple[float, float, float]] = []

    def place(self, earliest: float, work: float, shortest: float) -> tuple[float, float]:
        """Start and end of a transfer that needs `work` of all queues and takes `shortest` at least."""
        tail = self.tail
        first = -1.0
        if earliest < tail and self.gaps:
            gaps = self.gaps
            k = 0
            while k < len(gaps):
                low, high, free = gaps[k]
                if high <= earliest:
                    k += 1
                    continue
                start = low if low > earliest else earliest
                room = (high - start) * free
                if first < 0:
                    first = start
                if room > work:
                    end = start + work / free
                    replacement = [(end, high, free)]
                    if start > low:
                        replacement.insert(0, (low, start, free))
                    gaps[k : k + 1] = replacement
                    return first, max(end, first + shortest)
                work -= room
                if start > low:
                    gaps[k] = (low, start, free)
                    k += 1
                else:
                    del gaps[k]
        start = tail if tail > earliest else earliest
        if start > tail:
            self.gaps.append((tail, start, 1.0))
            if len(self.gaps) > _MAX_GAPS:
                del self.gaps[0]
        end = start + work
        self.tail = end
        if first < 0:
            first = start
        return first, max(end, first + shortest)

    def warp(self, since: float, shift: float, idle_share: float) -> None:
        """Move everything after `since` by `shift`; the skipped span stays open for what it left idle."""
        if self.tail <= since:
            if shift > 0:
                self.gaps.append((max(self.tail, since), since + shift, 1.0))
                self.tail = since + shift
            return
        kept = [g for g in self.gaps if g[0] < since]
        moved = [(a + shift, b + shift, f) for a, b, f in self.gaps if a >= since]
        if idle_share > 0.01:
            kept.append((since, since + shift, idle_share))
        self.gaps = (kept + moved)[-_MAX_GAPS:]
        self.tail += shift
