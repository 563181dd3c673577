"""The execution model: when every instruction of a program starts and ends.

One pass in program order. An instruction starts when its operands are there (plus a semaphore if another engine made
them), its destination's buffer is free, the instruction a window before it has finished, and its engine has a gap.
Loops run for a few iterations; when successive ones take equally long, the rest is skipped by moving the clocks, and
the last one is run again, so that cost grows with the program and not with its trip counts.
"""

from __future__ import annotations

import dataclasses
from collections import deque

from ..compiler.program import Engine, Nest, Op, Program, Role
from ..ir import Buffer, Tensor
from ..machine import Machine
from .costs import busy_ns, masked_transfer_ns, overhead_ns
from .lanes import DmaQueues, EngineLane
from .layout import Storage, layout
from .masks import Left
from .pools import Pool
from .steady import MIN_HEAD, WORTH_SKIPPING, Mark, advance, settled_cycle
from .steps import DMA, GPSIMD, LANES, Block, Preparation, Reference, Step

__all__ = ["LANES", "Event", "Run", "Simulation", "triggers_from_gpsimd"]

WHOLE = Left(1.0, 1.0, 1.0, 1.0)
"""Of a tile without a mask."""


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
        orphans: reads of tiles that nothing had written: a lost dependence would turn the model into a maximum over
            engines, so tests hold this at zero.
    """

    end_ns: float
    events: list[Event]
    orphans: int


class Simulation:
    """One run of a program on a machine."""

    def __init__(self, program: Program, machine: Machine, record: bool = False) -> None:
        """Lay out the program's tensors and prepare its ops."""
        plan = layout(program, machine)
        prepared = Preparation(program, plan, machine)
        self.machine = machine
        self.body = prepared.body
        self.trips = prepared.trips
        self.values = [0] * len(prepared.trips)
        self.epochs: dict[Nest, int] = {}
        self.pools = {nest: Pool(room) for nest, room in plan.rooms.items()}
        self.pool: Pool | None = None
        self.engines = [EngineLane() for _ in range(DMA)]
        self.dma = DmaQueues()
        self.ports = [EngineLane(), EngineLane()]
        self._assign_ports(self.body, self._gpsimd_computes(program))
        self.overheads = [overhead_ns(engine, machine) for engine in LANES]
        self.window_size = max(1, int(machine.reorder_window))
        self.window: deque[float] = deque(maxlen=self.window_size)
        self.semaphore = float(machine.semaphore_ns)
        self.hbm: dict[Tensor, float] = {}
        # What is read from HBM after it was written there, be it scratch, a spill or an output, has to arrive first.
        self.read_back = {
            a.tensor.storage for op, _ in program.walk() for a in op.reads if not a.tensor.buffer.on_chip
        }
        self.issued = self.executed = self.orphans = 0
        self.stores = 0.0
        self.last_ordered = 0.0
        self.end = 0.0
        self.record = record
        self.events: list[Event] = []

    def run(self) -> Run:
        """Execute the whole program."""
        self._nodes(self.body)
        return Run(self.end, self.events, self.orphans)

    # -- memory ports -------------------------------------------------------------------------------------------------

    def _gpsimd_computes(self, program: Program) -> bool:
        shared = bool(self.machine.vector_gpsimd_port_shared)
        return shared and any(op.engine is Engine.GPSIMD for op, _ in program.walk())

    def _assign_ports(self, body: list[Step | Block], gpsimd: bool) -> None:
        """Say which memory port an instruction has to itself.

        On NC-v2 VectorE and ScalarE exclude each other from PSUM, VectorE and GpSimd from SBUF (architecture guide).
        The fourteen profiles are as well explained with it as without; it is what makes kernels that read PSUM from
        both engines slower than those that evict.
        """
        for node in body:
            if isinstance(node, Block):
                self._assign_ports(node.body, gpsimd)
                continue
            op = node.op
            buffers = {a.tensor.buffer for a in (*op.reads, *op.writes)}
            found = []
            psum = op.engine in (Engine.VECTOR, Engine.SCALAR) and Buffer.PSUM in buffers
            if psum and self.machine.vector_scalar_port_shared:
                found.append(0)
            if gpsimd and op.engine in (Engine.VECTOR, Engine.GPSIMD) and Buffer.SBUF in buffers:
                found.append(1)
            node.exclusive = tuple(found)

    # -- loops ----------------------------------------------------------------------------------------------------------

    def _nodes(self, body: list[Step | Block]) -> None:
        for node in body:
            if isinstance(node, Step):
                self._execute(node)
            else:
                self._loop(node)

    def _loop(self, block: Block) -> None:
        pool = self.pools.get(block.nests[0])
        if pool is not None:
            self.pool = pool
        issued, executed = self.issued, self.executed
        marks: list[Mark] = []
        total, done = block.total, 0
        while done < total:
            self._enter(block, done)
            self._nodes(block.body)
            done += 1
            if self.issued - issued < self.window_size and done < total // 2:
                # What came before the loop still holds it back through the window.
                continue
            if block.masks and done > 1 and not block.alike(done - 1, self.values):
                # This iteration did not do what the one before did: progress is measured anew.
                marks = []
            marks.append(self._mark())
            if len(marks) < MIN_HEAD or total - done <= 2:
                continue
            cycle = settled_cycle(marks)
            left = total - done - 1
            if block.masks:
                left = min(left, block.alike(done, self.values))
            skip = left // cycle * cycle if cycle else 0
            if skip * (self.executed - executed) >= WORTH_SKIPPING * done and skip:
                self._skip(block, skip, cycle, marks)
                done += skip
                marks = []
        if pool is not None:
            self.pool = None

    def _enter(self, block: Block, iteration: int) -> None:
        """Set the loop variables, and begin a new iteration of every loop that moves."""
        rest, moves = iteration, True
        for nest, slot in zip(reversed(block.nests), reversed(block.slots), strict=True):
            rest, digit = divmod(rest, nest.trips)
            self.values[slot] = digit
            if moves:
                self.epochs[nest] = self.epochs.get(nest, 0) + 1
            moves = moves and digit == 0

    def _mark(self) -> Mark:
        queues = self.dma.marks()
        return Mark(
            clocks=[*(lane.tail for lane in self.engines), *queues[:2]],
            queues=queues,
            worked=[*(lane.placed for lane in self.engines), self.dma.all.placed, self.stores],
            live=self.pool.live if self.pool is not None else 0.0,
        )

    def _skip(self, block: Block, skip: int, cycle: int, marks: list[Mark]) -> None:
        """Move the clocks by iterations like the last ones."""
        first, before, now = marks[0], marks[-1 - cycle], marks[-1]
        period = advance(before, now) / cycle
        if period <= 0:
            return
        shift = period * skip
        active = [k for k in range(DMA) if now.clocks[k] > first.clocks[k]]
        since = min((first.clocks[k] for k in active), default=first.clocks[DMA])
        recent = min((before.clocks[k] for k in active), default=before.clocks[DMA])
        overflow, done_at = self.dma.warp(before.queues, now.queues, cycle, skip)
        if overflow > 0 and active:
            # The queues had to catch up with transfers that were ahead of time so far: everybody waits for them.
            late = done_at + float(self.machine.dma_trigger_ns) - (max(now.clocks[k] for k in active) + shift)
            shift += max(0.0, min(late, overflow))
        self._account(cycle, skip, shift, before, now)
        for k in active:
            self.engines[k].warp(before.clocks[k], shift)
        for port in self.ports:
            port.warp(recent, shift)
        self.window = deque((w + shift if w > since else w for w in self.window), maxlen=self.window_size)
        if self.pool is not None:
            self.pool.shift(since, shift)
            self.pool.skip((now.live - before.live) / cycle, skip, max(now.clocks) + shift)
        for storage, recycled in block.touched:
            if recycled:
                storage.shift(since, shift)
            if storage.last[0] > since:
                storage.last = (storage.last[0] + shift, storage.last[1])
        self.hbm = {tensor: t + shift if t > since else t for tensor, t in self.hbm.items()}
        if self.end > recent:
            self.end += shift
        if self.last_ordered > since:
            self.last_ordered += shift
        for nest in block.nests:
            self.epochs[nest] += 1

    def _account(self, cycle: int, skip: int, shift: float, before: Mark, now: Mark) -> None:
        """Add the work of skipped iterations to what every lane has done, and to the record."""
        done = [(b - a) / cycle * skip for a, b in zip(before.worked, now.worked, strict=True)]
        for k in range(DMA):
            self.engines[k].placed += done[k]
        self.stores += done[-1]
        if self.record:
            done[GPSIMD] += done[-1] * float(self.machine.store_trigger_ns)
            start = max(now.clocks)
            for k in range(DMA + 1):
                if done[k] > 0:
                    self.events.append(Event(None, k, start, start + shift, done[k], skip))

    # -- instructions -----------------------------------------------------------------------------------------------------

    def _execute(self, step: Step) -> None:
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
        left = WHOLE
        if step.mask is not None:
            left = step.mask.left(values)
            if left.rows <= 0.0 or left.free <= 0.0:
                return
        t = max(self._operands_ready(step), self._buffers_free(step))
        if step.lane == DMA:
            finish = self._transfer(step, t, left)
        else:
            finish = self._compute(step, t, left.walked)
        if finish > self.end:
            self.end = finish
        self._release(step, finish)

    def _operands_ready(self, step: Step) -> float:
        values, lane, semaphore = self.values, step.lane, self.semaphore
        t = 0.0
        for reference in step.reads:
            base = reference.base
            for s, c in reference.terms:
                base += c * values[s]
            ready = reference.storage.ready
            for o in reference.offsets:
                made = ready.get(base + o)
                if made is None:
                    made = reference.storage.last
                    if made[1] < 0 and all(w.storage is not reference.storage for w in step.writes):
                        self.orphans += 1
                when = made[0] + semaphore if made[1] != lane else made[0]
                if when > t:
                    t = when
        return t

    def _buffers_free(self, step: Step) -> float:
        values = self.values
        t = 0.0
        for reference in step.writes:
            storage, base = reference.storage, reference.base
            for s, c in reference.terms:
                base += c * values[s]
            stamp = self.epochs[storage.scope] if storage.scope is not None else 0
            if storage.pool is not None and self.pool is not None:
                t = max(t, self._room(self.pool, storage, base, reference.offsets, stamp))
            for o in reference.offsets:
                when = storage.begin(base + o, stamp)
                if when > t:
                    t = when
        return t

    def _transfer(self, step: Step, t: float, left: Left) -> float:
        transfer = step.op.transfer
        assert transfer is not None
        work, shortest = step.work, step.shortest
        if left.free != 1.0:
            work, shortest = masked_transfer_ns(
                transfer, self.machine, step.op.mask_shape, left.free, left.inner
            )
            work, shortest = work * step.op.share, shortest * step.op.share
        work *= left.rows
        if transfer.hbm_read:
            t = max(t, self.hbm.get(step.op.reads[0].tensor.storage, 0.0))
        if step.ordered and self.last_ordered > t:
            # In a loop whose iterations the source orders, loads are triggered in program order.
            t = self.last_ordered
        start, end = self.dma.place(t, work, shortest, transfer.hbm_read)
        if step.ordered:
            self.last_ordered = start
        finish = end + step.latency
        if transfer.hbm_write and step.op.writes[0].tensor.storage in self.read_back:
            self.hbm[step.op.writes[0].tensor.storage] = finish + float(self.machine.dma_completion_ns)
        triggered = triggers_from_gpsimd(step.op)
        if triggered:
            self.stores += 1
        if self.record:
            self.events.append(Event(step.op, DMA, start, end, work))
            if triggered:
                trigger = float(self.machine.store_trigger_ns)
                self.events.append(Event(step.op, GPSIMD, max(0.0, start - trigger), start, trigger))
        return finish

    def _compute(self, step: Step, t: float, free: float) -> float:
        window = self.window
        if len(window) == self.window_size and window[0] > t:
            t = window[0]
        duration = step.busy
        if free != 1.0:
            duration = busy_ns(step.op, self.machine, step.op.elements * free) * step.op.share
        if step.exclusive:
            # Neither fetching an instruction nor filling the pipeline holds the memory.
            streaming = max(0.0, duration - self.overheads[step.lane])
            for port in step.exclusive:
                t = self.ports[port].place(t, streaming)
        start = self.engines[step.lane].place(t, duration)
        finish = start + duration
        window.append(finish)
        self.issued += 1
        if self.record:
            self.events.append(Event(step.op, step.lane, start, finish, duration))
        return finish

    def _release(self, step: Step, finish: float) -> None:
        """Say when the values are there, the buffers free, and which tiles have died."""
        values = self.values
        for reference in step.reads:
            base = reference.base
            for s, c in reference.terms:
                base += c * values[s]
            busy = reference.storage.busy_until
            for o in reference.offsets:
                if busy.get(base + o, 0.0) < finish:
                    busy[base + o] = finish
        value = (finish, step.lane)
        for reference in step.writes:
            storage, base = reference.storage, reference.base
            for s, c in reference.terms:
                base += c * values[s]
            ready, busy = storage.ready, storage.busy_until
            for o in reference.offsets:
                ready[base + o] = value
                if busy.get(base + o, 0.0) < finish:
                    busy[base + o] = finish
            storage.last = value
        if self.pool is not None:
            for storage, loops in step.deaths:
                if all(values[s] == self.trips[s] - 1 for s in loops):
                    self._bury(self.pool, step, storage)

    def _alias(self, step: Step) -> None:
        """The first partial of a reduction over loops: the destination is the partial itself."""
        values = self.values
        latest = (0.0, step.lane)
        target = step.writes[0].storage
        for reference in step.reads:
            if reference.storage is target:
                continue
            base = reference.base + sum(c * values[s] for s, c in reference.terms)
            for o in reference.offsets:
                made = reference.storage.ready.get(base + o, reference.storage.last)
                if made[0] > latest[0]:
                    latest = made
        for reference in step.writes:
            storage = reference.storage
            base = reference.base + sum(c * values[s] for s, c in reference.terms)
            stamp = self.epochs[storage.scope] if storage.scope is not None else 0
            for o in reference.offsets:
                storage.begin(base + o, stamp)
                storage.ready[base + o] = latest
                storage.busy_until[base + o] = latest[0]
            storage.last = latest

    # -- crowded memory ---------------------------------------------------------------------------------------------------

    def _room(self, pool: Pool, storage: Storage, base: int, offsets: tuple[int, ...], stamp: int) -> float:
        """When the pool has bytes for the units that begin a new instance."""
        held = storage.held
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

    def _bury(self, pool: Pool, step: Step, storage: Storage) -> None:
        """Give the bytes of the tiles that an op used last back to the pool."""
        references: list[Reference] = [r for r in (*step.reads, *step.writes) if r.storage is storage]
        for reference in references:
            base = reference.base + sum(c * self.values[s] for s, c in reference.terms)
            for o in reference.offsets:
                part = (base + o) // storage.span
                place = storage.held.get(part)
                if place is None:
                    continue
                place[0] -= 1
                if place[0] <= 0:
                    del storage.held[part]
                    pool.free(storage.unit_bytes, storage.busy_until.get(base + o, 0.0))


def triggers_from_gpsimd(op: Op) -> bool:
    """Whether an op is an output store, which GpSimd triggers (spills are not: the profiles' GpSimd times)."""
    return op.transfer is not None and op.transfer.role is Role.STORE and not op.transfer.scratch
