"""Where tensors live while a program runs: instances, buffer copies, and the units in which they are tracked.

One iteration of a tensor's scope holds one instance of it. Consecutive instances rotate over a few physical copies;
an instance may start to be written where the instance that used the same copy before has been read, unit by unit. A
unit is the largest piece that no access of the program cuts through, so a 28 KiB row that is consumed in 2 KiB slices
is filled and released slice by slice.
"""

from __future__ import annotations

import dataclasses
import math

from ..compiler.liveness import Lifetime, Use, lifetimes
from ..compiler.program import Engine, Nest, Op, Program, walk
from ..ir import Access, Affine, Buffer, LoopKind, LoopVar, Tensor
from ..machine import Machine
from .costs import busy_ns, transfer_ns
from .pools import LARGE_TILE_SHARE, Death, crowded_nests

_MOST_COPIES = 16
"""Instances that are kept of a tile at most, however fast its loop."""

_MAX_UNITS_PER_ACCESS = 128
"""Accesses that would touch more units than this see the dimension as a whole: precision bought at a bounded cost."""


@dataclasses.dataclass(eq=False, slots=True)
class Storage:
    """A tensor's place and the state of its units during a run.

    Attributes:
        tensor: the tensor.
        scope: innermost loop it is private to, None at top level.
        copies: instances that may exist at once.
        granules: elements per unit along every dimension.
        weights: unit number step of every dimension.
        ready: per unit, when its value is there and which lane made it.
        busy_until: per unit, when the current instance's last access ends.
        earlier: per unit, the same of the instances in the other copies, oldest first.
        stamp: per unit, the scope iteration of the current instance.
        last: the latest write to any unit.
        unit_bytes: bytes per partition of an allocation in a pool.
        pool: the nest whose free bytes its tiles must find, None where memory limits nothing.
        span: units that are allocated together: one, or all of a large tile.
        units_per_span: units of such a tile.
        held: allocations that hold bytes of the pool: how many of their units are still to die, and since when.
    """

    tensor: Tensor
    scope: Nest | None
    copies: int
    granules: tuple[int, ...]
    weights: tuple[int, ...]
    scope_vars: frozenset[LoopVar]
    ready: dict[int, tuple[float, int]] = dataclasses.field(default_factory=dict)
    busy_until: dict[int, float] = dataclasses.field(default_factory=dict)
    earlier: dict[int, list[float]] = dataclasses.field(default_factory=dict)
    stamp: dict[int, int] = dataclasses.field(default_factory=dict)
    last: tuple[float, int] = (0.0, -1)
    unit_bytes: int = 0
    pool: Nest | None = None
    span: int = 1
    units_per_span: int = 1
    held: dict[int, list[float]] = dataclasses.field(default_factory=dict)

    def units(self, access: Access) -> tuple[int, list[tuple[LoopVar, int]], tuple[int, ...]]:
        """Number of the first unit as constant and loop terms, and the offsets of all units touched."""
        base = 0
        terms: dict[LoopVar, int] = {}
        offsets = [0]
        for d, expression in enumerate(access.index):
            granule, weight = self.granules[d], self.weights[d]
            size = self.tensor.shape[d]
            if granule >= size:
                continue
            if not isinstance(expression, Affine):
                count = math.ceil(size / granule)
            else:
                low, high = _axis_span(expression, access.shape)
                base += (expression.const + low) // granule * weight
                for symbol, coefficient in expression.terms.items():
                    if not isinstance(symbol, int) and symbol not in self.scope_vars:
                        terms[symbol] = terms.get(symbol, 0) + coefficient // granule * weight
                count = math.ceil((high - low + 1) / granule)
            if count > 1:
                offsets = [o + k * weight for o in offsets for k in range(count)]
        return base, list(terms.items()), tuple(offsets)

    def begin(self, unit: int, stamp: int) -> float:
        """Claim a unit for the instance of a scope iteration; returns when the copy's earlier user is done with it."""
        seen = self.stamp.get(unit)
        if seen == stamp:
            return self.busy_until.get(unit, 0.0)
        self.stamp[unit] = stamp
        if seen is None:
            self.earlier[unit] = [0.0] * (self.copies - 1)
            self.busy_until[unit] = 0.0
            return 0.0
        ring = self.earlier[unit]
        ring.append(self.busy_until[unit])
        self.busy_until[unit] = 0.0
        return ring.pop(0)

    def shift(self, since: float, by: float) -> None:
        """Move the state that is newer than `since` by iterations that were not simulated."""
        for u, (t, lane) in self.ready.items():
            if t > since:
                self.ready[u] = (t + by, lane)
        for u, t in self.busy_until.items():
            if t > since:
                self.busy_until[u] = t + by
        for ring in self.earlier.values():
            for k, t in enumerate(ring):
                if t > since:
                    ring[k] = t + by
        for place in self.held.values():
            if place[1] > since:
                place[1] += by


@dataclasses.dataclass(eq=False, slots=True)
class Layout:
    """Where everything lives.

    Attributes:
        storages: of every on-chip tensor.
        rooms: bytes per partition for the tiles of each crowded outermost loop.
        deaths: tiles that die with an op.
    """

    storages: dict[Tensor, Storage]
    rooms: dict[Nest, float]
    deaths: dict[Op, list[Death]]


def layout(program: Program, machine: Machine) -> Layout:
    """Lay out the on-chip tensors of a program."""
    lives = lifetimes(program)
    banks = _bank_shares(lives, machine)
    storages = {tensor: _storage(life, machine, banks) for tensor, life in lives.items()}
    rooms, managed, deaths = crowded_nests(
        program, lives, {t: s.copies for t, s in storages.items()}, machine
    )
    for tensor, nest in managed.items():
        storages[tensor].pool = nest
    return Layout(storages, rooms, deaths)


def _storage(life: Lifetime, machine: Machine, banks: dict[Tensor, int]) -> Storage:
    tensor = life.tensor
    scope_vars = frozenset(nest.var for nest in life.scope)
    granules = tuple(_granule(life.uses, d, scope_vars, tensor.shape[d]) for d in range(len(tensor.shape)))
    weights, step = [1] * len(granules), 1
    for d in range(len(granules) - 1, -1, -1):
        weights[d] = step
        step *= math.ceil(tensor.shape[d] / granules[d]) + 1
    innermost = life.scope[-1] if life.scope else None
    if innermost is None:
        copies = 1
    elif tensor.buffer is Buffer.PSUM:
        copies = banks[tensor]
    elif innermost.kind in (LoopKind.RANGE, LoopKind.SEQUENTIAL):
        copies = 1
    else:
        copies = max(int(machine.buffer_copies), _hiding_latency(life, innermost, machine))
    storage = Storage(tensor, innermost, copies, granules, tuple(weights), scope_vars)
    tile = tensor.free_bytes_per_partition
    if tile * LARGE_TILE_SHARE >= machine.sbuf_usable_bytes:
        storage.unit_bytes = tile
        storage.span = weights[tensor.par_dim - 1] if tensor.par_dim else step
        storage.units_per_span = math.prod(
            math.ceil(tensor.shape[d] / granules[d]) for d in range(tensor.par_dim, len(granules))
        )
    else:
        storage.unit_bytes = (
            math.prod(g for d, g in enumerate(granules) if d > tensor.par_dim) * tensor.dtype.itemsize
        )
    return storage


def _hiding_latency(life: Lifetime, scope: Nest, machine: Machine) -> int:
    """Instances that hide a tile's transfer behind the computation of its loop.

    The compiler orders instructions by its own estimate of their latency: a tile of a fast loop is fetched several
    iterations ahead, one of a slow loop while its predecessor is worked on. Evidence: silu's loop computes as long as a
    transfer takes, and has two buffers; the spilled tiles of gqa and bmm_softmax, consumed three to five times as fast,
    are not held up by their latency, nor are lora's small stores, nor AWS's trn2 matmul that loads inside its K loop.
    """
    latency = 0.0
    for use in life.uses:
        transfer = use.op.transfer
        if transfer is not None:
            completion = machine.dma_completion_ns if transfer.hbm_read else 0.0
            duration = max(transfer_ns(transfer, machine))
            latency = max(latency, machine.dma_trigger_ns + completion + duration)
    if latency <= 0:
        return 1
    pace = _compute_ns(scope, machine)
    return min(_MOST_COPIES, 1 + round(latency / pace)) if pace > 0 else _MOST_COPIES


def _compute_ns(nest: Nest, machine: Machine) -> float:
    """Work of the busiest engine in one iteration of a loop."""
    work: dict[Engine, float] = {}
    for op, loops in walk(nest.body):
        if op.transfer is None and nest.var not in op.once:
            count = math.prod(n.trips for n in loops if n.var not in op.once)
            work[op.engine] = work.get(op.engine, 0.0) + count * busy_ns(op, machine)
    return max(work.values(), default=0.0)


def _granule(uses: list[Use], d: int, scope_vars: frozenset[LoopVar], size: int) -> int:
    step = size
    widest = 1
    for use in uses:
        expression = use.access.index[d]
        if not isinstance(expression, Affine):
            return size
        low, high = _axis_span(expression, use.access.shape)
        span = high - low + 1
        widest = max(widest, span)
        step = math.gcd(step, expression.const + low, span if span < size else size)
        for symbol, coefficient in expression.terms.items():
            if not isinstance(symbol, int) and symbol not in scope_vars:
                step = math.gcd(step, coefficient)
    step = max(1, step)
    if widest / step > _MAX_UNITS_PER_ACCESS:
        return size
    return step


def _axis_span(expression: Affine, shape: tuple[int, ...]) -> tuple[int, int]:
    low = high = 0
    for symbol, coefficient in expression.terms.items():
        if isinstance(symbol, int):
            span = coefficient * (shape[symbol] - 1)
            low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high


def _bank_shares(lives: dict[Tensor, Lifetime], machine: Machine) -> dict[Tensor, int]:
    """Copies of every PSUM tensor: the eight banks divided among those used under the same loop."""
    tensors = [t for t in lives if t.buffer is Buffer.PSUM]
    need = {t: _banks(lives[t], machine) for t in tensors}
    shares: dict[Tensor, int] = {}
    for t in tensors:
        outer = lives[t].scope[:-1]
        together = sum(need[o] for o in tensors if lives[o].scope[: len(outer)] == outer)
        shares[t] = max(1, int(machine.psum_banks) // max(1, together))
    return shares


def _banks(life: Lifetime, machine: Machine) -> int:
    tile = max(1, life.tensor.free_bytes_per_partition)
    tiles = max(1, math.ceil(life.footprint_bytes() / tile))
    return tiles * max(1, math.ceil(tile / machine.psum_bank_bytes))
