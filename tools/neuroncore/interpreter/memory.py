"""Where temporaries lie during a run: one block of memory, reused as soon as nobody needs what is in it.

A temporary lives from the first run that writes it to the last that reads it, or through the whole of a loop over pieces
in which it is used but not renewed. Temporaries that live at different times share memory; the result of an element-wise
operation takes the place of an operand that dies with it.
"""

from __future__ import annotations

import dataclasses
import math

from ..ir import LoopVar
from .placement import Ref, Storage
from .schedule import Pieces, Run, Schedule, overwritable_operand, refs_of
from .semantics import MATMULS

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

Chain = tuple[Pieces, ...]


@dataclasses.dataclass(slots=True)
class Home:
    """The memory of one temporary.

    Attributes:
        storage: the temporary.
        loops: loops of which several iterations are in flight, each with a copy, outermost dimension first.
        extents: how many copies along each.
        renewed: loops over pieces every piece of which begins with a new one, outermost first.
        start: time of its first use.
        stop: time of its last use.
        offset: in bytes from the start of the block.
    """

    storage: Storage
    loops: tuple[LoopVar, ...]
    extents: tuple[int, ...]
    renewed: tuple[LoopVar, ...]
    start: int
    stop: int
    offset: int = 0

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return math.prod(self.extents) * self.storage.size

    @property
    def nbytes(self) -> int:
        """Bytes of all copies, rounded up to whole lines."""
        size = self.elements * self.storage.dtype.itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT

    def strides(self) -> dict[LoopVar, int]:
        """Elements between the copies of successive iterations of each loop."""
        out: dict[LoopVar, int] = {}
        step = self.storage.size
        for v, n in zip(reversed(self.loops), reversed(self.extents), strict=True):
            out[v] = step
            step *= n
        return out


@dataclasses.dataclass(slots=True)
class Layout:
    """All temporaries of a schedule.

    Attributes:
        homes: by storage.
        nbytes: size of the block.
        fills: storages to fill before a node of the schedule runs, by the node's identity.
    """

    homes: dict[Storage, Home]
    nbytes: int
    fills: dict[int, list[Storage]]


def lay_out(schedule: Schedule) -> Layout:
    """Find the life and the place of every temporary."""
    return _Planner(schedule).run()


@dataclasses.dataclass(slots=True)
class _Use:
    run: Run
    chain: Chain
    time: int


class _Planner:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.uses: dict[Storage, list[_Use]] = {}
        self.span: dict[int, tuple[int, int]] = {}
        self.time = 0
        self._walk(schedule.body, ())

    def _walk(self, nodes: list[Run | Pieces], chain: Chain) -> None:
        for node in nodes:
            if isinstance(node, Pieces):
                start = self.time
                self._walk(node.body, (*chain, node))
                self.span[id(node)] = start, self.time
                self.time += 1
                continue
            for storage in dict.fromkeys(ref.storage for ref, _ in refs_of(node.statement)):
                if storage.is_temporary:
                    self.uses.setdefault(storage, []).append(_Use(node, chain, self.time))
            self.span[id(node)] = self.time, self.time
            self.time += 1

    def run(self) -> Layout:
        homes: dict[Storage, Home] = {}
        fills: dict[int, list[Storage]] = {}
        for storage, uses in self.uses.items():
            home, first = self._home(storage, uses)
            homes[storage] = home
            if storage.fill is not None:
                fills.setdefault(id(first), []).append(storage)
        return Layout(homes, self._assign(homes), fills)

    def _home(self, storage: Storage, uses: list[_Use]) -> tuple[Home, Run | Pieces]:
        """The life of a temporary, and the node before which it begins."""
        chain = uses[0].chain
        for use in uses[1:]:
            n = 0
            for a, b in zip(chain, use.chain, strict=False):
                if a is not b:
                    break
                n += 1
            chain = chain[:n]
        depth = 0
        while depth < len(chain) and chain[depth].var in storage.loops:
            depth += 1
        chain = chain[:depth]

        def node(use: _Use) -> Run | Pieces:
            return use.chain[depth] if len(use.chain) > depth else use.run

        start = min(self.span[id(node(u))][0] for u in uses)
        stop = max(self.span[id(node(u))][1] for u in uses)
        sizes = {p.var: p.size for p in chain}
        varies = self.schedule.varies.get(storage, set())
        loops = [v for v in storage.loops if v in varies and sizes.get(v, v.trips) > 1]
        loops = _matrix_order(loops, uses)
        extents = tuple(sizes.get(v, v.trips) for v in loops)
        renewed = tuple(p.var for p in chain)
        return Home(storage, tuple(loops), extents, renewed, start, stop), node(uses[0])

    # -- offsets ---------------------------------------------------------------------------------------------------------
    def _assign(self, homes: dict[Storage, Home]) -> int:
        """Give every home an offset; returns the size of the block."""
        order = sorted(homes.values(), key=lambda h: (h.start, -h.nbytes))
        active: list[Home] = []
        total = 0
        for home in order:
            victim = self._replaced(home, homes)
            active = [h for h in active if h.stop >= home.start and h is not victim]
            if victim is not None:
                home.offset = victim.offset
            else:
                home.offset = _first_gap(active, home.nbytes)
            active.append(home)
            total = max(total, home.offset + home.nbytes)
        return total

    def _replaced(self, home: Home, homes: dict[Storage, Home]) -> Home | None:
        """An operand whose place a result may take: it dies as the result is born, and looks exactly like it."""
        first = self.uses[home.storage][0]
        if first.time != home.start or home.storage.fill is not None:
            return None
        statement = first.run.statement
        if len(statement.dsts) != 1 or statement.mask or "combine" in statement.attrs:
            return None
        operand = overwritable_operand(statement)
        if operand is None:
            return None
        other = homes.get(operand.storage)
        if other is None or other is home or other.stop != home.start or other.nbytes != home.nbytes:
            return None
        same = (
            operand.map == statement.dsts[0].map
            and other.loops == home.loops
            and other.extents == home.extents
        )
        whole = operand.storage.size == home.storage.size and operand.storage.dtype == home.storage.dtype
        return other if same and whole and other.renewed == home.renewed else None


def _first_gap(active: list[Home], nbytes: int) -> int:
    offset = 0
    for home in sorted(active, key=lambda h: h.offset):
        if home.offset - offset >= nbytes:
            break
        offset = max(offset, home.offset + home.nbytes)
    return offset


def _matrix_order(loops: list[LoopVar], uses: list[_Use]) -> list[LoopVar]:
    """Loops in the order in which the results of a matmul join to one matrix: batches, columns, rows."""
    statement = uses[0].run.statement
    if statement.op not in MATMULS or len(loops) < 2:
        return loops
    left = statement.args["stationary" if "stationary" in statement.args else "x"]
    right = statement.args["moving" if "moving" in statement.args else "y"]
    assert isinstance(left, Ref) and isinstance(right, Ref)

    def group(v: LoopVar) -> int:
        a, b = (v in r.map.loops or v in r.storage.loops for r in (left, right))
        return 0 if a and b else 2 if a else 1

    return sorted(loops, key=group)
