"""In which order and in how large pieces statements run.

Every loop is either *ordered* (iterations depend on each other and run one after the other) or *free*: its iterations may
be taken together, each statement for all of them before the next statement. A free loop is taken whole if the temporaries
of all its iterations together stay small enough to remain in cache, else in pieces, else one by one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from ..ir import Affine, LoopVar
from .overlap import meet
from .placement import Nest, Placement, Ref, Statement, Storage
from .semantics import MATMULS, RANDOM, chain_of, reads_destination


@dataclasses.dataclass(frozen=True, slots=True)
class Budgets:
    """Bytes in flight that loops are cut to.

    Attributes:
        elementwise: working set of a piece without matmuls: what a core's second-level cache holds (1 to 2 MiB).
        matmul: working set of a piece with matmuls: large enough for the packing inside BLAS to pay off.
        scan: working set of a piece with scans: several rows make up for their cost per step.
        hoist: most memory spent on keeping results that a loop's iterations have in common.
    """

    elementwise: int = 3 << 19
    matmul: int = 48 << 20
    scan: int = 8 << 20
    hoist: int = 64 << 20


COMMUTATIVE = frozenset(["add", "multiply", "maximum", "minimum"])
"""Reductions that may be taken in another order."""

MAX_IN_FLIGHT = 16
"""Loops taken several iterations at a time; NumPy has 64 dimensions at most."""

MAX_PAIRS = 5000
"""Pairs of accesses compared for one loop before its iterations are taken in order."""


@dataclasses.dataclass(slots=True)
class Run:
    """A statement taken for all iterations of some loops at once.

    Attributes:
        statement: what to do.
        loops: the loops, outermost first.
    """

    statement: Statement
    loops: tuple[LoopVar, ...]


@dataclasses.dataclass(slots=True)
class Pieces:
    """A loop that runs piece by piece.

    Attributes:
        var: the loop.
        size: iterations of a piece.
        body: what runs in each piece.
    """

    var: LoopVar
    size: int
    body: list[Run | Pieces]

    @property
    def count(self) -> int:
        """Number of pieces; the last one may be smaller."""
        return -(-self.var.trips // self.size)


@dataclasses.dataclass(slots=True)
class Schedule:
    """What runs when.

    Attributes:
        body: runs and loops over runs.
        varies: for each temporary, those of its loops in which its contents differ.
    """

    body: list[Run | Pieces]
    varies: dict[Storage, set[LoopVar]]


def schedule(placement: Placement, budgets: Budgets) -> Schedule:
    """Decide order and piece sizes, after dropping what nobody reads."""
    nodes = _without_dead(placement)
    facts = _Facts(nodes)
    body = _Scheduler(facts, budgets).emit(nodes, {})
    return Schedule(body, facts.varies)


def _without_dead(placement: Placement) -> list[Nest | Statement]:
    """The body without statements whose results are never read."""
    statements = list(_statements(placement.body))
    live = {s for s in placement.outputs}
    alive: set[int] = set()
    changed = True
    while changed:
        changed = False
        for s in reversed(statements):
            if id(s) in alive or not any(d.storage in live for d in s.dsts):
                continue
            alive.add(id(s))
            changed = True
            live.update(ref.storage for ref, is_write in refs_of(s) if not is_write)
    return _only(placement.body, alive)


def _statements(nodes: list[Nest | Statement]) -> Iterator[Statement]:
    for node in nodes:
        if isinstance(node, Nest):
            yield from _statements(node.body)
        else:
            yield node


def refs_of(statement: Statement) -> Iterator[tuple[Ref, bool]]:
    """Every access of a statement, index tiles included, and whether it is a write."""
    keeps = _keeps_destination(statement)
    for k, dst in enumerate(statement.dsts):
        yield dst, True
        if k in keeps:
            yield dst, False
        for index in dst.runtime:
            yield index.tile, False
    for value in statement.args.values():
        if isinstance(value, Ref):
            yield value, False
            for index in value.runtime:
                yield index.tile, False


def overwritable_operand(statement: Statement) -> Ref | None:
    """The operand that a statement is done with once it has written the same element of the destination."""
    if statement.op == "nisa.tensor_tensor_scan":
        data = statement.args["data0"]
        others = [v for k, v in statement.args.items() if k != "data0"]
        assert isinstance(data, Ref)
        return (
            None
            if data.runtime or any(isinstance(o, Ref) and o.storage is data.storage for o in others)
            else data
        )
    chain = chain_of(statement.op if statement.op != "move" else "nl.copy", statement.attrs, statement.args)
    if chain is None:
        return None
    first = statement.args[chain.first]
    assert isinstance(first, Ref)
    others = [statement.args[n] for n in chain.operands()[1:]]
    if first.runtime or any(isinstance(o, Ref) and o.storage is first.storage for o in others):
        return None
    return first


def _keeps_destination(statement: Statement) -> tuple[int, ...]:
    if statement.mask or statement.attrs.get("oob_mode") == "skip" or "combine" in statement.attrs:
        return tuple(range(len(statement.dsts)))
    return reads_destination(statement.op, statement.attrs)


def _attr_loops(statement: Statement) -> set[LoopVar]:
    found: set[LoopVar] = set()
    for value in (statement.mask, *(v for k, v in statement.attrs.items() if k != "reset")):
        for e in value if isinstance(value, tuple) else (value,):
            if isinstance(e, Affine):
                found.update(e.loops())
    return found


class _Facts:
    """What the scheduler knows of the program.

    Attributes:
        path: loops around each statement.
        needs: loops whose iterations a statement must be run for.
        varies: see `Schedule`.
        writers: statements that write each storage, by identity.
        users: statements that read or write each storage.
        ordered: loops whose iterations depend on each other.
    """

    def __init__(self, nodes: list[Nest | Statement]) -> None:
        self.path: dict[int, tuple[LoopVar, ...]] = {}
        self.statements: list[Statement] = []
        self.under: dict[LoopVar, list[Statement]] = {}
        self.number: dict[int, int] = {}
        self._collect(nodes, ())
        self.writers: dict[Storage, set[int]] = {}
        self.users: dict[Storage, list[Statement]] = {}
        for s in self.statements:
            for d in s.dsts:
                self.writers.setdefault(d.storage, set()).add(id(s))
            for storage in dict.fromkeys(r.storage for r, _ in refs_of(s)):
                self.users.setdefault(storage, []).append(s)
        self.varies: dict[Storage, set[LoopVar]] = {}
        self.needs: dict[int, set[LoopVar]] = {}
        self._written_under = self._writes_by_loop()
        self._find_variation()
        self.ordered: set[LoopVar] = set()
        self._find_order(nodes, ())

    def _collect(self, nodes: list[Nest | Statement], path: tuple[LoopVar, ...]) -> None:
        for node in nodes:
            if isinstance(node, Nest):
                self._collect(node.body, (*path, node.var))
            else:
                self.path[id(node)] = path
                self.number[id(node)] = len(self.statements)
                self.statements.append(node)
                for v in path:
                    self.under.setdefault(v, []).append(node)

    def _writes_by_loop(self) -> dict[LoopVar, set[Storage]]:
        written: dict[LoopVar, set[Storage]] = {}
        for v, statements in self.under.items():
            written[v] = {d.storage for s in statements for d in s.dsts if v not in d.storage.loops}
        return written

    def _find_variation(self) -> None:
        fixed: dict[int, set[LoopVar]] = {}
        for s in self.statements:
            path = self.path[id(s)]
            own = _attr_loops(s)
            for ref, is_write in refs_of(s):
                own.update(ref.map.loops)
                for index in ref.runtime:
                    own.update(index.offset.loops)
                if not is_write:
                    own.update(v for v in path if ref.storage in self._written_under[v])
            if s.op in RANDOM:
                own.update(path)
            if "combine" in s.attrs:
                own.update(v for v in path if v not in s.dsts[0].storage.loops)
            fixed[id(s)] = own.intersection(path)
        changed = True
        while changed:
            changed = False
            for s in self.statements:
                path = self.path[id(s)]
                needs = set(fixed[id(s)])
                for ref, _ in refs_of(s):
                    needs.update(v for v in self.varies.get(ref.storage, ()) if v in path)
                self.needs[id(s)] = needs
                for dst in s.dsts:
                    known = self.varies.setdefault(dst.storage, set())
                    new = needs.intersection(dst.storage.loops) - known
                    if new:
                        known.update(new)
                        changed = True

    # -- order -----------------------------------------------------------------------------------------------------------
    def _find_order(self, nodes: list[Nest | Statement], outer: tuple[LoopVar, ...]) -> None:
        for node in nodes:
            if isinstance(node, Nest):
                if self._is_ordered(node.var, outer):
                    self.ordered.add(node.var)
                self._find_order(node.body, (*outer, node.var))

    def _is_ordered(self, v: LoopVar, outer: tuple[LoopVar, ...]) -> bool:
        by_storage: dict[Storage, list[tuple[Statement, Ref, bool]]] = {}
        for s in self.under[v]:
            for ref, is_write in refs_of(s):
                if v not in ref.storage.loops:
                    by_storage.setdefault(ref.storage, []).append((s, ref, is_write))
        for accesses in by_storage.values():
            writes = [a for a in accesses if a[2]]
            if not writes:
                continue
            if len(writes) * len(accesses) > MAX_PAIRS:
                return True
            if self._is_reduction(v, accesses):
                continue
            for write in writes:
                for other in accesses:
                    if self._conflict(v, outer, write, other):
                        return True
        return False

    def _is_reduction(self, v: LoopVar, accesses: list[tuple[Statement, Ref, bool]]) -> bool:
        """Whether the only use of a storage is one statement that accumulates every iteration into the same place."""
        statement = accesses[0][0]
        if (
            any(s is not statement for s, _, _ in accesses)
            or statement.attrs.get("combine") not in COMMUTATIVE
        ):
            return False
        dst, reset = statement.dsts[0], statement.attrs["reset"]
        if len(statement.dsts) != 1 or dst.runtime or statement.mask:
            return False
        return v not in dst.map.loops and (reset is None or v in reset)

    def _conflict(
        self,
        v: LoopVar,
        outer: tuple[LoopVar, ...],
        write: tuple[Statement, Ref, bool],
        other: tuple[Statement, Ref, bool],
    ) -> bool:
        (a, ref_a, _), (b, ref_b, b_writes) = write, other
        if ref_a is ref_b and a is b and v not in self.needs[id(a)]:
            return False
        if ref_a.runtime or ref_b.runtime:
            return True
        later = meet(ref_a.map, ref_b.map, outer, v, 1)
        if a is b:
            return later or meet(ref_a.map, ref_b.map, outer, v, -1)
        if self.number[id(a)] > self.number[id(b)]:
            if b_writes:
                return False  # looked at from the other side
            # b comes first; the harmless direction is b before a: b's iteration earlier.
            return later or meet(ref_a.map, ref_b.map, outer, v, -1) and self._share_inner(a, b, v)
        return meet(ref_a.map, ref_b.map, outer, v, -1) or later and self._share_inner(a, b, v)

    def _share_inner(self, a: Statement, b: Statement, v: LoopVar) -> bool:
        """Whether two statements are in a common loop inside `v`."""
        pa, pb = self.path[id(a)], self.path[id(b)]
        k = pa.index(v) + 1
        return k < len(pa) and k < len(pb) and pa[k] is pb[k]


@dataclasses.dataclass(slots=True)
class _Traffic:
    """Use of a storage that outlives an iteration: who reads and writes it, and how much of it an iteration touches."""

    readers: set[int] = dataclasses.field(default_factory=set)
    writers: set[int] = dataclasses.field(default_factory=set)
    nbytes: int = 0

    def is_reused(self) -> bool:
        """Whether an iteration comes back to the same elements."""
        return (
            len(self.readers) > 1 or any(r not in self.writers for r in self.readers) and bool(self.writers)
        )


class _Scheduler:
    def __init__(self, facts: _Facts, budgets: Budgets) -> None:
        self.facts = facts
        self.budgets = budgets
        self.emitted: set[int] = set()

    def emit(self, nodes: list[Nest | Statement], taken: dict[LoopVar, int]) -> list[Run | Pieces]:
        """Schedule nodes inside loops of which `taken` iterations are in flight."""
        out: list[Run | Pieces] = []
        for node in nodes:
            if isinstance(node, Statement):
                if id(node) in self.emitted:
                    continue
                self.emitted.add(id(node))
                needs = self.facts.needs[id(node)]
                loops = tuple(v for v in self.facts.path[id(node)] if v in needs and taken.get(v, 1) > 1)
                out.append(Run(node, loops))
                continue
            v = node.var
            crowded = sum(n > 1 for n in taken.values()) >= MAX_IN_FLIGHT
            size = 1 if crowded or v in self.facts.ordered else self._piece(node, taken)
            if size == v.trips:
                out.extend(self.emit(node.body, {**taken, v: size}))
                continue
            out.extend(self._hoisted(node, taken))
            body = self.emit(node.body, {**taken, v: size})
            if body:
                out.append(Pieces(v, size, body))
        return out

    # -- piece sizes -----------------------------------------------------------------------------------------------------
    def _piece(self, nest: Nest, taken: dict[LoopVar, int]) -> int:
        """How many iterations of a free loop are taken at once.

        Where they do not fit whole, either this loop is cut, or it is taken whole and the loops inside are cut; with
        matmuls, whichever lets BLAS rearrange less.
        """
        trips = nest.var.trips
        each = self._footprint(nest, taken)
        budget = self._budget(nest)
        if each * trips <= budget:
            return trips
        size = 1
        if each <= budget:
            most = max(budget // each, 1)
            size = -(-trips // -(-trips // most))
        matmuls = [s for s in self.facts.under[nest.var] if s.op in MATMULS]
        if matmuls and trips * self._footprint(nest, taken, inner=False) <= budget:
            outer_pieces, inner_pieces = -(-trips // size), -(-each * trips // budget)
            cut_here = sum(self._rearranged(s, nest.var, outer_pieces, taken) for s in matmuls)
            cut_inside = sum(
                self._rearranged(s, self._next_free(s, nest.var), inner_pieces, taken) for s in matmuls
            )
            if cut_inside < cut_here:
                return trips
        return size

    def _next_free(self, s: Statement, v: LoopVar) -> LoopVar | None:
        """The outermost loop inside `v` around a statement that can be cut."""
        path = self.facts.path[id(s)]
        inside = path[path.index(v) + 1 :]
        return next((w for w in inside if w not in self.facts.ordered), None)

    def _rearranged(self, s: Statement, v: LoopVar | None, pieces: int, taken: dict[LoopVar, int]) -> int:
        """Elements that BLAS rearranges again because a loop runs in pieces: operands that do not move with it."""
        if v is None:
            return 0
        total = 0
        path = self.facts.path[id(s)]
        for ref in s.args.values():
            if not isinstance(ref, Ref):
                continue
            moving = {*ref.map.loops, *self.facts.varies.get(ref.storage, ())}.intersection(path)
            if v not in moving:
                extents = [n for stride, n in ref.map.axes if stride]
                extents += [taken.get(w, w.trips) for w in moving]
                total += (pieces - 1) * math.prod(extents)
        return total

    def _budget(self, nest: Nest) -> int:
        ops = {s.op for s in self.facts.under[nest.var]}
        if ops & MATMULS:
            return self.budgets.matmul
        return self.budgets.scan if "nisa.tensor_tensor_scan" in ops else self.budgets.elementwise

    def _extent(self, v: LoopVar, nest: LoopVar, taken: dict[LoopVar, int], inner: bool) -> int:
        if v is nest:
            return 1
        if v in taken:
            return taken[v]
        return v.trips if inner and v not in self.facts.ordered else 1

    def _footprint(self, nest: Nest, taken: dict[LoopVar, int], inner: bool = True) -> int:
        """Bytes in flight during one iteration of a loop, inner loops taken whole (or, not `inner`, one by one)."""
        v = nest.var
        first: dict[Storage, int] = {}
        last: dict[Storage, int] = {}
        outside: dict[Storage, _Traffic] = {}
        statements = self.facts.under[v]
        for k, s in enumerate(statements):
            for ref, is_write in refs_of(s):
                storage = ref.storage
                if v in storage.loops:
                    if v in self.facts.varies.get(storage, ()):
                        first.setdefault(storage, k)
                        last[storage] = k
                elif v in ref.map.loops and (s.op not in MATMULS or is_write):
                    traffic = outside.setdefault(storage, _Traffic())
                    (traffic.writers if is_write else traffic.readers).add(k)
                    traffic.nbytes = max(traffic.nbytes, self._touched(ref, s, v, taken, inner))
        events = [0] * (len(statements) + 1)
        for storage, start in first.items():
            size = storage.size * storage.dtype.itemsize
            for w in storage.loops:
                if w in self.facts.varies.get(storage, ()):
                    size *= self._extent(w, v, taken, inner)
            events[start] += size
            stop = last[storage]
            operand = overwritable_operand(statements[stop])
            replaced = stop > start and operand is not None and operand.storage is storage
            events[stop if replaced else stop + 1] -= size
        peak = live = 0
        for change in events:
            live += change
            peak = max(peak, live)
        return peak + sum(t.nbytes for t in outside.values() if t.is_reused())

    def _touched(self, ref: Ref, s: Statement, nest: LoopVar, taken: dict[LoopVar, int], inner: bool) -> int:
        extents = [n for stride, n in ref.map.axes if stride]
        path = self.facts.path[id(s)]
        extents += [self._extent(w, nest, taken, inner) for w in ref.map.loops if w in path]
        return math.prod(extents) * ref.dtype.itemsize

    # -- results that iterations share -----------------------------------------------------------------------------------
    def _hoisted(self, nest: Nest, taken: dict[LoopVar, int]) -> list[Run | Pieces]:
        """Run what is the same in every iteration of a loop before it."""
        v = nest.var
        varies, writers = self.facts.varies, self.facts.writers
        chosen: dict[int, Statement] = {}
        for s in self.facts.under[v]:
            if id(s) in self.emitted or v in self.facts.needs[id(s)] or s.op in RANDOM:
                continue
            if all(v in d.storage.loops and v not in varies.get(d.storage, ()) for d in s.dsts):
                chosen[id(s)] = s
        # Whoever shares a temporary with a statement that stays inside the loop stays there too.
        changed = True
        while changed:
            changed = False
            for s in list(chosen.values()):
                used = {r.storage for r, _ in refs_of(s) if v in r.storage.loops}
                if any(
                    w not in chosen and w not in self.emitted
                    for storage in used
                    for w in writers.get(storage, ())
                ) or not self._runs_ahead(s, v, chosen):
                    del chosen[id(s)]
                    changed = True
        size = 0
        for storage in {d.storage for s in chosen.values() for d in s.dsts}:
            extents = [w.trips for w in storage.loops if w in varies.get(storage, ()) and w not in taken]
            size += math.prod(extents) * storage.size * storage.dtype.itemsize
        if not chosen or size > self.budgets.hoist:
            return []
        return self.emit(_only(nest.body, set(chosen)), taken)

    def _runs_ahead(self, s: Statement, v: LoopVar, chosen: dict[int, Statement]) -> bool:
        """Whether a statement may run for a whole iteration of `v` before those that use its results start."""
        facts = self.facts
        path = facts.path[id(s)]
        for dst in s.dsts:
            for other in facts.users[dst.storage]:
                if id(other) in chosen:
                    continue
                uses = [r for r, _ in refs_of(other) if r.storage is dst.storage]
                if uses and facts.number[id(other)] < facts.number[id(s)]:
                    return False
                for ref in uses:
                    if ref.runtime or dst.runtime:
                        return False
                    for m, w in zip(path, facts.path[id(other)], strict=False):
                        if m is not w:
                            break
                        outer = path[: path.index(m)]
                        if m in dst.storage.loops or v not in outer:
                            continue
                        if meet(dst.map, ref.map, outer, m, 1) or meet(dst.map, ref.map, outer, m, -1):
                            return False
        return True


def _only(nodes: list[Nest | Statement], chosen: set[int]) -> list[Nest | Statement]:
    """The part of a tree that holds the chosen statements."""
    out: list[Nest | Statement] = []
    for node in nodes:
        if isinstance(node, Statement):
            if id(node) in chosen:
                out.append(node)
            continue
        body = _only(node.body, chosen)
        if body:
            out.append(Nest(node.var, body))
    return out
