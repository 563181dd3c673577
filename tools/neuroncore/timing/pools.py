"""SBUF as a limit of overlap: in a crowded loop nest, a tile must find free bytes before it can be written.

Where buffers in the usual number of copies fit beside what is resident, memory limits nothing. Where they do not, every
new tile waits for bytes that a dead one left, in program order: mamba, with six 28 KiB tiles in 176 KiB, waits at nearly
every step; gqa's row blocks, with 128 KiB of values resident, overlap little. Bytes are
taken in the order in which they were freed; only large tiles need a slot of their own size.
"""

from __future__ import annotations

import dataclasses
import heapq

from ..compiler.liveness import Lifetime
from ..compiler.program import Nest, Op, Program
from ..ir import Buffer, LoopVar, Tensor
from ..machine import Machine

_MAX_PIECES = 192
LARGE_TILE_SHARE = 8
"""Tiles of at least this fraction of SBUF are allocated and freed whole, smaller ones unit by unit."""

_FEW = 8
"""Tiles of which fewer than this fit are placed in slots of their own size class."""

_SMALLEST = 256
"""Bytes per partition of a tile below which it is not followed."""


class Pool:
    """Free bytes per partition, in pieces, each with the time from which it is free."""

    __slots__ = ("pieces", "live", "capacity")

    def __init__(self, capacity: float) -> None:
        """All of it free from time 0."""
        self.capacity = capacity
        self.pieces: list[tuple[float, float]] = [(0.0, capacity)]
        self.live = 0.0

    def allocate(self, size: float) -> float:
        """Take `size` bytes; returns the time from which they are free."""
        return self._take(self.slot(size))

    def _take(self, size: float) -> float:
        self.live += size
        taken, time = 0.0, 0.0
        pieces = self.pieces
        while pieces and taken < size:
            time, room = heapq.heappop(pieces)
            taken += room
        if taken > size:
            heapq.heappush(pieces, (time, taken - size))
        return time

    def slot(self, size: float) -> float:
        """Bytes that a tile really takes: large tiles leave remainders that nothing else can use."""
        fitting = int(self.capacity // size) if size > 0 else 0
        return self.capacity / fitting if 0 < fitting < _FEW else size

    def free(self, size: float, time: float) -> None:
        """Give bytes back from a time on."""
        self._give(self.slot(size), time)

    def _give(self, size: float, time: float) -> None:
        self.live -= size
        heapq.heappush(self.pieces, (time, size))
        if len(self.pieces) > _MAX_PIECES:
            ordered = sorted(self.pieces)
            self.pieces = [
                (t1, s0 + s1) for (_, s0), (t1, s1) in zip(ordered[::2], ordered[1::2], strict=False)
            ]
            if len(ordered) % 2:
                self.pieces.append(ordered[-1])

    def skip(self, growth: float, count: int, time: float) -> None:
        """Account for iterations that were not simulated and each changed the live bytes by `growth`."""
        change = growth * count
        if change >= _SMALLEST:
            self._take(change)
        elif change <= -_SMALLEST:
            self._give(-change, time)

    def shift(self, since: float, by: float) -> None:
        """Move times that are newer than `since`."""
        self.pieces = [(t + by if t > since else t, s) for t, s in self.pieces]
        heapq.heapify(self.pieces)


@dataclasses.dataclass(eq=False, slots=True)
class Death:
    """Where a tensor's tiles die: after this op, when the loops are in their last iteration.

    Attributes:
        tensor: whose tiles.
        loops: loops of the op inside the tensor's scope over which it reads the same tile again.
    """

    tensor: Tensor
    loops: tuple[LoopVar, ...]


def crowded_nests(
    program: Program, lives: dict[Tensor, Lifetime], copies: dict[Tensor, int], machine: Machine
) -> tuple[dict[Nest, float], dict[Tensor, Nest], dict[Op, list[Death]]]:
    """Outermost loops whose buffers do not all fit: bytes for their tiles, the tensors concerned, and their deaths."""
    capacity = float(machine.sbuf_usable_bytes)
    tops = [node for node in program.body if isinstance(node, Nest)]
    place = {node: k for k, node in enumerate(program.body)}
    rooms: dict[Nest, float] = {}
    managed: dict[Tensor, Nest] = {}
    sbuf = [life for t, life in lives.items() if t.buffer is Buffer.SBUF and t.shape[t.par_dim] > 1]
    for nest in tops:
        resident = demand = 0.0
        inside: list[Lifetime] = []
        for life in sbuf:
            where = [place[u.loops[0] if u.loops else u.op] for u in life.uses]
            if life.scope and life.scope[0] is nest:
                size = life.footprint_bytes()
                demand += size * copies[life.tensor]
                if size >= _SMALLEST:
                    inside.append(life)
                resident += program.kept.get(life.tensor, 0.0) / 2
            elif min(where) <= place[nest] <= max(where):
                resident += program.kept.get(life.tensor, float(life.footprint_bytes()))
        if resident + demand > capacity:
            rooms[nest] = max(capacity - resident, 0.0)
            managed.update((life.tensor, nest) for life in inside)
    deaths: dict[Op, list[Death]] = {}
    for tensor in managed:
        life = lives[tensor]
        repeated = [u for u in life.uses if not u.op.once]
        last = (repeated or life.uses)[-1]
        used = set(last.access.loops()) | last.op.once
        loops = tuple(n.var for n in life.inner_loops(last) if n.var not in used)
        deaths.setdefault(last.op, []).append(Death(tensor, loops))
    return rooms, managed, deaths
