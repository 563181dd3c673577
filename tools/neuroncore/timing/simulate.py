"""The execution model: when every instruction of a program starts and ends.

One pass in program order. An instruction starts when its operands are there (plus a semaphore if another engine made
them), its destination's buffer is free, the instruction a window before it has finished, and its engine has a gap.
Loops are run for a few iterations; when successive iterations take equally long, the rest is skipped by moving the
clocks, and the last one is run again, so that cost grows with the program and not with its trip counts.
"""

from __future__ import annotations

import dataclasses
from collections import deque

from ..compiler.program import Engine, Nest, Node, Op, Program, Role
from ..ir import Access, Buffer, LoopKind, LoopVar, Tensor
from ..machine import Machine
from .costs import busy_ns, transfer_ns
from .layout import Storage, layout
from .lanes import DmaQueues, EngineLane
from .masks import Mask
from .pools import Pool

LANES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA)
_DMA = LANES.index(Engine.DMA)
_GPSIMD = LANES.index(Engine.GPSIMD)
_CLOCKS = _DMA + 2
"""Entries of a mark that are times: the engines, all DMA, DMA reads."""

_MIN_HEAD = 3
_MAX_HEAD = 24
"""Iterations that are simulated before a loop may be skipped, and after which it is in any case."""

_WORTH_SKIPPING = 128
"""Executions that skipping must save: short loops are simulated to the end."""

_LONGEST_CYCLE = 4
_STEADY = 0.005
"""Iterations after which a steady loop may repeat its pattern, and the relative difference that still counts as
repeating."""


@dataclasses.dataclass(slots=True)
class Event:
    """One executed instruction, or what a lane did in iterations that were skipped.

    Attributes:
        op: the instruction (None for skipped iterations).
        lane: index into `LANES`.
        start_ns: start.
        end_ns: end on its lane.
        busy_ns: time for which the lane worked; for DMA, all queues together.
        repeats: iterations that a skipped span stands for.
    """

    op: Op | None
    lane: int
    start_ns: float
    end_ns: float
    busy_ns: float
    repeats: int = 1


@dataclasses.dataclass(slots=True)
class Run:
    """What a simulation gives.

    Attributes:
        end_ns: when the last instruction ends, launch not included.
        events: instructions in program order, if they were recorded.
    """

    end_ns: float
    events: list[Event]


class _Step:
    """An op made ready to execute: slots instead of loop variables, numbers instead of formulas."""

    __slots__ = (
        "op", "lane", "busy", "work", "shortest", "reads", "writes", "once", "after", "last", "mask", "latency", "deaths",
        "ordered", "ports",
    )  # fmt: skip

    def __init__(self, op: Op) -> None:
        self.op = op


class _Block:
    """A chain of perfectly nested loops, run as one."""

    __slots__ = ("nests", "slots", "trips", "total", "body", "touched", "inner")

    def __init__(self) -> None:
        self.body: list[_Step | _Block] = []
        self.touched: list[tuple[Storage, bool]] = []


class Simulation:
    """One run of a program on a machine."""

    def __init__(self, program: Program, machine: Machine, record: bool = False) -> None:
        """Lay out the program's tensors and prepare its ops."""
        self.machine = machine
        plan = layout(program, machine)
        self.storages = plan.storages
        self.deaths = plan.deaths
        self.pools = {nest: Pool(room) for nest, room in plan.rooms.items()}
        self.pool: Pool | None = None
        self.slots: dict[LoopVar, int] = {}
        self.values: list[int] = []
        self.trips: list[int] = []
        self.epochs: dict[Nest, int] = {}
        self.engines = [EngineLane() for _ in range(_DMA)]
        self.dma = DmaQueues()
        self.psum_port = EngineLane()
        self.sbuf_port = EngineLane()
        self.shares_sbuf_port = bool(machine.vector_gpsimd_port_shared) and any(
            op.engine is Engine.GPSIMD for op, _ in program.walk()
        )
        self.window: deque[float] = deque(maxlen=max(1, int(machine.reorder_window)))
        self.window_full = max(1, int(machine.reorder_window))
        self.issued = 0
        self.stores = 0.0
        self.executed = 0
        self.issue = 0.0
        self.semaphore = float(machine.semaphore_ns)
        self.end = 0.0
        self.record = record
        self.events: list[Event] = []
        self.hbm: dict[Tensor, tuple[float, int]] = {}
        self.body = self._prepare(program.body)

    # -- preparation ----------------------------------------------------------------------------------------------

    def _slot(self, var: LoopVar) -> int:
        if var not in self.slots:
            self.slots[var] = len(self.values)
            self.values.append(0)
            self.trips.append(var.trips)
        return self.slots[var]

    def _prepare(self, body: list[Node]) -> list[_Step | _Block]:
        out: list[_Step | _Block] = []
        for node in body:
            out.append(self._block(node) if isinstance(node, Nest) else self._step(node))
        return out

    def _block(self, nest: Nest) -> _Block:
        block = _Block()
        chain = [nest]
        guarded = _guards(nest)
        while len(chain[-1].body) == 1 and isinstance(inner := chain[-1].body[0], Nest):
            if chain[-1].var in guarded or inner.var in guarded:
                break
            chain.append(inner)
        block.nests = chain
        block.slots = [self._slot(n.var) for n in chain]
        block.trips = [n.trips for n in chain]
        block.total = 1
        for n in chain:
            self.epochs[n] = 0
            block.total *= n.trips
        block.body = self._prepare(chain[-1].body)
        block.touched = self._touched(nest)
        return block

    def _touched(self, nest: Nest) -> list[tuple[Storage, bool]]:
        """Storages used under a loop, and whether their units are recycled or only added to by its iterations."""
        inside: set[Nest] = set()
        found: dict[Storage, bool] = {}

        def visit(n: Nest) -> None:
            inside.add(n)
            for node in n.body:
                if isinstance(node, Nest):
                    visit(node)
                else:
                    for access in (*node.tiles_read(), *node.writes):
                        if access.tensor in self.storages:
                            storage = self.storages[access.tensor]
                            moving = any(v is nest.var for v in access.loops())
                            found[storage] = found.get(storage, False) or moving

        visit(nest)
        return [(s, s.scope in inside or not moving) for s, moving in found.items()]

    def _step(self, op: Op) -> _Step:
        step = _Step(op)
        step.lane = LANES.index(op.engine) if op.engine in LANES else LANES.index(Engine.GPSIMD)
        step.once = tuple(self._slot(v) for v in op.once)
        step.after = tuple(self._slot(v) for v in op.after_first)
        step.last = tuple(self._slot(v) for v in op.last_of)
        step.mask = Mask(op.mask, op.mask_shape, self._slot) if op.mask else None
        step.latency = 0.0
        step.ports = self._ports(op)
        step.ordered = False
        step.busy = step.work = step.shortest = 0.0
        if op.transfer is not None:
            step.work, step.shortest = transfer_ns(op.transfer, self.machine, op.share)
            # A read is visible after its completion is written; a written buffer is free once its data have left.
            step.latency = float(self.machine.dma_trigger_ns)
            if op.transfer.hbm_read:
                step.latency += float(self.machine.dma_completion_ns)
        else:
            step.busy = busy_ns(op, self.machine) * op.share
        step.reads = [r for a in op.tiles_read() if (r := self._ref(a)) is not None]
        step.writes = [r for a in op.writes if (r := self._ref(a)) is not None]
        step.ordered = op.transfer is not None and op.transfer.hbm_read and any(_sequential(r[0]) for r in step.writes)
        step.deaths = [
            (self.storages[d.tensor], tuple(self._slot(v) for v in d.loops)) for d in self.deaths.get(op, ())
        ]
        return step

    def _ports(self, op: Op) -> tuple[EngineLane, ...]:
        """Memory ports that an instruction has to itself: on NC-v2 VectorE and ScalarE exclude each other from PSUM,
        VectorE and GpSimd from SBUF (architecture guide). The fourteen profiles are as well explained with it as
        without; it is what makes kernels that read PSUM from both engines slower than those that evict.
        """
        tiles = (*op.reads, *op.writes)
        found = []
        if op.engine in (Engine.VECTOR, Engine.SCALAR) and self.machine.vector_scalar_port_shared:
            if any(a.tensor.buffer is Buffer.PSUM for a in tiles):
                found.append(self.psum_port)
        if op.engine in (Engine.VECTOR, Engine.GPSIMD) and self.shares_sbuf_port:
            if any(a.tensor.buffer is Buffer.SBUF for a in tiles):
                found.append(self.sbuf_port)
        return tuple(found)

    def _ref(self, access: Access) -> tuple[Storage, int, list[tuple[int, int]], tuple[int, ...]] | None:
        storage = self.storages.get(access.tensor)
        if storage is None:
            return None
        base, terms, offsets = storage.units(access)
        return storage, base, [(self._slot(v), c) for v, c in terms], offsets

    # -- running ----------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Execute the whole program."""
        self._body(self.body)
        return Run(self.end, self.events)

    def _body(self, body: list[_Step | _Block]) -> None:
        for node in body:
            if node.__class__ is _Step:
                self._execute(node)  # type: ignore[arg-type]
            else:
                self._loop(node)  # type: ignore[arg-type]

    def _loop(self, block: _Block) -> None:
        pool = self.pools.get(block.nests[0])
        if pool is not None:
            self.pool = pool
        values, slots, trips = self.values, block.slots, block.trips
        for slot in slots:
            values[slot] = 0
        total = block.total
        issued, executed = self.issued, self.executed
        marks: list[list[float]] = []
        lives: list[float] = []
        worked: list[list[float]] = []
        done = 0
        while done < total:
            self._enter(block, done)
            self._body(block.body)
            done += 1
            if self.issued - issued < self.window_full and done < total // 2:
                # What came before the loop still holds it back through the window.
                continue
            marks.append([*(lane.tail for lane in self.engines), *self.dma.marks()])
            lives.append(self.pool.live if self.pool is not None else 0.0)
            worked.append([*(lane.placed for lane in self.engines), self.dma.all.placed, self.stores])
            if len(marks) >= _MIN_HEAD and total - done > 2:
                cycle = _steady_cycle(marks) if len(marks) < _MAX_HEAD else _LONGEST_CYCLE
                if cycle:
                    period = _advance(marks[-1 - cycle], marks[-1]) / cycle
                    skip = (total - done - 1) // cycle * cycle if len(marks) < _MAX_HEAD else total - done - 1
                    if skip * (self.executed - executed) >= _WORTH_SKIPPING * done:
                        growth = (lives[-1] - lives[-1 - cycle]) / cycle
                        self._warp(block, period, skip, cycle, marks, growth, worked)
                        done += skip
                        marks, lives, worked = [], [], []
        if pool is not None:
            self.pool = None

    def _enter(self, block: _Block, iteration: int) -> None:
        values, epochs = self.values, self.epochs
        rest = iteration
        carry = True
        for k in range(len(block.slots) - 1, -1, -1):
            n = block.trips[k]
            digit = rest % n
            rest //= n
            values[block.slots[k]] = digit
            if carry:
                epochs[block.nests[k]] += 1
            carry = carry and digit == 0

    def _warp(
        self, block: _Block, period: float, skip: int, cycle: int, marks: list[list[float]], growth: float,
        worked: list[list[float]],
    ) -> None:  # fmt: skip
        if period <= 0:
            return
        shift = period * skip
        before, now = marks[-1 - cycle], marks[-1]
        active = [k for k in range(_DMA) if now[k] > marks[0][k]]
        since = min((marks[0][k] for k in active), default=marks[0][_DMA])
        recent = min((before[k] for k in active), default=before[_DMA])
        overflow, done_at = self.dma.warp(before[_DMA:], now[_DMA:], cycle, skip)
        if overflow > 0 and active:
            # The queues had to catch up with transfers that were ahead of time so far: everybody waits for them.
            late = done_at + float(self.machine.dma_trigger_ns) - (max(now[k] for k in active) + shift)
            shift += max(0.0, min(late, overflow))
        self._account(cycle, skip, max(now[:_CLOCKS]), shift, worked)
        for k in active:
            self.engines[k].warp(before[k], shift)
        self.psum_port.warp(recent, shift)
        self.sbuf_port.warp(recent, shift)
        self.window = deque((w + shift if w > since else w for w in self.window), maxlen=self.window_full)
        if self.pool is not None:
            self.pool.shift(since, shift)
            self.pool.skip(growth, skip, max(now[:_CLOCKS]) + shift)
        for storage, recycled in block.touched:
            if recycled:
                storage.shift(since, shift)
            if storage.last[0] > since:
                storage.last = (storage.last[0] + shift, storage.last[1])
        for tensor, (t, k) in self.hbm.items():
            if t > since:
                self.hbm[tensor] = (t + shift, k)
        if self.end > recent:
            self.end += shift
        if self.issue > since:
            self.issue += shift
        for nest in block.nests:
            self.epochs[nest] += 1

    def _account(self, cycle: int, skip: int, start: float, shift: float, worked: list[list[float]]) -> None:
        """Add the work of skipped iterations to what every lane has done, and to the record."""
        early, late = worked[-1 - cycle], worked[-1]
        done = [(b - a) / cycle * skip for a, b in zip(early, late, strict=True)]
        for k in range(_DMA):
            self.engines[k].placed += done[k]
        self.stores += done[-1]
        if self.record:
            done[_GPSIMD] += done[-1] * float(self.machine.store_trigger_ns)
            for k in range(_DMA + 1):
                if done[k] > 0:
                    self.events.append(Event(None, k, start, start + shift, done[k], skip))

    def _execute(self, step: _Step) -> None:
        values = self.values
        for s in step.once:
            if values[s]:
                return
        for s in step.last:
            if values[s] != self.trips[s] - 1:
                return
        if step.after and not any(values[s] for s in step.after):
            self._alias(step)
            return
        self.executed += 1
        rows = fraction = 1.0
        if step.mask is not None:
            rows, fraction = step.mask.shares(values)
            if rows <= 0.0 or fraction <= 0.0:
                return
        lane_index = step.lane
        semaphore = self.semaphore
        t = 0.0
        for storage, base, terms, offsets in step.reads:
            for s, c in terms:
                base += c * values[s]
            ready = storage.ready
            for o in offsets:
                made = ready.get(base + o)
                if made is None:
                    made = storage.last
                when = made[0] + semaphore if made[1] != lane_index else made[0]
                if when > t:
                    t = when
        targets = []
        for storage, base, terms, offsets in step.writes:
            for s, c in terms:
                base += c * values[s]
            stamp = self.epochs[storage.scope] if storage.scope is not None else 0
            stamps, busy = storage.stamp, storage.busy_until
            if storage.pool is not None and self.pool is not None:
                when = self._room(storage, base, offsets, stamp)
                if when > t:
                    t = when
            for o in offsets:
                u = base + o
                seen = stamps.get(u)
                if seen == stamp:
                    when = busy.get(u, 0.0)
                elif seen is None:
                    stamps[u] = stamp
                    storage.earlier[u] = [0.0] * (storage.copies - 1)
                    busy[u] = 0.0
                    continue
                else:
                    ring = storage.earlier[u]
                    ring.append(busy[u])
                    when = ring.pop(0)
                    busy[u] = 0.0
                    stamps[u] = stamp
                if when > t:
                    t = when
            targets.append((storage, base, offsets))
        if lane_index == _DMA:
            op = step.op
            transfer = op.transfer
            if transfer is not None and transfer.hbm_read and transfer.scratch:
                made = self.hbm.get(op.reads[0].tensor.storage)
                if made is not None and made[0] > t:
                    t = made[0]
            if step.ordered and self.issue > t:
                # In a loop whose iterations the source orders, loads are triggered in program order.
                t = self.issue
            reads = transfer is not None and transfer.hbm_read
            start, end = self.dma.place(t, step.work * rows * fraction, step.shortest * fraction, reads)
            finish = end + step.latency
            if step.ordered:
                self.issue = start
            if transfer is not None and transfer.hbm_write and transfer.scratch:
                visible = finish + float(self.machine.dma_completion_ns)
                self.hbm[op.writes[0].tensor.storage] = (visible, lane_index)
        else:
            window = self.window
            if len(window) == self.window_full and window[0] > t:
                t = window[0]
            duration = step.busy
            if fraction != 1.0:
                duration = busy_ns(step.op, self.machine, step.op.elements * fraction) * step.op.share
            for port in step.ports:
                t = port.place(t, duration)
            start = self.engines[lane_index].place(t, duration)
            end = finish = start + duration
            window.append(finish)
            self.issued += 1
        if triggers_from_gpsimd(step.op):
            self.stores += 1
        if self.record:
            busy = end - start if lane_index != _DMA else step.work * rows * fraction
            self.events.append(Event(step.op, lane_index, start, end, busy))
            if triggers_from_gpsimd(step.op):
                trigger = float(self.machine.store_trigger_ns)
                self.events.append(Event(step.op, _GPSIMD, max(0.0, start - trigger), start, trigger))
        if finish > self.end:
            self.end = finish
        for storage, base, terms, offsets in step.reads:
            for s, c in terms:
                base += c * values[s]
            busy = storage.busy_until
            for o in offsets:
                u = base + o
                if busy.get(u, 0.0) < finish:
                    busy[u] = finish
        value = (finish, lane_index)
        for storage, base, offsets in targets:
            ready, busy = storage.ready, storage.busy_until
            for o in offsets:
                u = base + o
                ready[u] = value
                if busy.get(u, 0.0) < finish:
                    busy[u] = finish
            storage.last = value
        for storage, loops in step.deaths:
            if self.pool is not None and all(values[s] == self.trips[s] - 1 for s in loops):
                self._bury(step, storage)

    def _room(self, storage: Storage, base: int, offsets: tuple[int, ...], stamp: int) -> float:
        """When the pool has bytes for the units that begin a new instance."""
        pool, held = self.pool, storage.held
        assert pool is not None
        latest = 0.0
        for o in offsets:
            u = base + o
            if storage.stamp.get(u) == stamp:
                continue
            part = u // storage.span
            place = held.get(part)
            if place is not None:
                if storage.span > 1:
                    # A further unit of a tile that has its place already.
                    latest = max(latest, place[1])
                    continue
                pool.free(storage.unit_bytes, storage.busy_until.get(u, 0.0))
            time = pool.allocate(storage.unit_bytes)
            held[part] = [storage.units_per_span, time]
            latest = max(latest, time)
        return latest

    def _bury(self, step: _Step, storage: Storage) -> None:
        """Give the bytes of the tiles that an op used last back to the pool."""
        pool, values, held = self.pool, self.values, storage.held
        assert pool is not None
        for refs in (step.reads, step.writes):
            for other, base, terms, offsets in refs:
                if other is not storage:
                    continue
                for s, c in terms:
                    base += c * values[s]
                for o in offsets:
                    part = (base + o) // storage.span
                    place = held.get(part)
                    if place is None:
                        continue
                    place[0] -= 1
                    if place[0] <= 0:
                        del held[part]
                        pool.free(storage.unit_bytes, storage.busy_until.get(base + o, 0.0))

    def _alias(self, step: _Step) -> None:
        """The first partial of a reduction over loops: the destination is the partial itself."""
        values = self.values
        latest = (0.0, step.lane)
        for storage, base, terms, offsets in step.reads:
            if storage is step.writes[0][0]:
                continue
            for s, c in terms:
                base += c * values[s]
            for o in offsets:
                made = storage.ready.get(base + o, storage.last)
                if made[0] > latest[0]:
                    latest = made
        for storage, base, terms, offsets in step.writes:
            for s, c in terms:
                base += c * values[s]
            stamp = self.epochs[storage.scope] if storage.scope is not None else 0
            for o in offsets:
                u = base + o
                if storage.stamp.get(u) != stamp:
                    ring = storage.earlier.setdefault(u, [0.0] * (storage.copies - 1))
                    ring.append(storage.busy_until.get(u, 0.0))
                    ring.pop(0)
                    storage.stamp[u] = stamp
                storage.ready[u] = latest
                storage.busy_until[u] = latest[0]
            storage.last = latest


def _advance(before: list[float], after: list[float]) -> float:
    """How far the busiest lane moved between two marks."""
    return max(b - a for a, b in zip(before[:_CLOCKS], after[:_CLOCKS], strict=True))


def _sequential(storage: Storage) -> bool:
    return storage.scope is not None and storage.scope.kind in (LoopKind.RANGE, LoopKind.SEQUENTIAL)


def _steady_cycle(marks: list[list[float]]) -> int:
    """Number of iterations after which the lanes' progress repeats, 0 while it does not."""
    for cycle in range(1, _LONGEST_CYCLE + 1):
        needed = 2 * cycle + 1
        if len(marks) < needed:
            return 0
        recent = _advance(marks[-1 - cycle], marks[-1])
        if recent <= 0:
            return 0
        if all(
            abs(_advance(marks[-2 - k], marks[-1 - k]) - _advance(marks[-2 - k - cycle], marks[-1 - k - cycle]))
            <= _STEADY * recent
            for k in range(cycle)
        ):
            return cycle
    return 0


def _guards(nest: Nest) -> set[LoopVar]:
    """Loop variables that decide whether some op under a loop runs."""
    found: set[LoopVar] = set()
    for node in nest.body:
        if isinstance(node, Nest):
            found |= _guards(node)
        else:
            found.update(node.once)
            found.update(node.after_first)
            found.update(node.last_of)
    return found


def triggers_from_gpsimd(op: Op) -> bool:
    """Whether an op is an output store, which GpSimd triggers (spills are not: the profiles' GpSimd times)."""
    return op.transfer is not None and op.transfer.role is Role.STORE and not op.transfer.scratch
