"""Results computed in place: a temporary that is only copied into another tensor is computed there.

``psum = matmul(...); tile = copy(psum); store(out, tile)`` becomes one matmul that writes `out`, and
``total += copy(matmul(...))`` one that adds to `total`. A move ``T[f] = S[g]``
lets S be a part of T if S holds nothing but what the move copies, T is touched by nobody else while S lives, and S is
complete when it is copied. Accesses to S are then rewritten into accesses to T and the move is dropped.
"""

from __future__ import annotations

import dataclasses

from ..ir import Access, Affine, Indirect, Instr, Loop, LoopVar, Node, Tensor
from .coverage import covers_tensor
from .overlap import Linear, linear, meet, row_major
from .program import Program, Site, inside, on_chip, reads, sites
from .semantics import MATMULS

MAX_USES = 400
"""Uses of one tensor looked at before leaving it alone."""


@dataclasses.dataclass(slots=True)
class _Use:
    site: Site
    access: Access
    is_write: bool


def coalesce(program: Program, exposed: set[Tensor]) -> None:
    """Fold temporaries into the tensors that they are copied to, last copy first. In place.

    Args:
        program: scoped, with masks applied.
        exposed: tensors whose fresh contents matter; they stay as they are.
    """
    order = list(sites(program.body))
    uses: dict[Tensor, list[_Use]] = {}
    for site in order:
        for access in reads(site.instr):
            uses.setdefault(access.tensor.storage, []).append(_Use(site, access, False))
        for access in site.instr.dsts:
            uses.setdefault(access.tensor.storage, []).append(_Use(site, access, True))
    dropped: set[int] = set()
    for site in reversed(order):
        instr = site.instr
        if instr.op != "move" or instr.mask:
            continue
        source, target = instr.args["src"], instr.dst
        assert isinstance(source, Access)
        if source.is_indirect or target.is_indirect:
            continue
        inner, outer = source.tensor, target.tensor
        if inner in exposed or "combine" in instr.attrs and not _is_summand(site, inner, uses.get(inner, [])):
            continue
        if (
            not program.is_private(inner)
            or inner.dtype != outer.dtype
            or inner is outer
            or outer.view_of is not None
        ):
            continue
        place = _place(site, source, target)
        if place is None or not _undisturbed(site, inner, outer, uses):
            continue
        dropped.add(id(instr))
        for use in uses.pop(inner, []):
            if use.site.instr is instr:
                continue
            if "combine" in instr.attrs:
                _add_up(use.site.instr, instr.attrs["reset"])
            _redirect(use.site.instr, inner, place)
            moved = place.of(use.access)
            uses[outer.storage].append(_Use(use.site, moved, use.is_write))
        uses[outer.storage] = [u for u in uses[outer.storage] if u.site.instr is not instr]
    if dropped:
        _drop(program.body, dropped)


def _is_summand(site: Site, inner: Tensor, uses: list[_Use]) -> bool:
    """Whether a move adds up the results of one matmul that nobody else sees: then the matmul can add them up itself."""
    move, source = site.instr, site.instr.args["src"]
    assert isinstance(source, Access)
    if any(loop.var not in source.loops() for loop in inside(site.loops, inner.scope)):
        return False  # the same result is added several times
    others = [u.site.instr for u in uses if u.site.instr is not move]
    if move.attrs["combine"] != "add" or not others or any(o is not others[0] for o in others):
        return False
    writer = others[0]
    if (
        writer.op not in MATMULS
        or writer.mask
        or len([u for u in uses if u.site.instr is not move and u.is_write]) != 1
    ):
        return False
    return "combine" not in writer.attrs or writer.attrs["reset"] is not None


def _add_up(matmul: Instr, reset: tuple[LoopVar, ...] | None) -> None:
    """Let a matmul start afresh only where both it and the sum of its results do."""
    own = matmul.attrs.get("reset", ())
    matmul.attrs["combine"] = "add"
    matmul.attrs["reset"] = None if reset is None else (*reset, *own)


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a temporary lies in another tensor.

    Attributes:
        tensor: the other tensor.
        origin: index of the temporary's first element.
        factors: for each dimension of `tensor`, the coefficient of each dimension of the temporary.
    """

    tensor: Tensor
    origin: tuple[Affine, ...]
    factors: tuple[tuple[int, ...], ...]

    def of(self, access: Access) -> Access:
        """An access to the temporary as one to the tensor."""
        index = []
        for start, factors in zip(self.origin, self.factors, strict=True):
            e = start
            for factor, own in zip(factors, access.affine, strict=True):
                e = e + own * factor
            index.append(e)
        return Access(self.tensor, tuple(index), access.shape)


def _place(site: Site, source: Access, target: Access) -> _Place | None:
    """Solve ``T[f(x)] = S[g(x)]`` for the index in T of each element of S."""
    inner = source.tensor
    fixed = {loop.var for loop in site.loops[: len(site.loops) - len(inside(site.loops, inner.scope))]}

    def extent(s: LoopVar | int) -> int:
        return source.shape[s] if isinstance(s, int) else s.trips

    moving: dict[LoopVar | int, int] = {}
    for k, e in enumerate(source.affine):
        size = inner.shape[k]
        if any(s in fixed for s in e.terms) or not covers_tensor(e, size, source, fixed) or e.const:
            return None
        for s in e.terms:
            if extent(s) > 1:
                if s in moving:
                    return None
                moving[s] = k
    origin: list[Affine] = []
    factors: list[tuple[int, ...]] = []
    for f in target.affine:
        start = Affine(f.const, {s: c for s, c in f.terms.items() if s in fixed})
        per_dim: dict[int, int] = {}
        for s, c in f.terms.items():
            if s in fixed or extent(s) == 1:
                continue
            if s not in moving:
                return None
            k = moving[s]
            unit = source.affine[k].coefficient(s)
            if c % unit or per_dim.setdefault(k, c // unit) != c // unit:
                return None
        # Every symbol of a dimension that counts here must count with the same factor.
        for k, factor in per_dim.items():
            for s, unit in source.affine[k].terms.items():
                if extent(s) > 1 and f.coefficient(s) != factor * unit:
                    return None
        origin.append(start)
        factors.append(tuple(per_dim.get(k, 0) for k in range(len(inner.shape))))
    for k, size in enumerate(inner.shape):
        if size > 1 and not any(row[k] for row in factors):
            return None
    if not on_chip(target.tensor) and not _keeps_rows(inner, target.tensor, factors):
        return None
    return _Place(target.tensor, tuple(origin), tuple(factors))


def _keeps_rows(inner: Tensor, outer: Tensor, factors: list[tuple[int, ...]]) -> bool:
    """Whether the temporary's contiguous direction stays contiguous in memory whose layout is fixed."""
    last = max((k for k, n in enumerate(inner.shape) if n > 1), default=None)
    if last is None:
        return True
    strides = row_major(outer.shape)
    steps = [
        sum(row[k] * s for row, s in zip(factors, strides, strict=True)) for k in range(len(inner.shape))
    ]
    return steps[last] == 1


def _undisturbed(site: Site, inner: Tensor, outer: Tensor, uses: dict[Tensor, list[_Use]]) -> bool:
    """Whether computing `inner` inside `outer` changes nothing that anybody reads."""
    own = uses.get(inner, [])
    others = uses.get(outer.storage, [])
    if len(own) + len(others) > MAX_USES:
        return False
    scope = inner.scope
    if outer.scope is not None and (
        scope is None or outer.scope is not scope and outer.scope not in site.loops
    ):
        return False
    if scope is not None and outer.scope is not None:
        if site.loops.index(outer.scope) > site.loops.index(scope):
            return False
    above = {loop.var for loop in site.loops[: len(site.loops) - len(inside(site.loops, scope))]}
    source = site.instr.args["src"]
    assert isinstance(source, Access)
    for use in own:
        if use.site.instr is site.instr:
            continue
        if use.access.is_indirect:
            return False
        if use.is_write:
            if use.site.position >= site.position or _meets_across(use, source, site, above):
                return False
    if outer.view_of is not None or any(u.access.tensor is not outer for u in others):
        return False
    for use in others:
        if use.site.instr is site.instr or scope is not None and scope not in use.site.loops:
            continue
        if use.access.is_indirect:
            return False
        if not use.is_write and use.site.position > site.position:
            if not _meets_across(use, site.instr.dst, site, above):
                continue
            return False
        here = linear(site.instr.dst, row_major(outer.shape))
        there = linear(use.access, row_major(outer.shape))
        if meet(here, there, above):
            return False
    return True


def _meets_across(use: _Use, access: Access, site: Site, above: set[LoopVar]) -> bool:
    """Whether a use touches what `access` touches in another iteration of a loop around both, inside a life."""
    strides = row_major(access.tensor.shape)
    mine, theirs = linear(access, strides), linear(use.access, strides)
    equal = set(above)
    for a, b in zip(site.loops, use.site.loops, strict=False):
        if a is not b:
            break
        if a.var in above:
            continue
        if _apart(mine, theirs, equal, a.var):
            return True
        equal.add(a.var)
    return False


def _apart(a: Linear, b: Linear, equal: set[LoopVar], v: LoopVar) -> bool:
    return meet(a, b, equal, v, 1) or meet(a, b, equal, v, -1)


def _redirect(instr: Instr, tensor: Tensor, place: _Place) -> None:
    def moved(a: Access) -> Access:
        if a.tensor is tensor:
            return place.of(a)
        if a.is_indirect:
            index = tuple(
                Indirect(moved(e.tile), e.offset, e.scale) if isinstance(e, Indirect) else e for e in a.index
            )
            return Access(a.tensor, index, a.shape)
        return a

    instr.dsts = tuple(moved(d) for d in instr.dsts)
    instr.args = {k: moved(v) if isinstance(v, Access) else v for k, v in instr.args.items()}


def _drop(nodes: list[Node], dropped: set[int]) -> None:
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            _drop(node.body, dropped)
            if node.body:
                kept.append(node)
        elif id(node) not in dropped:
            kept.append(node)
    nodes[:] = kept
