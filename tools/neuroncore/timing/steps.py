"""A program made ready to run: numbered loop variables instead of symbols, numbers instead of formulas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..compiler.program import Engine, Nest, Node, Op, Program
from ..ir import Access, LoopKind, LoopVar
from ..machine import Machine
from .costs import busy_ns, transfer_ns
from .layout import Layout, Storage
from .masks import Mask

LANES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA)
"""What executes, in the order in which events number it."""

DMA = LANES.index(Engine.DMA)
GPSIMD = LANES.index(Engine.GPSIMD)


@dataclasses.dataclass(eq=False, slots=True)
class Reference:
    """A tile as units of a storage: ``base + Σ coefficient · value[slot] + offset``."""

    storage: Storage
    base: int
    terms: list[tuple[int, int]]
    offsets: tuple[int, ...]


@dataclasses.dataclass(eq=False, slots=True)
class Step:
    """An op ready to execute.

    Attributes:
        op: the instruction.
        lane: index into `LANES`.
        busy: engine time.
        work: share of all DMA queues, as time.
        shortest: least duration of a DMA.
        latency: from the end of a DMA's data to its effect.
        reads: tiles waited for.
        writes: tiles whose buffers must be free.
        once: loop slots that must be in their first iteration.
        after: loop slots not all of which may be in their first iteration.
        last: loop slots that must be in their last iteration.
        mask: what is left of the tile, None for all.
        deaths: storages whose tiles die here, with the loop slots that must be in their last iteration.
        ordered: a load that is triggered in program order.
        exclusive: the memory ports that it has to itself, as indices.
    """

    op: Op
    lane: int
    busy: float
    work: float
    shortest: float
    latency: float
    reads: list[Reference]
    writes: list[Reference]
    once: tuple[int, ...]
    after: tuple[int, ...]
    last: tuple[int, ...]
    mask: Mask | None
    deaths: list[tuple[Storage, tuple[int, ...]]]
    ordered: bool
    exclusive: tuple[int, ...] = ()


@dataclasses.dataclass(eq=False, slots=True)
class Block:
    """A chain of perfectly nested loops, run as one.

    Attributes:
        nests: the loops, outermost first.
        slots: of their variables.
        total: iterations of all of them together.
        body: of the innermost.
        touched: storages used inside, with whether the loops recycle their units (or only add to them).
        masks: masks inside that depend on the loop (it is iterated on its own then), with the iterations of the loops
            between, by slot.
    """

    nests: list[Nest]
    slots: list[int]
    total: int
    body: list[Step | Block]
    touched: list[tuple[Storage, bool]]
    masks: list[tuple[Mask, dict[int, int]]]

    def alike(self, iteration: int, values: list[int]) -> int:
        """How many iterations from one on have masks that leave the same as in the iteration before it.

        Args:
            iteration: not the first.
            values: current values of all slots.
        """
        end = self.total
        for mask, inner in self.masks:
            for first, last in mask.changing(self.slots[0], self.total, inner, values):
                if last >= iteration:
                    end = min(end, max(first, iteration))
        return end - iteration


class Preparation:
    """Turns nodes into steps and blocks, and numbers the loop variables on the way.

    Attributes:
        trips: iteration count of every slot.
        body: the prepared program.
    """

    def __init__(self, program: Program, plan: Layout, machine: Machine) -> None:
        """Prepare a whole program."""
        self.machine = machine
        self.plan = plan
        self.slots: dict[LoopVar, int] = {}
        self.trips: list[int] = []
        self.body = self._nodes(program.body)

    def _slot(self, var: LoopVar) -> int:
        if var not in self.slots:
            self.slots[var] = len(self.trips)
            self.trips.append(var.trips)
        return self.slots[var]

    def _nodes(self, body: list[Node]) -> list[Step | Block]:
        return [self._block(node) if isinstance(node, Nest) else self._step(node) for node in body]

    def _block(self, nest: Nest) -> Block:
        chain = [nest]
        guarded = _guards(nest)
        while len(chain[-1].body) == 1 and isinstance(inner := chain[-1].body[0], Nest):
            # Loops that decide whether an op runs are iterated on their own, or no two iterations would be alike.
            if chain[-1].var in guarded or inner.var in guarded:
                break
            chain.append(inner)
        total = 1
        for n in chain:
            total *= n.trips
        slots = [self._slot(n.var) for n in chain]
        body = self._nodes(chain[-1].body)
        masks = list(_masks(body, slots[0], {})) if len(chain) == 1 else []
        return Block(chain, slots, total, body, self._touched(nest), masks)

    def _touched(self, nest: Nest) -> list[tuple[Storage, bool]]:
        inside: set[Nest] = set()
        found: dict[Storage, bool] = {}

        def visit(n: Nest) -> None:
            inside.add(n)
            for node in n.body:
                if isinstance(node, Nest):
                    visit(node)
                    continue
                for access in (*node.tiles_read(), *node.writes):
                    storage = self.plan.storages.get(access.tensor)
                    if storage is not None:
                        moving = any(v is nest.var for v in access.loops())
                        found[storage] = found.get(storage, False) or moving

        visit(nest)
        return [(s, s.scope in inside or not moving) for s, moving in found.items()]

    def _step(self, op: Op) -> Step:
        writes = [r for a in op.writes if (r := self._reference(a)) is not None]
        busy = work = shortest = latency = 0.0
        ordered = False
        if op.transfer is not None:
            work, shortest = transfer_ns(op.transfer, self.machine, op.share)
            # A read is visible after its completion is written; a written buffer is free once its data have left.
            latency = float(self.machine.dma_trigger_ns)
            if op.transfer.hbm_read:
                latency += float(self.machine.dma_completion_ns)
                ordered = any(_sequential(r.storage) for r in writes)
        else:
            busy = busy_ns(op, self.machine) * op.share
        return Step(
            op=op,
            lane=LANES.index(op.engine) if op.engine in LANES else GPSIMD,
            busy=busy,
            work=work,
            shortest=shortest,
            latency=latency,
            reads=[r for a in op.tiles_read() if (r := self._reference(a)) is not None],
            writes=writes,
            once=tuple(self._slot(v) for v in op.once),
            after=tuple(self._slot(v) for v in op.after_first),
            last=tuple(self._slot(v) for v in op.last_of),
            mask=Mask(op.mask, op.mask_shape, self._slot) if op.mask else None,
            deaths=[
                (self.plan.storages[d.tensor], tuple(self._slot(v) for v in d.loops))
                for d in self.plan.deaths.get(op, ())
            ],
            ordered=ordered,
        )

    def _reference(self, access: Access) -> Reference | None:
        storage = self.plan.storages.get(access.tensor)
        if storage is None:
            return None
        base, terms, offsets = storage.units(access)
        return Reference(storage, base, [(self._slot(v), c) for v, c in terms], offsets)


def _sequential(storage: Storage) -> bool:
    return storage.scope is not None and storage.scope.kind in (LoopKind.RANGE, LoopKind.SEQUENTIAL)


def _guards(nest: Nest) -> set[LoopVar]:
    """Loop variables that decide whether some op under a loop runs, and how much of its tile."""
    found: set[LoopVar] = set()
    for node in nest.body:
        if isinstance(node, Nest):
            found |= _guards(node)
        else:
            found.update(node.once, node.after_first, node.last_of)
            for condition in node.mask:
                found.update(condition.loops())
    return found


def _masks(
    body: list[Step | Block], slot: int, inner: dict[int, int]
) -> Iterator[tuple[Mask, dict[int, int]]]:
    """Masks under a loop that depend on it, with the iterations of the loops between."""
    for node in body:
        if isinstance(node, Block):
            trips = {s: n.trips for s, n in zip(node.slots, node.nests, strict=True)}
            yield from _masks(node.body, slot, {**inner, **trips})
        elif node.mask is not None and slot in node.mask.slots:
            yield node.mask, inner
