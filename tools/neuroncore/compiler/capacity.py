"""What does not fit into SBUF: which arrays are streamed, which are spilled, and how much of them stays.

At every point of the program, in program order, the bytes per partition of all live arrays are added up, dead values
freed at once, nothing computed in place. Where they exceed usable SBUF, arrays leave by the distance of their next use:
those that live across outer loops before those of inner ones, and among equals

1. Loads that would be read again in fewer transfers than a spill costs are read again (lora's second factor is read in
   both row blocks although its 48 KiB would fit beside the products that are being spilled).
   Values that are used in one more pass only are elastic: what fits stays, the rest is saved once and reloaded once.
   bmm_softmax keeps 152.6 of 512 KiB per batch element, which is 176 less what its loop bodies need; gqa keeps none.
2. If that is not enough, arrays that are used in several passes are streamed whole, loads before accumulators before
   other results. A load is read again in every pass
   (matmul reads 160 KiB of weights again in each of 32 row blocks, exact to the byte, although all but 9 KiB would
   fit); a result is saved once and reloaded in every later pass (transposed activations of swiglu and lora, exact); an
   accumulator is saved at every update and reloaded for the next (lora, within 2 %).
3. An array of a few very large tiles leaves tile by tile: mamba spills one of its two 28 KiB accumulators.

Tensors on one partition are charged nothing: charging [1, F] rows makes mamba spill twice too much.
"""

from __future__ import annotations

import dataclasses
import math

from ..errors import NKIError
from ..ir import Buffer, Tensor
from ..machine import Machine
from .liveness import Lifetime, Use, lifetimes, touched_bytes
from .program import Kind, Nest, Node, Op, Program, Role
from .spilling import Leaving, spill

_SLICE_SHARE = 4
"""A slice that repeats over inner loops is kept for them if it takes at most this fraction of SBUF."""
_LARGE_TILE_SHARE = 8
"""Tiles of at least this fraction of SBUF leave one by one."""
_WORTH_STREAMING_SHARE = 64
"""Arrays used in several passes leave only if they take at least this fraction of SBUF: constants stay."""
_ROW_GRID = 32
"""Partitions from one on which an engine can start to the next."""
_SMALLEST = 256
"""Bytes per partition of a tile below which nothing is worth a spill: row statistics stay."""


def fit(program: Program, machine: Machine) -> None:
    """Insert the reloads and spills that make the program fit.

    Raises:
        NKIError: if an op needs more at once than there is.
    """
    _Fitting(program, machine).run()


def psum_overflow(program: Program, machine: Machine) -> NKIError | None:
    """Why a program keeps more matmul results in PSUM than it holds, or None: nothing is ever spilled from there.

    Asked of what the kernel itself has put there, before the compiler adds to it. The error names the line where most is
    live.
    """
    capacity = int(machine.psum_banks) * int(machine.psum_bank_bytes)
    most, op = _most_live(program, [t for t in lifetimes(program).values() if t.tensor.buffer is Buffer.PSUM])
    if op is None or most <= capacity:
        return None
    return NKIError(
        "psum_capacity_exceeded",
        f"{most / 1024:.4g} KiB per partition of matmul results are kept in psum at once, which has "
        f"{capacity / 1024:.0f}, in {machine.psum_banks:g} banks",
        line=op.line,
        remedy="copy results to sbuf before starting others, or block the loops so that fewer are open at a time",
    )


def check_rows(program: Program, machine: Machine) -> None:
    """Refuse kernels that keep more on single partitions than the four have on which engines can read one.

    They are no part of `fit`, which takes their room for nothing.

    Raises:
        NKIError: where most is live, if that is too much.
    """
    capacity = int(machine.partitions) // _ROW_GRID * int(machine.sbuf_usable_bytes)
    rows = [
        life
        for life in lifetimes(program).values()
        if life.tensor.buffer is Buffer.SBUF and life.tensor.shape[life.tensor.par_dim] == 1
    ]
    most, op = _most_live(program, rows)
    if op is not None and most > capacity:
        raise NKIError(
            "sbuf_capacity_exceeded",
            f"{most / 1024:.4g} KiB of tiles on one partition are kept at once; the partitions that engines can read "
            f"alone have {capacity / 1024:.0f} KiB",
            line=op.line,
            remedy="load single rows where they are used, or spread them over partitions",
        )


def _most_live(program: Program, lives: list[Lifetime]) -> tuple[int, Op | None]:
    """The most bytes per partition of some tensors that are live together, and the op where that is.

    A tensor takes the bytes of what one iteration of its scope touches, from its first to its last use; through loops
    that carry it, all the time.
    """
    spans: dict[Nest, tuple[int, int]] = {}
    for position, (_, loops) in enumerate(program.walk()):
        for nest in loops:
            spans[nest] = (spans.get(nest, (position, 0))[0], position)
    changes: dict[int, int] = {}
    for life in lives:
        carrying = [spans[inner[0]] for use in life.uses if (inner := life.inner_loops(use))]
        used = [(use.position, use.position) for use in (life.uses[0], life.uses[-1])]
        first = min(start for start, _ in (*used, *carrying))
        last = max(end for _, end in (*used, *carrying))
        changes[first] = changes.get(first, 0) + life.footprint_bytes()
        changes[last + 1] = changes.get(last + 1, 0) - life.footprint_bytes()
    live = most = where = 0
    for position in sorted(changes):
        live += changes[position]
        if live > most:
            most, where = live, position
    return most, next((op for k, (op, _) in enumerate(program.walk()) if k == where), None)


@dataclasses.dataclass(eq=False, slots=True)
class _Array:
    """A tensor as a candidate for leaving SBUF.

    Attributes:
        life: uses and scope.
        size: bytes per partition of one instance.
        first: position of the first access.
        last: position of the last access.
        passes: how often it is read through.
        accumulates: updated in place over a loop.
        loaded: all writers are loads.
        kept: bytes that stay.
        flexible: decided to stay only as far as there is room.
        streamed: decided to leave whole.
        large_tiles: number of its tiles, if they are few and large.
        slice_bytes: what remains of it once it has left, None before that is asked.
        tile_bytes: the largest tile that an op touches.
        flight: first and last position of `in_flight`, None before that is asked.
        dies: position after which it is dead although loops around it go on, its readers being hoisted out of them.
    """

    life: Lifetime
    size: int
    passes: int
    accumulates: bool
    loaded: bool
    kept: float
    flexible: bool = False
    streamed: bool = False
    large_tiles: int = 0
    dies: int = 1 << 60
    slice_bytes: float | None = None
    tile_bytes: int = 0
    flight: tuple[int, int] | None = None

    @property
    def depth(self) -> int:
        """Loops that it is private to."""
        return len(self.life.scope)

    @property
    def elastic(self) -> bool:
        """Used in one more pass only."""
        return self.passes <= 1 and not self.accumulates

    def in_flight(self, position: int) -> bool:
        """Whether a slice of it is on chip at a point, once it has left: from its loading to its last reader."""
        if self.flight is None:
            readers = self.life.readers
            first = min(u.position for u in readers) if readers else 0
            bodies = {u.loops for u in readers}
            for u in self.life.writers:
                if u.loops in bodies:
                    first = min(first, u.position)
            self.flight = first, max((u.position for u in readers), default=-1)
        return self.flight[0] <= position <= self.flight[1]


@dataclasses.dataclass(slots=True)
class _Point:
    """A place in program order with everything that is live there."""

    op: Op
    position: int
    live: list[_Array]


class _Fitting:
    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.capacity = int(machine.sbuf_usable_bytes)
        self.lives = {t: life for t, life in lifetimes(program).items() if t.buffer is Buffer.SBUF}
        self.arrays = {t: self._array(life) for t, life in self.lives.items() if t.shape[t.par_dim] > 1}
        self.order = {op: k for k, (op, _) in enumerate(program.walk())}

    def _array(self, life: Lifetime) -> _Array:
        size = life.footprint_bytes()
        writers = {u.op for u in life.writers}
        accumulates = any(
            op.accumulates or any(a.tensor is life.tensor for a in op.tiles_read())
            for op in writers
            if op.kind is not Kind.MEMSET
        )
        loaded = all(op.transfer is not None and op.transfer.role is Role.LOAD for op in writers)
        passes = 1
        home = {u.loops for u in life.writers}
        for use in life.readers:
            if use.loops in home and not use.op.once and not any(u.op.once for u in life.writers):
                continue
            passes = max(passes, self._passes(life, use))
        array = _Array(life, size, passes, accumulates, loaded, float(size))
        array.tile_bytes = max(touched_bytes(u.access, ()) for u in life.uses)
        tile = life.tensor.free_bytes_per_partition
        if tile * _LARGE_TILE_SHARE >= self.capacity and size > tile:
            array.large_tiles = math.ceil(size / tile)
        final = life.uses[-1].loops[len(life.scope) :]
        if final and all(final[0].var in u.op.once for u in life.uses if final[0] in u.loops):
            array.dies = life.uses[-1].position
        return array

    def _pass_loops(self, life: Lifetime, use: Use) -> list[Nest]:
        """Loops over which an array is read through again, slices kept over inner loops not counted."""
        inner = life.inner_loops(use)
        found = []
        used = set(use.access.loops())
        for k, nest in enumerate(inner):
            if nest.var in used or nest.var in use.op.once:
                continue
            held = self._held(life, nest, len(life.scope) + k + 1)
            if held * _SLICE_SHARE > self.capacity or held >= life.footprint_bytes():
                found.append(nest)
        return found

    def _held(self, life: Lifetime, nest: Nest, depth: int) -> int:
        """Bytes per partition that all readers under a loop together take of an array in one of its iterations."""
        parts = {
            use.access.index: touched_bytes(use.access, use.loops[depth:])
            for use in life.readers
            if nest in use.loops
        }
        return sum(parts.values())

    def _passes(self, life: Lifetime, use: Use) -> int:
        return math.prod(nest.trips for nest in self._pass_loops(life, use))

    # -- demand -----------------------------------------------------------------------------------------------------

    def crowded(self) -> list[_Point]:
        """Every op around which more is live than fits."""
        by_region: dict[Nest | None, list[_Array]] = {}
        for array in self.arrays.values():
            region = array.life.scope[-1] if array.life.scope else None
            by_region.setdefault(region, []).append(array)
        found: list[_Point] = []
        self._visit(self.program.body, None, 0, [], by_region, found)
        return found

    def _visit(
        self, body: list[Node], region: Nest | None, depth: int, outer: list[_Array],
        by_region: dict[Nest | None, list[_Array]], found: list[_Point],
    ) -> None:  # fmt: skip
        place: dict[Node, int] = {node: k for k, node in enumerate(body)}
        born: dict[int, list[_Array]] = {}
        dying: dict[int, list[_Array]] = {}
        for array in by_region.get(region, ()):
            where = [place[u.loops[depth] if len(u.loops) > depth else u.op] for u in array.life.uses]
            born.setdefault(min(where), []).append(array)
            dying.setdefault(max(where), []).append(array)
        live: dict[_Array, None] = {}
        outside = sum(a.size for a in outer)
        inside = 0
        for k, node in enumerate(body):
            for array in born.get(k, ()):
                live[array] = None
                inside += array.size
            if isinstance(node, Nest):
                self._visit(node.body, node, depth + 1, [*outer, *live], by_region, found)
            elif outside + inside > self.capacity:
                position = self.order[node]
                here = [a for a in (*outer, *live) if position <= a.dies]
                if sum(a.size for a in here) > self.capacity:
                    found.append(_Point(node, position, here))
            for array in dying.get(k, ()):
                del live[array]
                inside -= array.size

    # -- decisions ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        crowded = self.crowded()
        if not crowded:
            return
        while True:
            worst = max(crowded, key=self._rigid)
            excess = self._rigid(worst) - self.capacity
            if excess <= 0:
                break
            victim = self._victim(worst)
            if victim is None:
                self._drop_small(worst, excess)
            elif victim.elastic:
                victim.flexible = True
            else:
                self._stream(victim, excess)
        self._keep_what_fits(crowded)
        for array in self.arrays.values():
            if array.streamed:
                self._note(array)
                self.program.kept[array.life.tensor] = (
                    0.0 if array.streamed and not array.large_tiles and not array.elastic else array.kept
                )
                spill(self.program, self._leaving(array))

    def _slice(self, array: _Array) -> float:
        """What remains in SBUF of an array that leaves: tiles in flight, and slices kept over inner loops."""
        if array.slice_bytes is not None:
            return array.slice_bytes
        largest = max(touched_bytes(u.access, ()) for u in array.life.uses)
        for use in array.life.readers:
            inner = array.life.inner_loops(use)
            passing = self._pass_loops(array.life, use)
            used = set(use.access.loops())
            for k, nest in enumerate(inner):
                if nest.var not in used and nest not in passing and nest.var not in use.op.once:
                    largest = max(largest, touched_bytes(use.access, inner[k + 1 :]))
                    break
        array.slice_bytes = float(min(array.size, largest))
        return array.slice_bytes

    def _rigid(self, point: _Point) -> float:
        """Bytes that must be there: arrays that leave by their slice, all others whole."""
        touched = {a.tensor for a in (*point.op.tiles_read(), *point.op.writes)}
        total = 0.0
        for array in point.live:
            if array.streamed:
                by_tiles = array.large_tiles and not array.loaded
                total += array.kept if by_tiles or array.in_flight(point.position) else 0.0
            elif array.flexible:
                total += self._slice(array) if array.life.tensor in touched else 0.0
            else:
                total += array.size
        return total

    def _spillable(self, array: _Array) -> bool:
        return array.tile_bytes >= _SMALLEST

    def _victim(self, point: _Point) -> _Array | None:
        candidates = [
            a
            for a in self._movable(point)
            if self._spillable(a) and (a.elastic or a.size * _WORTH_STREAMING_SHARE >= self.capacity)
        ]
        if not candidates:
            return None
        return min(candidates, key=_distance)

    def _movable(self, point: _Point) -> list[_Array]:
        """What is live around an op and could be elsewhere meanwhile."""
        touched = {a.tensor for a in (*point.op.tiles_read(), *point.op.writes)}
        return [
            a
            for a in point.live
            if not (a.streamed or a.flexible) and (a.life.tensor not in touched or a.size > self._slice(a))
        ]

    def _drop_small(self, point: _Point, excess: float) -> None:
        """Has arrays leave that are too small to be worth it, as many as it takes: nothing larger is left.

        Raises:
            NKIError: if what an op needs at once is more than there is.
        """
        for array in sorted(self._movable(point), key=_distance):
            if excess <= 0:
                return
            array.flexible = array.elastic
            if not array.elastic:
                self._stream(array, excess)
            excess -= array.size
        if excess <= 0:
            return
        need = self._rigid(point) / 1024
        if need * 1024 > self.capacity:
            raise NKIError(
                "sbuf_capacity_exceeded",
                f"{need:.0f} KiB per partition are needed at once, sbuf has {self.capacity / 1024:.0f}",
                line=point.op.line,
                remedy="work on smaller tiles, or keep fewer of them",
            )

    def _stream(self, array: _Array, excess: float) -> None:
        array.streamed = True
        if array.large_tiles and not array.loaded:
            tile = array.size / array.large_tiles
            array.kept = max(0.0, array.size - tile * math.ceil(excess / tile))
        else:
            array.kept = self._slice(array)

    def _keep_what_fits(self, crowded: list[_Point]) -> None:
        """Share what the rigid arrays leave among the elastic ones, those of inner loops first."""
        room: dict[Tensor, float] = {}
        for point in crowded:
            left = self.capacity - self._rigid(point)
            touched = {a.tensor for a in (*point.op.tiles_read(), *point.op.writes)}
            elastic = [a for a in point.live if a.flexible]
            for array in sorted(elastic, key=lambda a: (-a.depth, a.life.uses[-1].position)):
                here = self._slice(array) if array.life.tensor in touched else 0.0
                granted = min(float(array.size), max(0.0, left) + here)
                left -= granted - here
                tensor = array.life.tensor
                room[tensor] = min(room.get(tensor, float(array.size)), granted)
        for tensor, granted in room.items():
            if granted < self.arrays[tensor].size:
                self.arrays[tensor].kept = granted
                self.arrays[tensor].streamed = True

    def _leaving(self, array: _Array) -> Leaving:
        whole = not array.elastic and not array.large_tiles
        return Leaving(
            life=array.life,
            share=1.0 if whole else 1.0 - array.kept / array.size,
            accumulates=array.accumulates,
            loaded=array.loaded,
            large_tiles=array.large_tiles,
            size=array.size,
            pass_loops={use: self._pass_loops(array.life, use) for use in array.life.readers},
        )

    def _note(self, array: _Array) -> None:
        tensor = array.life.tensor
        how = "read again in every pass" if array.loaded else "saved and reloaded"
        self.program.notes.append(
            f"{tensor.name} (line {tensor.line}): {array.size / 1024:.0f} KiB per partition do not fit, "
            f"{(array.size - array.kept) / 1024:.0f} of them {how}"
        )


def _distance(array: _Array) -> tuple[int, int, int, int]:
    """Sorts arrays by who leaves first: outer loops, then plain reads and single passes by transfers per byte kept."""
    if array.loaded or array.elastic:
        transfers = array.passes - 1 if array.loaded and not array.elastic else 2
        return array.depth, 0, transfers, array.size
    return array.depth, 1 if array.accumulates else 2, array.size * array.passes, array.size
