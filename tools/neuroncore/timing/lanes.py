"""Time on one engine, or on all DMA queues together: what is taken, and the idle gaps before the end.

The compiler schedules instructions statically and may pull one into an earlier idle gap of its engine (pure program
order makes adamw 30 % and add_rmsnorm_matmul 38 % too slow). DMA work is cut into pieces over sixteen queues, so it
fills gaps piecewise.
"""

from __future__ import annotations

_MAX_GAPS = 48


class EngineLane:
    """An in-order engine whose instruction stream the compiler has reordered: first fitting gap, else the end."""

    __slots__ = ("tail", "gaps", "placed")

    def __init__(self) -> None:
        """Idle from time 0."""
        self.tail = 0.0
        self.gaps: list[tuple[float, float]] = []
        self.placed = 0.0

    def place(self, earliest: float, duration: float) -> float:
        """Start of an instruction that cannot start before `earliest`."""
        tail = self.tail
        self.placed += duration
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

    def warp(self, since: float, shift: float) -> None:
        """Move everything after `since` by `shift`: iterations that were not simulated."""
        if self.tail <= since:
            return
        self.gaps = [(a + shift, b + shift) for a, b in self.gaps if a >= since]
        self.tail += shift


class DmaLane:
    """All DMA queues as one divisible resource: work flows into the earliest free time.

    A gap carries the share of the queues that is free in it.
    """

    __slots__ = ("tail", "gaps", "placed", "last_start")

    def __init__(self) -> None:
        """Idle from time 0."""
        self.tail = 0.0
        self.gaps: list[tuple[float, float, float]] = []
        self.placed = 0.0
        self.last_start = 0.0

    def place(self, earliest: float, work: float, shortest: float) -> tuple[float, float]:
        """Start and end of a transfer that needs `work` of all queues and takes `shortest` at least."""
        tail = self.tail
        first = -1.0
        self.placed += work
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
                    self.last_start = start
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
        self.last_start = start
        if first < 0:
            first = start
        return first, max(end, first + shortest)

    def warp(self, advance: float, work: float, skip: int) -> float:
        """Account for `skip` iterations that were not simulated, each moving the end by `advance` and doing `work`.

        Where an iteration does less than it advances, the rest stays open as a gap of partial capacity; where it does
        more, older gaps are used up. Returns the work that found no gap and went to the end.
        """
        self.placed += work * skip
        if advance >= work:
            if advance > 0:
                shift = advance * skip
                if work < 0.99 * advance:
                    self.gaps.append((self.tail, self.tail + shift, 1.0 - work / advance))
                self.tail += shift
            return 0.0
        self.tail += advance * skip
        rest = (work - advance) * skip
        kept: list[tuple[float, float, float]] = []
        for low, high, free in self.gaps:
            start = max(low, self.last_start)
            room = (high - start) * free
            if room <= 0 or rest <= 0:
                kept.append((low, high, free))
            elif room > rest:
                cut = start + rest / free
                if start > low:
                    kept.append((low, start, free))
                kept.append((cut, high, free))
                rest = 0.0
            else:
                rest -= room
                if start > low:
                    kept.append((low, start, free))
        self.gaps = kept[-_MAX_GAPS:]
        self.tail += rest
        return rest


class DmaQueues:
    """The sixteen queues, with reads of HBM and writes to it in separate rings.

    Rings do not block each other, so a read sees only half of the writes that were queued before it; the queues'
    capacity is one, whoever uses it.
    """

    __slots__ = ("all", "reads")

    def __init__(self) -> None:
        """Idle from time 0."""
        self.all = DmaLane()
        self.reads = DmaLane()

    def place(self, earliest: float, work: float, shortest: float, read: bool) -> tuple[float, float]:
        """Start and end of a transfer that needs `work` of all queues and takes `shortest` at least."""
        if read:
            self.all.place(earliest, work, 0.0)
            return self.reads.place(earliest, work, shortest)
        self.reads.place(earliest, work / 2, 0.0)
        return self.all.place(earliest, work, shortest)

    def marks(self) -> list[float]:
        """Ends of both rings, and the work done in each."""
        return [self.all.tail, self.reads.tail, self.all.placed, self.reads.placed]

    def warp(self, before: list[float], now: list[float], cycle: int, skip: int) -> tuple[float, float]:
        """Account for `skip` iterations like the last `cycle` ones, given by marks.

        Returns the work that found no room beside the simulated one, and when the queues are done with it.
        """
        step = [(b - a) / cycle for a, b in zip(before, now, strict=True)]
        over_all = self.all.warp(step[0], step[2], skip)
        over_reads = self.reads.warp(step[1], step[3], skip)
        return max(over_all, over_reads), max(
            self.all.tail if over_all else 0.0, self.reads.tail if over_reads else 0.0
        )
