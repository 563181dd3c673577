"""Whether everything that is read of a tensor has been written before: what needs no poison.

Fresh memory reads as NaN. Filling it costs a pass over the memory, so the proof that nobody can see it is worth having.
An access covers, in each dimension, the range that its axes and inner loops sweep without gaps; a read is covered if the
boxes of earlier writes, in the same iteration of the loops around both, contain its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from ..ir import Access, Affine, Indirect, Loop, LoopVar, Tensor
from .program import Program, Site, common_loops, inside, is_partial, reads, sites

Box = tuple[tuple[int, int], ...]
"""Half-open range in each dimension."""

MAX_BOXES = 64
"""Pieces of an uncovered region looked at before giving up."""

MAX_PAIRS = 4000
"""Pairs of a read and a write looked at for one tensor before giving up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Swept:
    """What an access sweeps while some loops stand still.

    Attributes:
        anchor: the part of each dimension's index that depends on those loops.
        box: range of the rest in each dimension.
        dense: whether it touches every element of the box.
    """

    anchor: tuple[frozenset[tuple[LoopVar | int, int]], ...]
    box: Box
    dense: bool


def swept(access: Access, fixed: Collection[LoopVar]) -> Swept | None:
    """The box that an access sweeps while the loops in `fixed` stand still; None if it is indirect."""
    anchor: list[frozenset[tuple[LoopVar | int, int]]] = []
    box: list[tuple[int, int]] = []
    dense = True
    seen: set[LoopVar | int] = set()
    shape = access.shape
    for e in access.index:
        if e.__class__ is Indirect:
            return None
        assert isinstance(e, Affine)
        still: list[tuple[LoopVar | int, int]] = []
        moving: list[tuple[int, int]] = []
        low = high = e.const
        for symbol, c in e.terms.items():
            if symbol in fixed:
                still.append((symbol, c))
                continue
            extent = shape[symbol] if symbol.__class__ is int else symbol.trips  # type: ignore[union-attr]
            if extent == 1:
                continue
            if symbol in seen:
                dense = False
            seen.add(symbol)
            span = c * (extent - 1)
            if span < 0:
                low += span
            else:
                high += span
            moving.append((abs(c), abs(span)))
        if len(moving) > 1:
            moving.sort()
        reach = 0
        for c, span in moving:
            if c > reach + 1:
                dense = False
            reach += span
        anchor.append(frozenset(still) if still else _NOTHING)
        box.append((low, high + 1))
    return Swept(tuple(anchor), tuple(box), dense)


_NOTHING: frozenset[tuple[LoopVar | int, int]] = frozenset()


def minus(region: Box, cover: Box) -> list[Box]:
    """What is left of a region without a cover, as disjoint boxes."""
    left: list[Box] = []
    rest = list(region)
    for d, ((low, high), (start, stop)) in enumerate(zip(region, cover, strict=True)):
        if start >= high or stop <= low:
            return [region]
        if low < start:
            left.append((*rest[:d], (low, start), *rest[d + 1 :]))
        if stop < high:
            left.append((*rest[:d], (stop, high), *rest[d + 1 :]))
        rest[d] = max(low, start), min(high, stop)
    return left


def is_covered(wanted: Swept, covers: Iterable[Swept]) -> bool:
    """Whether boxes with the same anchor, together, contain a region."""
    open_ = [wanted.box]
    for cover in covers:
        if not cover.dense or cover.anchor != wanted.anchor:
            continue
        open_ = [piece for region in open_ for piece in minus(region, cover.box)]
        if not open_:
            return True
        if len(open_) > MAX_BOXES:
            return False
    return not open_


@dataclasses.dataclass(slots=True)
class Uses:
    """The reads and writes of one tensor, in program order.

    Attributes:
        writes: unmasked writes that are certain to happen, and what they write.
        reads: reads and what they read.
    """

    writes: list[tuple[Site, Access]]
    reads: list[tuple[Site, Access]]


def uses_of(body_sites: Iterable[Site]) -> dict[Tensor, Uses]:
    """Reads and certain writes of every tensor."""
    uses: dict[Tensor, Uses] = {}
    for site in body_sites:
        for access in reads(site.instr):
            uses.setdefault(access.tensor, Uses([], [])).reads.append((site, access))
        certain = not is_partial(site.instr) and site.instr.attrs.get("reset", ()) is not None
        for dst in site.instr.dsts:
            entry = uses.setdefault(dst.tensor, Uses([], []))
            if certain:
                entry.writes.append((site, dst))
    return uses


def read_is_covered(tensor: Tensor, uses: Uses, site: Site, access: Access) -> bool:
    """Whether one read sees only what was written before it in the life of the tensor."""
    wanted: dict[tuple[Loop, ...], Swept | None] = {}
    by_loops: dict[tuple[Loop, ...], list[Swept]] = {}
    for other, dst in uses.writes:
        if other.position >= site.position:
            break
        shared = common_loops(other.loops, site.loops)
        cover = swept(dst, {loop.var for loop in shared})
        if cover is not None:
            by_loops.setdefault(shared, []).append(cover)
    for shared, covers in by_loops.items():
        if shared not in wanted:
            wanted[shared] = swept(access, {loop.var for loop in shared})
        region = wanted[shared]
        if region is not None and is_covered(region, covers):
            return True
    return False


def tensors_to_fill(program: Program) -> set[Tensor]:
    """The tensors whose fresh contents somebody might see: each must be filled when it comes into being."""
    uses = uses_of(sites(program.body))
    exposed: set[Tensor] = set()
    for tensor, entry in uses.items():
        if tensor.kind == "local" and tensor.view_of is None and _exposed(tensor, entry):
            exposed.add(tensor)
    for output in program.outputs:
        storage = output.storage
        if storage.kind == "local" and not _output_covered(storage, program):
            exposed.add(storage)
    return exposed


def _exposed(tensor: Tensor, entry: Uses) -> bool:
    if len(entry.reads) * max(len(entry.writes), 1) > MAX_PAIRS:
        return True
    for site, access in entry.reads:
        if any(tensor.scope is not None and tensor.scope not in s.loops for s, _ in entry.writes):
            return True
        if not read_is_covered(tensor, entry, site, access):
            return True
    return False


def _output_covered(storage: Tensor, program: Program) -> bool:
    covers = []
    for site in sites(program.body):
        if site.instr.mask or site.instr.attrs.get("reset", ()) is None:
            continue
        for dst in site.instr.dsts:
            if dst.tensor is storage:
                cover = swept(dst, ())
                if cover is not None:
                    covers.append(cover)
    if len(covers) > MAX_PAIRS:
        return False
    whole = Swept(tuple(frozenset() for _ in storage.shape), tuple((0, n) for n in storage.shape), True)
    return is_covered(whole, covers)


def inner_loops(site: Site, tensor: Tensor) -> tuple[Loop, ...]:
    """Loops around an instruction that one life of a tensor spans."""
    return inside(site.loops, tensor.scope)


def covers_tensor(e: Affine, size: int, access: Access, fixed: Collection[LoopVar]) -> bool:
    """Whether one dimension's index sweeps ``0 .. size-1`` without gaps."""
    one = swept(Access(access.tensor, (e,), access.shape), fixed)
    return (
        one is not None and one.dense and not one.anchor[0] and one.box[0][0] <= 0 and one.box[0][1] >= size
    )
