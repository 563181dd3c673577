"""When two accesses can touch the same elements, and what that forbids.

Indices are affine with known loop bounds, so overlap is decided dimension by dimension: the difference of the two
index expressions must be able to be zero, by its range and by its greatest common divisor. Where that cannot be told
(indices read at run time, reshaped views), accesses are taken to overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..neuroncore.ir import Access, Affine, Instr, Loop, LoopVar, Node, Tensor, TensorKind
from .structure import Use, read_accesses, uses

Terms = list[tuple[int, int, int]]
"""Coefficient, smallest and largest value of each independent unknown."""


def _can_be_zero(const: int, terms: Terms) -> bool:
    low = const + sum(min(c * a, c * b) for c, a, b in terms)
    high = const + sum(max(c * a, c * b) for c, a, b in terms)
    if low > 0 or high < 0:
        return False
    divisor = math.gcd(*(c for c, a, b in terms if a != b)) if terms else 0
    fixed = const + sum(c * a for c, a, b in terms if a == b)
    return fixed % divisor == 0 if divisor else fixed == 0


def may_overlap(
    a: Access,
    b: Access,
    shared: Iterable[LoopVar] = (),
    distance: tuple[LoopVar, LoopVar, int, int] | None = None,
) -> bool:
    """Whether two accesses can touch a common element.

    Args:
        a: one access.
        b: the other.
        shared: loop variables that have the same value for both; all others are independent.
        distance: ``(va, vb, low, high)``: the variable `va` of `a` is `vb` of `b` plus a distance within these bounds
            (`va` and `vb` may be the same variable, seen in two iterations).

    Returns:
        False only if it is certain that they never do.
    """
    if a.tensor.storage is not b.tensor.storage:
        return False
    if a.tensor is not b.tensor or a.is_indirect or b.is_indirect:
        return True
    same = set(shared)
    if distance is not None and distance[0] is distance[1] and not distance[2] <= 0 <= distance[3]:
        if any(
            _tells_apart(ea, eb, a, b, distance[0], same) for ea, eb in zip(a.affine, b.affine, strict=True)
        ):
            return False
    for ea, eb in zip(a.affine, b.affine, strict=True):
        terms: Terms = []
        pending: dict[LoopVar, int] = {}
        for s, c in ea.terms.items():
            if isinstance(s, int):
                terms.append((c, 0, a.shape[s] - 1))
            elif distance is not None and s is distance[0]:
                terms.append((c, distance[2], distance[3]))
                pending[distance[1]] = pending.get(distance[1], 0) + c
            elif s in same:
                pending[s] = pending.get(s, 0) + c
            else:
                terms.append((c, 0, s.trips - 1))
        for s, c in eb.terms.items():
            if isinstance(s, int):
                terms.append((-c, 0, b.shape[s] - 1))
            elif s in same or (distance is not None and s is distance[1]):
                pending[s] = pending.get(s, 0) - c
            else:
                terms.append((-c, 0, s.trips - 1))
        terms.extend((c, 0, s.trips - 1) for s, c in pending.items() if c)
        if not _can_be_zero(ea.const - eb.const, terms):
            return False
    return True


def _tells_apart(ea: Affine, eb: Affine, a: Access, b: Access, var: LoopVar, same: set[LoopVar]) -> bool:
    """Whether one index expression never has one value in two iterations of a loop.

    So it is if both are the same and their terms are the digits of one number: each step is larger than everything that
    the smaller ones add up to (``1024*j + 512*i + axis`` with two iterations of i).
    """
    if ea != eb or var not in ea.terms or a.shape != b.shape:
        return False
    reach = 0
    for s, c in sorted(ea.terms.items(), key=lambda term: abs(term[1])):
        if s in same:
            continue
        if abs(c) <= reach:
            return False
        reach += abs(c) * ((a.shape[s] if isinstance(s, int) else s.trips) - 1)
    return True


def conflicts(a: Use, b: Use) -> bool:
    """Whether the order of two accesses matters if they overlap: at least one of them writes."""
    return a.writes or b.writes


def is_private(tensor: Tensor, loop: Loop, body: list[Node] | None = None) -> bool:
    """Whether a tensor is created afresh in each iteration of a loop, or of a loop inside it."""
    inner = {loop}
    stack: list[Node] = list(loop.body if body is None else body)
    while stack:
        node = stack.pop()
        if isinstance(node, Loop):
            inner.add(node)
            stack.extend(node.body)
    return tensor.kind is TensorKind.LOCAL and tensor.scope in inner


def carries(loop: Loop, outer: tuple[Loop, ...], reductions: bool = False) -> Use | None:
    """An access through which an iteration of a loop depends on another one, or None if all are independent.

    Args:
        loop: the loop in question.
        outer: the loops around it.
        reductions: whether sums and other accumulations into the same place count as dependences.
    """
    shared = [each.var for each in outer]
    n = loop.trips - 1
    if n < 1:
        return None
    for storage, found in uses(loop.body, (*outer, loop)).items():
        if is_private(storage, loop):
            continue
        for i, a in enumerate(found):
            for b in found[i:]:
                if not conflicts(a, b):
                    continue
                if not reductions and is_accumulation(a) and is_accumulation(b) and _kind(a) == _kind(b):
                    continue
                for low, high in ((1, n), (-n, -1)):
                    if may_overlap(a.access, b.access, shared, (loop.var, loop.var, low, high)):
                        return a if a.writes else b
    return None


def is_accumulation(use: Use) -> bool:
    """Whether an access is part of ``place = place op something`` with an associative operation."""
    instr = use.instr
    if use.access.tensor is not instr.dst.tensor or use.access != instr.dst:
        return False
    if instr.attrs.get("accumulate") or instr.op == "nl.loop_reduce":
        return True
    if instr.op in ("nl.add", "nl.maximum", "nl.minimum"):
        x, y = instr.args.get("x"), instr.args.get("y")
        return (x == instr.dst) != (y == instr.dst)
    return False


def _kind(use: Use) -> str:
    """The operation that an accumulation repeats."""
    instr = use.instr
    if instr.attrs.get("accumulate"):
        return "add"
    return str(instr.attrs["op"]) if instr.op == "nl.loop_reduce" else instr.op.removeprefix("nl.")


def is_parallel(loop: Loop, outer: tuple[Loop, ...]) -> bool:
    """Whether a loop's iterations may run in any order: the source says so, or there is no dependence between them."""
    return loop.kind.parallel or carries(loop, outer) is None


def ordered(first: list[Node], second: list[Node], outer: tuple[Loop, ...]) -> bool:
    """Whether `second` has to come after `first` within the same iteration of the loops around both."""
    shared = [each.var for each in outer]
    before, after = uses(first, outer), uses(second, outer)
    for storage, found in before.items():
        for a in found:
            for b in after.get(storage, ()):
                if conflicts(a, b) and may_overlap(a.access, b.access, shared):
                    return True
    return False


def depends_on_loop(instr: Instr, var: LoopVar) -> bool:
    """Whether an instruction itself, apart from the values it reads, differs between iterations of a loop."""
    accesses = [*read_accesses(instr), *instr.dsts]
    if any(var in access.loops() for access in accesses) or any(var in e.terms for e in instr.mask):
        return True
    for value in instr.attrs.values():
        parts = value if isinstance(value, tuple) else (value,)
        if any(part is var or isinstance(part, Affine) and var in part.terms for part in parts):
            return True
    return False
