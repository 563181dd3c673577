"""What iterations owe each other: nothing, where the source says that they may run in any order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from ..errors import NKIError
from ..ir import Access, Affine, Instr, Loop, LoopKind, LoopVar, Node, Tensor


def check_dependencies(body: list[Node]) -> None:
    """Refuse iterations of an `affine_range`, and instances of a grid, that are not independent of each other.

    Accumulation into PSUM, `loop_reduce` and sums, products and extrema in place are reductions and allowed.

    Raises:
        NKIError: `err_unexpected_output_dependencies` where iterations write the same location, or read what another one
            writes.
    """
    _check_outputs(body, ())
    _check_carried(body, ())


def _check_outputs(body: list[Node], open_loops: tuple[Loop, ...]) -> None:
    promised = any(loop.kind.parallel and loop.trips > 1 for loop in open_loops)
    for node in body:
        if isinstance(node, Loop):
            _check_outputs(node.body, (*open_loops, node))
        elif promised and not node.attrs.get("accumulate") and node.op not in _REDUCING:
            _check_output(node, open_loops)


_REDUCING = frozenset(["nl.loop_reduce", "nl.atomic_rmw"])


def _check_output(instr: Instr, open_loops: tuple[Loop, ...]) -> None:
    reads = instr.reads()
    for dst in instr.dsts:
        if dst.is_indirect or any(r == dst for r in reads):
            continue
        for depth, loop in enumerate(open_loops):
            if not loop.kind.parallel or loop.trips == 1 or not _outside(dst, loop, open_loops):
                continue
            if not _separates(dst, loop, open_loops[depth + 1 :], instr.mask):
                raise NKIError(
                    "err_unexpected_output_dependencies",
                    f"every iteration of {_named(loop)} writes the same location of `{dst.tensor.name}`",
                    line=instr.line,
                )


def _outside(dst: Access, loop: Loop, open_loops: tuple[Loop, ...]) -> bool:
    """Whether the tensor outlives one iteration of `loop`."""
    scope = dst.tensor.scope
    if scope is None:
        return True
    return scope in open_loops and open_loops.index(scope) < open_loops.index(loop)


def _separates(dst: Access, loop: Loop, inner: tuple[Loop, ...], mask: tuple[Affine, ...]) -> bool:
    """Whether different iterations of `loop` write different locations."""
    if any(condition.coefficient(loop.var) for condition in mask):
        return True  # the mask tells iterations apart; whether it does so exactly is not decided here
    inner_vars = {i.var for i in inner}
    for e in dst.affine:
        c = e.coefficient(loop.var)
        if not c:
            continue
        span = sum(
            abs(k) * ((dst.shape[s] if isinstance(s, int) else s.trips) - 1)
            for s, k in e.terms.items()
            if isinstance(s, int) or s in inner_vars
        )
        if abs(c) > span or _digits(e, loop, dst, inner_vars):
            return True
    # No single dimension separates them; overlapping windows are refused only where no dimension moves at all or
    # every moving dimension overlaps fully.
    return any(e.coefficient(loop.var) and _interleaves(e, loop, dst, inner_vars) for e in dst.affine)


def _digits(e: Affine, loop: Loop, dst: Access, inner_vars: set[LoopVar]) -> bool:
    """Whether the terms are digits of one number (``1024*inner + 512*loop + axis``): no two of them give the same."""
    reach = 0
    terms = [
        (abs(k), s) for s, k in e.terms.items() if isinstance(s, int) or s in inner_vars or s is loop.var
    ]
    for step, s in sorted(terms, key=lambda term: term[0]):
        if step <= reach:
            return False
        reach += step * ((dst.shape[s] if isinstance(s, int) else s.trips) - 1)
    return True


def _interleaves(e: Affine, loop: Loop, dst: Access, inner_vars: set[LoopVar]) -> bool:
    """Strided writes: the loop's step falls between the elements of the rest (``4*axis + i``)."""
    c = abs(e.coefficient(loop.var))
    steps = [
        abs(k) for s, k in e.terms.items() if s is not loop.var and (isinstance(s, int) or s in inner_vars)
    ]
    return bool(steps) and all(step >= c * loop.trips for step in steps if step > c) and min(steps) > c


# -- values that one iteration hands to another ----------------------------------------------------------------------------
_FARTHEST = 16
"""Iterations apart up to which two are compared."""

_MOST_PLACES = 1 << 14
"""Indices of one dimension up to which they are listed."""

_ORDERLESS = frozenset(
    "add multiply maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor".split()
)
"""Operations whose repetition gives the same in any order."""

_CHAINS = frozenset(["nisa.scalar_tensor_tensor", "nisa.tensor_tensor_scan", "nisa.activation"])
"""Instructions that make more of a value than one operation of `_ORDERLESS`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Use:
    """An access of an instruction, with the loops around it below the one in question.

    Attributes:
        instr: the instruction.
        access: what it touches.
        inner: loops inside the one in question.
        writes: whether it writes.
        update: how it changes a value in place; None if it does not.
    """

    instr: Instr
    access: Access
    inner: tuple[Loop, ...]
    writes: bool
    update: str | None


def _check_carried(body: list[Node], open_loops: tuple[Loop, ...]) -> None:
    for node in body:
        if not isinstance(node, Loop):
            continue
        if node.kind.parallel and node.trips > 1:
            _check_loop(node, open_loops)
        _check_carried(node.body, (*open_loops, node))


def _check_loop(loop: Loop, outer: tuple[Loop, ...]) -> None:
    by_storage: dict[Tensor, list[_Use]] = {}
    outside: tuple[Loop | None, ...] = (None, *outer)
    for use in _uses(loop.body, ()):
        if use.access.tensor.scope in outside:
            by_storage.setdefault(use.access.tensor.storage, []).append(use)
    for found in by_storage.values():
        written = {use.access: use for use in found if use.writes}
        seen: set[tuple[Access, Access]] = set()
        for writer in written.values():
            for other in found:
                pair = writer.access, other.access
                if pair in seen or other.writes and not other.update:
                    continue  # plain writes are judged as outputs
                if writer.update and writer.update == other.update and writer.update in _ORDERLESS:
                    continue
                seen.add(pair)
                if _certain(writer, other, loop):
                    _refuse(writer, other, loop)


def _refuse(writer: _Use, other: _Use, loop: Loop) -> None:
    name = writer.access.tensor.name
    raise NKIError(
        "err_unexpected_output_dependencies",
        f"an iteration of {_named(loop)} reads what another one writes into `{name}` (line {writer.instr.line})",
        line=other.instr.line,
        remedy="use nl.sequential_range where iterations follow on each other",
    )


def _named(loop: Loop) -> str:
    if loop.kind is LoopKind.SPMD:
        return f"the launch grid's axis {loop.var.name}"
    return f"the affine_range loop over {loop.var.name} (line {loop.line})"


def _uses(body: list[Node], inner: tuple[Loop, ...]) -> Iterator[_Use]:
    for node in body:
        if isinstance(node, Loop):
            yield from _uses(node.body, (*inner, node))
            continue
        reads = node.reads()
        for dst in node.dsts:
            yield _Use(node, dst, inner, True, _update(node, dst, reads))
        for access in reads:
            if not any(access == dst for dst in node.dsts):
                yield _Use(node, access, inner, False, None)


def _update(instr: Instr, dst: Access, reads: list[Access]) -> str | None:
    """The operation by which an instruction changes its destination in place."""
    if instr.attrs.get("accumulate"):
        return "add"
    if instr.op in _REDUCING:
        return str(instr.attrs["op"])
    if not any(r == dst for r in reads):
        return None
    if instr.op in _CHAINS or instr.attrs.get("op1") is not None:
        return instr.op
    name = str(instr.attrs.get("op", instr.attrs.get("op0", instr.op.rpartition(".")[2])))
    first = next((a for a in instr.args.values() if isinstance(a, Access)), None)
    if name in ("subtract", "divide") and first == dst and not instr.attrs.get("reverse0"):
        return "add" if name == "subtract" else "multiply"
    # Of what has no name of its own here, the order is not known to matter.
    return name if name in _ORDERLESS or name in ("subtract", "divide", "power") else "add"


def _certain(writer: _Use, other: _Use, loop: Loop) -> bool:
    """Whether two iterations surely touch a common element, one of them writing it."""
    if (
        writer.access.tensor is not other.access.tensor
        or writer.access.is_indirect
        or other.access.is_indirect
    ):
        return False
    if any(_partial(use) for use in (writer, other)) or any(_entangled(use) for use in (writer, other)):
        return False
    last = loop.trips - 1
    for apart in {*range(1, min(last, _FARTHEST) + 1), last}:
        for first, second in ((0, apart), (apart, 0)):
            if all(
                _meet(we, oe, writer, other, loop.var, first, second)
                for we, oe in zip(writer.access.affine, other.access.affine, strict=True)
            ):
                return True
    return False


def _partial(use: _Use) -> bool:
    """Whether a mask may leave out elements."""
    shape = use.instr.mask_space
    return any(m.bounds(lambda s: shape[s] if isinstance(s, int) else s.trips)[0] < 0 for m in use.instr.mask)


def _entangled(use: _Use) -> bool:
    """Whether one symbol moves several dimensions, so that they cannot be looked at one by one."""
    inner = {nest.var for nest in use.inner}
    symbols = [s for e in use.access.affine for s in e.terms if isinstance(s, int) or s in inner]
    return len(symbols) != len(set(symbols))


def _meet(we: Affine, oe: Affine, writer: _Use, other: _Use, var: LoopVar, first: int, second: int) -> bool:
    """Whether two indices of one dimension take a common value, in iteration `first` of one and `second` of the other."""
    shift = oe.const + oe.coefficient(var) * second - we.const - we.coefficient(var) * first
    a, b = _terms(we, writer), _terms(oe, other)
    (low_a, high_a), (low_b, high_b) = _span(a), _span(b)
    if low_b + shift > high_a or high_b + shift < low_a:
        return False
    here, there = _places(a), _places(b)
    if here is None or there is None:
        return False
    return not here.isdisjoint(p + shift for p in there)


def _terms(e: Affine, use: _Use) -> list[tuple[int, int]]:
    """Factor and extent of what varies within one iteration of a loop; loops around it stand at their beginning."""
    inner = {nest.var for nest in use.inner}
    return [
        (c, use.access.shape[s] if isinstance(s, int) else s.trips)
        for s, c in e.terms.items()
        if isinstance(s, int) or s in inner
    ]


def _span(terms: list[tuple[int, int]]) -> tuple[int, int]:
    """Smallest and largest value of a sum of terms."""
    return sum(min(0, c * (n - 1)) for c, n in terms), sum(max(0, c * (n - 1)) for c, n in terms)


def _places(terms: list[tuple[int, int]]) -> set[int] | None:
    """All values of a sum of terms; None if there are too many to list."""
    places = {0}
    for factor, extent in terms:
        if len(places) * extent > _MOST_PLACES:
            return None
        places = {p + factor * k for p, k in itertools.product(places, range(extent))}
    return places
