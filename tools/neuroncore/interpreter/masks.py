"""Masks: loops are split so that most iterations run without them.

Conditions are affine, so along one loop those that hold everywhere, partly and nowhere are three ranges. The loop is cut
between them; with the loop fixed, a condition on one tile axis just shortens that axis. What remains masked after that
(a diagonal through a tile) is evaluated element by element.
"""

from __future__ import annotations

from ..ir import REDUCED_OPERAND, Access, Affine, Indirect, Instr, Loop, LoopVar, Node
from .program import Copier, Program
from .semantics import chain_of

MAX_PARTS = 6
"""Most pieces that one loop is cut into."""

MAX_SINGLE = 4
"""Partly masked iterations up to this number are taken one by one."""


MAX_COPIES = 4000
"""Instructions that splitting may add to a program."""


def apply_masks(program: Program) -> None:
    """Split loops and shorten tiles; drop conditions that always hold and instructions that never run. In place."""
    if _any_mask(program.body):
        program.body = _Splitter(program).body(program.body, None)
        _shorten_body(program.body)


def _any_mask(nodes: list[Node]) -> bool:
    return any(_any_mask(n.body) if isinstance(n, Loop) else bool(n.mask) for n in nodes)


def _conditions(nodes: list[Node]) -> list[tuple[Affine, Instr]]:
    found: list[tuple[Affine, Instr]] = []
    for node in nodes:
        if isinstance(node, Loop):
            found.extend(_conditions(node.body))
        else:
            found.extend((c, node) for c in node.mask)
    return found


def _extent(instr: Instr, symbol: LoopVar | int) -> int:
    return instr.mask_space[symbol] if isinstance(symbol, int) else symbol.trips


def _cuts(loop: Loop) -> list[int]:
    cuts = {0, loop.trips}
    singles: set[int] = set()
    for condition, instr in _conditions(loop.body):
        c = condition.coefficient(loop.var)
        if not c:
            continue
        rest = Affine(condition.const, {s: k for s, k in condition.terms.items() if s is not loop.var})
        low, high = rest.bounds(lambda s, instr=instr: _extent(instr, s))  # type: ignore[misc]
        if c > 0:
            some, every = -(high // c), -(low // c)
            partial = range(some, every)
            cuts.update((some, every))
        else:
            every, some = low // -c + 1, high // -c + 1
            partial = range(every, some)
            cuts.update((some, every))
        partial = range(max(partial.start, 0), min(partial.stop, loop.trips))
        if len(partial) <= MAX_SINGLE:
            singles.update(partial)
            singles.update(p + 1 for p in partial)
    inside = sorted(p for p in cuts if 0 <= p <= loop.trips)
    finer = sorted({*inside, *(p for p in singles if 0 <= p <= loop.trips)})
    for points in (finer, inside):
        if len(points) - 1 <= MAX_PARTS:
            return points
    return [0, loop.trips]


class _Splitter:
    """Cuts loops where conditions begin or cease to hold, outermost first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.copies = 0

    def body(self, nodes: list[Node], parent: Loop | None) -> list[Node]:
        """The nodes with their loops cut, and without instructions that never run."""
        out: list[Node] = []
        for node in nodes:
            if isinstance(node, Instr):
                mask = _live_conditions(node)
                if mask is not None:
                    node.mask = mask
                    out.append(node)
                continue
            points = self.points(node)
            if len(points) == 2:
                node.body = self.body(node.body, node)
                if node.body:
                    out.append(node)
                continue
            for start, stop in zip(points, points[1:], strict=False):
                out.extend(self.part(node, start, stop, parent))
        return out

    def points(self, loop: Loop) -> list[int]:
        """Where to cut a loop: its ends at least."""
        whole = [0, loop.trips]
        if not _any_mask(loop.body):
            return whole
        points = _cuts(loop)
        added = (len(points) - 2) * _size(loop.body)
        if self.copies + added > MAX_COPIES:
            return whole
        self.copies += added
        return points

    def part(self, loop: Loop, start: int, stop: int, parent: Loop | None) -> list[Node]:
        """The iterations ``start .. stop-1`` of a loop, as a loop of their own or as its bare body."""
        copier = Copier(self.program.inits)
        if stop - start == 1:
            copier.bindings[loop.var] = start
            copier.scopes[loop] = parent
            return self.body(copier.body(loop.body, parent), parent)
        copied = copier.loop(loop, start, stop)
        copied.body = self.body(copied.body, copied)
        return [copied] if copied.body else []


def _size(nodes: list[Node]) -> int:
    return sum(_size(n.body) if isinstance(n, Loop) else 1 for n in nodes)


def _live_conditions(instr: Instr) -> tuple[Affine, ...] | None:
    """The conditions that do not always hold; None if one never does."""
    kept = []
    for condition in instr.mask:
        low, high = condition.bounds(lambda s: _extent(instr, s))
        if high < 0:
            return None
        if low < 0 and condition not in kept:
            kept.append(condition)
    return tuple(kept)


def _shorten_body(nodes: list[Node]) -> None:
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            _shorten_body(node.body)
            if node.body:
                kept.append(node)
            continue
        instr = _shortened(node) if node.mask else node
        if instr is not None:
            kept.append(instr)
    nodes[:] = kept


def _shortened(instr: Instr) -> Instr | None:
    """The instruction with every axis cut to where its own conditions hold; None if they never do."""
    ranges: dict[int, tuple[int, int]] = {}
    rest: list[Affine] = []
    for condition in instr.mask:
        axis = next(iter(condition.terms), None)
        if len(condition.terms) != 1 or not isinstance(axis, int) or axis not in cuttable_axes(instr):
            rest.append(condition)
            continue
        c = condition.coefficient(axis)
        low, high = ranges.get(axis, (0, instr.mask_space[axis]))
        if c > 0:
            low = max(low, -(condition.const // c))
        else:
            high = min(high, condition.const // -c + 1)
        ranges[axis] = low, high
    if any(low >= high for low, high in ranges.values()):
        return None
    for axis, (low, high) in ranges.items():
        instr = cut_axis(instr, axis, low, high)
    instr.mask = tuple(m.substitute({a: Affine(lo, {a: 1}) for a, (lo, _) in ranges.items()}) for m in rest)
    return instr


_ELEMENT_WISE_MISC = frozenset(
    [
        "move",
        "fill",
        "nl.where",
        "nisa.affine_select",
        "nisa.iota",
        "nisa.tensor_copy_predicated",
        "nisa.select_reduce",
    ]
)


def axis_map(instr: Instr, axis: int) -> dict[str, int] | None:
    """Which axis of each tile operand runs along an axis of the mask's space.

    Operands that are not named repeat along it. None if the operation mixes the axis with others.
    """
    tiles = {k: a for k, a in instr.args.items() if isinstance(a, Access)}
    shape = instr.dst.shape
    if instr.op in REDUCED_OPERAND:
        return {REDUCED_OPERAND[instr.op]: axis} if instr.op not in _COUNT_ELEMENTS or axis == 0 else None
    if instr.op == "nisa.nc_matmul":
        if axis == 0:
            return {"stationary": 1} if len(tiles["stationary"].shape) == 2 else None
        return {"moving": axis}
    if instr.op == "nl.matmul":
        if axis == 0:
            return {"x": 1 if instr.attrs.get("transpose_x") else 0}
        return {"y": axis}
    if chain_of(instr.op, instr.attrs, instr.args) is not None or instr.op in _ELEMENT_WISE_MISC:
        named = {}
        for name, tile in tiles.items():
            if len(tile.shape) == len(shape) and tile.shape[axis] == shape[axis]:
                named[name] = axis
            elif axis == 0 and tile.shape[0] == shape[0]:
                named[name] = 0
            elif len(tile.shape) != len(shape) and axis > 0 and tile.free_size > 1:
                return None
        return named
    if (
        axis == 0
        and instr.op not in _MIXES_PARTITIONS
        and all(t.shape[0] in (1, shape[0]) for t in tiles.values())
    ):
        return {name: 0 for name, tile in tiles.items() if tile.shape[0] == shape[0]}
    return None


_MIXES_PARTITIONS = frozenset(
    ["nl.transpose", "nisa.nc_transpose", "nl.load_transpose2d", "nisa.dma_transpose", "nisa.tensor_partition_reduce",
     "nisa.nc_stream_shuffle", "nisa.local_gather"]
)  # fmt: skip


_COUNT_ELEMENTS = frozenset(["nisa.bn_stats", "nisa.bn_aggr", "nisa.nc_find_index8"])


def cuttable_axes(instr: Instr) -> set[int]:
    """Axes of the mask's space that can be shortened in the operands and the destinations together."""
    return {a for a in range(len(instr.mask_space)) if axis_map(instr, a) is not None}


def cut_axis(instr: Instr, axis: int, low: int, high: int) -> Instr:
    """The instruction on the part ``low .. high-1`` of an axis of its mask's space."""
    mapped = axis_map(instr, axis)
    assert mapped is not None
    args = {
        k: _cut(a, mapped[k], low, high) if k in mapped and isinstance(a, Access) else a
        for k, a in instr.args.items()
    }
    reduced = instr.op in REDUCED_OPERAND and axis > 0

    def runs_along(number: int, dst: Access) -> bool:
        if reduced:
            return axis not in reduced_axes(instr) and len(dst.shape) > axis
        return number == 0 or axis == 0 and dst.shape[0] == instr.dst.shape[0]

    dsts = tuple(_cut(d, axis, low, high) if runs_along(k, d) else d for k, d in enumerate(instr.dsts))
    shift: dict[LoopVar | int, Affine | int] = {axis: Affine(low, {axis: 1})}
    attrs = dict(instr.attrs)
    for key in ("expr", "pred"):
        value = attrs.get(key)
        if isinstance(value, Affine):
            attrs[key] = value.substitute(shift)
        elif isinstance(value, tuple):
            attrs[key] = tuple(v.substitute(shift) if isinstance(v, Affine) else v for v in value)
    return instr.replace(args=args, dsts=dsts, attrs=attrs)


def reduced_axes(instr: Instr) -> tuple[int, ...]:
    """The axes that a reduction takes away (all free ones where it does not say)."""
    rank = len(instr.mask_space)
    axis = instr.attrs.get("axis", tuple(range(1, rank)))
    return tuple(int(a) % rank for a in (axis if isinstance(axis, tuple | list) else (axis,)))


def _cut(access: Access, axis: int, low: int, high: int) -> Access:
    shift: dict[LoopVar | int, Affine | int] = {axis: Affine(low, {axis: 1})}
    index: list[Affine | Indirect] = []
    for e in access.index:
        if isinstance(e, Indirect):
            runs_along = axis < len(e.tile.shape) and e.tile.shape[axis] > 1
            tile = _cut(e.tile, axis, low, high) if runs_along else e.tile
            index.append(Indirect(tile, e.offset.substitute(shift), e.scale))
        else:
            index.append(e.substitute(shift))
    shape = tuple(high - low if k == axis else n for k, n in enumerate(access.shape))
    return Access(access.tensor, tuple(index), shape)
