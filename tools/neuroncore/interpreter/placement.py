"""From tensors to storage: every access becomes an affine map to element offsets.

Two decisions are taken on the way, in program order. A tile that is only a copy of something that stays as it is (a
load, a transpose, an eviction) becomes a view of it, with strides of its own, and is never computed. Every other on-chip
tensor gets storage whose dimensions are ordered like those of what it is computed from, so that what runs over rows in
HBM runs over rows here, and the result of a matmul is one matrix however many tiles it is made of.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ..ir import Access, Affine, Indirect, Instr, Loop, LoopVar, Node, Tensor, TensorKind
from .coverage import Swept, Uses, is_covered, swept, uses_of
from .functions import converted
from .overlap import Linear, linear, meet, row_major
from .program import Program, Site, common_loops, inside, on_chip, reads, sites
from .semantics import MATMULS

Scalar = float | int | bool | None
MAX_USES = 400
"""Uses of one tensor looked at before giving it storage of its own."""


class Storage:
    """A piece of memory: an argument, a constant, a result, or one life of a temporary.

    Attributes:
        name: for messages.
        size: elements.
        dtype: element type.
        tensor: the tensor that it belongs to.
        loops: variables of the loops whose every iteration has a piece of its own, outermost first.
        fill: what it holds when it comes into being; None if nobody looks.
        is_output: whether the kernel returns it.
    """

    __slots__ = ("name", "size", "dtype", "tensor", "loops", "fill", "is_output")

    def __init__(self, tensor: Tensor, loops: tuple[LoopVar, ...] = (), fill: float | None = None) -> None:
        """See the class attributes."""
        self.name = tensor.name
        self.size = math.prod(tensor.shape)
        self.dtype = tensor.dtype
        self.tensor = tensor
        self.loops = loops
        self.fill = fill
        self.is_output = False

    @property
    def is_temporary(self) -> bool:
        """Whether it exists only during a run."""
        return self.tensor.kind is TensorKind.LOCAL and not self.is_output

    @property
    def is_constant(self) -> bool:
        """Whether nothing writes it."""
        tensor = self.tensor
        return tensor.kind is TensorKind.CONSTANT or tensor.kind is TensorKind.INPUT and not tensor.mutable

    def __repr__(self) -> str:
        """``name[65536]``."""
        return f"{self.name}[{self.size}]"


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeIndex:
    """An index read from a tile: adds ``stride * (scale * value + offset)``.

    Attributes:
        tile: where the values are.
        stride: of the indexed dimension, in elements.
        size: of the indexed dimension.
        scale: see `ir.Indirect`.
        offset: affine part of the index, over the axes of the access.
    """

    tile: Ref
    stride: int
    size: int
    scale: int
    offset: Linear


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """An access to storage.

    Attributes:
        storage: what is accessed.
        map: offsets of its elements.
        runtime: indices read at run time.
    """

    storage: Storage
    map: Linear
    runtime: tuple[RuntimeIndex, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tile's axes."""
        return tuple(n for _, n in self.map.axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.storage.dtype


class Statement:
    """An instruction whose accesses are maps to storage.

    Attributes:
        op: operation.
        dsts: destinations.
        args: operands: accesses, numbers or None.
        attrs: as in the instruction.
        mask: conditions left.
        line: of the source.
    """

    __slots__ = ("op", "dsts", "args", "attrs", "mask", "line")

    def __init__(self, instr: Instr, dsts: tuple[Ref, ...], args: dict[str, Ref | Scalar]) -> None:
        """See the class attributes."""
        self.op = instr.op
        self.dsts = dsts
        self.args = args
        self.attrs = instr.attrs
        self.mask = instr.mask
        self.line = instr.line

    def __repr__(self) -> str:
        """For debugging."""
        return f"{', '.join(map(str, self.dsts))} = {self.op}({self.args}, {self.attrs})"


@dataclasses.dataclass(slots=True)
class Nest:
    """A loop over statements and further loops."""

    var: LoopVar
    body: list[Nest | Statement]


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """Where a tensor lies: strides of its dimensions in a storage, from an offset."""

    storage: Storage
    offset: Affine
    strides: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class Placement:
    """The result: statements on storage.

    Attributes:
        body: what to run.
        storages: everything that holds data, in order of first use.
        params: storage of each parameter.
        outputs: storage of each result.
    """

    body: list[Nest | Statement]
    storages: list[Storage]
    params: list[Storage]
    outputs: list[Storage]


def place(program: Program, exposed: set[Tensor]) -> Placement:
    """Give every tensor a place.

    Args:
        program: with masks applied and copies coalesced.
        exposed: tensors whose fresh contents somebody may read.
    """
    return _Placer(program, exposed).run()


class _Placer:
    def __init__(self, program: Program, exposed: set[Tensor]) -> None:
        self.program = program
        self.exposed = exposed
        order = list(sites(program.body))
        self.uses: dict[Tensor, Uses] = uses_of(order)
        self.writers: dict[Tensor, list[tuple[Site, Access]]] = {}
        self.readers: dict[Tensor, list[tuple[Site, Access]]] = {}
        for site in order:
            for dst in site.instr.dsts:
                self.writers.setdefault(dst.tensor.storage, []).append((site, dst))
            for access in reads(site.instr):
                self.readers.setdefault(access.tensor, []).append((site, access))
        self.placed: dict[Tensor, _Placed] = {}
        self.storages: dict[Tensor, Storage] = {}
        self.position = 0

    def run(self) -> Placement:
        params = [self.storage(t) for t in self.program.params]
        body = self.nodes(self.program.body, ())
        outputs = [self.storage(t.storage) for t in self.program.outputs]
        for storage in outputs:
            storage.is_output = True
        return Placement(body, list(self.storages.values()), params, outputs)

    def nodes(self, nodes: list[Node], loops: tuple[Loop, ...]) -> list[Nest | Statement]:
        out: list[Nest | Statement] = []
        for node in nodes:
            if isinstance(node, Loop):
                body = self.nodes(node.body, (*loops, node))
                if body:
                    out.append(Nest(node.var, body))
                continue
            site = Site(node, loops, self.position)
            self.position += 1
            if not self.becomes_view(site):
                out.append(self.statement(site))
        return out

    def statement(self, site: Site) -> Statement:
        instr = site.instr
        args: dict[str, Ref | Scalar] = {}
        for name, value in self.with_constants(instr).items():
            args[name] = self.ref(value) if isinstance(value, Access) else value
        for dst in instr.dsts:
            tensor = dst.tensor
            if (
                tensor not in self.placed
                and on_chip(tensor)
                and tensor.view_of is None
                and not dst.is_indirect
            ):
                self.lay_out(tensor, instr, dst, args)
        return Statement(instr, tuple(self.ref(d) for d in instr.dsts), args)

    def with_constants(self, instr: Instr) -> dict[str, Any]:
        """The operands, with tiles that hold one constant replaced by it where a number may stand."""
        args = dict(instr.args)
        elementwise = instr.op.startswith("nl.") and "y" in args and instr.op not in MATMULS
        for name in _MAY_BE_NUMBERS.get(instr.op, ("x", "y") if elementwise else ()):
            value = args.get(name)
            if not isinstance(value, Access) or name in ("x", "y") and not _both_tiles(args):
                continue
            number = self.constant(value.tensor)
            if number is not None:
                args[name] = number
        return args

    def constant(self, tensor: Tensor) -> float | None:
        """The value that every element of a temporary has all its life."""
        if not self.program.is_private(tensor):
            return None
        writers = self.writers.get(tensor, [])
        if not writers:
            value = self.program.inits.get(tensor)
        elif tensor in self.exposed:
            return None
        elif (
            len(writers) == 1
            and writers[0][0].instr.op == "fill"
            and "combine" not in writers[0][0].instr.attrs
        ):
            value = writers[0][0].instr.attrs["value"]
        else:
            return None
        return None if value is None else float(converted(np.asarray(value, np.float64), tensor.dtype))

    # -- storage ---------------------------------------------------------------------------------------------------------
    def storage(self, tensor: Tensor) -> Storage:
        """The storage that a tensor owns."""
        known = self.storages.get(tensor)
        if known is None:
            scopes: list[LoopVar] = []
            if tensor.scope is not None:
                site = self._any_site(tensor)
                assert site is not None
                scopes = [loop.var for loop in site.loops[: site.loops.index(tensor.scope) + 1]]
            fill = None
            if tensor in self.exposed:
                fill = self.program.inits.get(tensor, float("nan"))
            known = self.storages[tensor] = Storage(tensor, tuple(scopes), fill)
        return known

    def _any_site(self, tensor: Tensor) -> Site | None:
        for group in (self.writers.get(tensor), self.readers.get(tensor)):
            if group:
                return group[0][0]
        return None

    def where(self, tensor: Tensor) -> _Placed:
        """Where a tensor lies."""
        known = self.placed.get(tensor)
        if known is None:
            known = _Placed(self.storage(tensor.storage), Affine(0), row_major(tensor.shape))
            self.placed[tensor] = known
        return known

    def ref(self, access: Access) -> Ref:
        """An access as a map to storage."""
        placed = self.where(access.tensor)
        if not access.is_indirect:
            return Ref(placed.storage, linear(access, placed.strides, placed.offset))
        direct: list[Affine] = []
        runtime: list[RuntimeIndex] = []
        for d, e in enumerate(access.index):
            if not isinstance(e, Indirect):
                direct.append(e)
                continue
            direct.append(Affine(0))
            tile = Access(e.tile.tensor, e.tile.index, access.shape)
            offset = linear(Access(access.tensor, (e.offset,), access.shape), (1,))
            runtime.append(
                RuntimeIndex(self.ref(tile), placed.strides[d], access.tensor.shape[d], e.scale, offset)
            )  # fmt: skip
        plain = Access(access.tensor, tuple(direct), access.shape)
        return Ref(placed.storage, linear(plain, placed.strides, placed.offset), tuple(runtime))

    # -- layout ----------------------------------------------------------------------------------------------------------
    def lay_out(self, tensor: Tensor, instr: Instr, dst: Access, args: dict[str, Ref | Scalar]) -> None:
        """Order the dimensions of an on-chip tensor like those of what it is first computed from."""
        ranks = _symbol_ranks(instr, dst, args)
        order = list(range(len(tensor.shape)))
        keys: list[tuple[float, float]] = []
        for e, n in zip(dst.affine, tensor.shape, strict=True):
            known = [ranks[s] for s in e.terms if s in ranks]
            keys.append(max(known) if known else (math.inf, 0) if n > 1 else (-math.inf, 0))
        order.sort(key=lambda d: keys[d], reverse=True)
        strides = [1] * len(order)
        step = 1
        for d in reversed(order):
            strides[d] = step
            step *= tensor.shape[d]
        self.placed[tensor] = _Placed(self.storage(tensor), Affine(0), tuple(strides))

    # -- views -----------------------------------------------------------------------------------------------------------
    def becomes_view(self, site: Site) -> bool:
        """Make the destination of a plain move a view of its source, if the source outlives every read of it."""
        instr = site.instr
        if instr.op != "move" or instr.mask or "combine" in instr.attrs:
            return False
        source, target = instr.args["src"], instr.dst
        assert isinstance(source, Access)
        tensor = target.tensor
        if source.is_indirect or target.is_indirect or tensor in self.placed or source.dtype != target.dtype:
            return False
        if not self.program.is_private(tensor) or len(self.writers[tensor]) != 1 or tensor in self.exposed:
            return False
        origin = self.where(source.tensor)
        fixed = self._fixed(site, tensor)
        readers = self.readers.get(tensor, [])
        writers = self.writers.get(origin.storage.tensor, [])
        if len(readers) + len(writers) > MAX_USES or any(a.is_indirect for _, a in readers):
            return False
        if any(v not in fixed for v in origin.storage.loops) or not self._all_within(site, target, readers):
            return False
        solved = _strides_of_view(target, source, origin, fixed)
        if solved is None or not self._stays(site, source, tensor, readers, writers):
            return False
        self.placed[tensor] = _Placed(origin.storage, *solved)
        return True

    @staticmethod
    def _fixed(site: Site, tensor: Tensor) -> set[LoopVar]:
        below = inside(site.loops, tensor.scope)
        return {loop.var for loop in site.loops[: len(site.loops) - len(below)]}

    @staticmethod
    def _all_within(site: Site, target: Access, readers: list[tuple[Site, Access]]) -> bool:
        """Whether every read sees only what this move writes, after it."""
        boxes: dict[tuple[Loop, ...], Swept | None] = {}
        for reader, access in readers:
            if reader.position <= site.position:
                return False
            shared = common_loops(site.loops, reader.loops)
            fixed = {loop.var for loop in shared}
            if shared not in boxes:
                boxes[shared] = swept(target, fixed)
            cover, wanted = boxes[shared], swept(access, fixed)
            if cover is None or wanted is None or not is_covered(wanted, [cover]):
                return False
        return True

    def _stays(
        self,
        site: Site,
        source: Access,
        tensor: Tensor,
        readers: list[tuple[Site, Access]],
        writers: list[tuple[Site, Access]],
    ) -> bool:
        """Whether nothing overwrites the source between the move and the last read of its copy."""
        if not writers:
            return True
        here = self.ref(source).map
        last = max((r.position for r, _ in readers), default=site.position)
        scope = tensor.scope
        above = self._fixed(site, tensor)
        for writer, dst in writers:
            if scope is not None and scope not in writer.loops:
                continue
            if dst.is_indirect:
                return False
            there = self.ref(dst).map
            shared = [loop for loop in common_loops(site.loops, writer.loops) if loop.var not in above]
            with_readers = any(
                loop.var not in above for r, _ in readers for loop in common_loops(r.loops, writer.loops)
            )
            equal = set(above)
            for loop in shared:
                if meet(here, there, equal, loop.var, 1) or meet(here, there, equal, loop.var, -1):
                    return False
                equal.add(loop.var)
            if writer.position < site.position and not (with_readers and not shared):
                continue
            if writer.position > last and not shared and not with_readers:
                continue
            if meet(here, there, equal):
                return False
        return True


_MAY_BE_NUMBERS: dict[str, tuple[str, ...]] = {
    "nisa.activation": ("bias", "scale"),
    "nisa.activation_reduce": ("bias", "scale"),
    "nisa.tensor_scalar": ("operand0", "operand1"),
    "nisa.tensor_scalar_reduce": ("operand0",),
    "nisa.scalar_tensor_tensor": ("operand0",),
    "nisa.tensor_tensor_scan": ("initial",),
}
"""Operands that may be tiles or numbers."""


def _both_tiles(args: dict[str, Any]) -> bool:
    return isinstance(args["x"], Access) and isinstance(args["y"], Access)


def _strides_of_view(
    target: Access, source: Access, origin: _Placed, fixed: set[LoopVar]
) -> tuple[Affine, tuple[int, ...]] | None:
    """Offset and strides that make the target's tensor a view, from ``T[f(x)] = storage[offset(x)]``."""
    where = linear(source, origin.strides, origin.offset)

    def extent(s: LoopVar | int) -> int:
        return target.shape[s] if isinstance(s, int) else s.trips

    steps: dict[LoopVar | int, int] = {v: c for v, c in where.loops.items()}
    steps.update({k: s for k, (s, n) in enumerate(where.axes) if n > 1 and s})
    offset = Affine(where.const, {v: c for v, c in where.loops.items() if v in fixed})
    seen: set[LoopVar | int] = set()
    strides: list[int] = []
    for e in target.affine:
        stride: int | None = None
        for symbol, c in e.terms.items():
            if symbol in fixed or extent(symbol) == 1:
                continue
            if symbol in seen:
                return None
            seen.add(symbol)
            step = steps.get(symbol, 0)
            if step % c or stride is not None and stride != step // c:
                return None
            stride = step // c
        strides.append(stride or 0)
        start = Affine(e.const, {s: c for s, c in e.terms.items() if s in fixed})
        offset = offset - start * (stride or 0)
    if any(s not in seen and s not in fixed for s in steps):
        return None
    return offset, tuple(strides)


def _symbol_ranks(
    instr: Instr, dst: Access, args: dict[str, Ref | Scalar]
) -> dict[LoopVar | int, tuple[float, float]]:
    """For each symbol of the destination: how far out it should lie, by the operands' strides."""
    refs = {k: r for k, r in args.items() if isinstance(r, Ref)}
    ranks: dict[LoopVar | int, tuple[float, float]] = {}
    if instr.op in ("nisa.nc_matmul", "nl.matmul"):
        left, right = (
            refs["stationary" if "stationary" in refs else "x"],
            refs["moving" if "moving" in refs else "y"],
        )
        row_axis = 0 if instr.op == "nl.matmul" and not instr.attrs.get("transpose_x") else 1
        for v in dst.loops():
            a, b = left.map.loops.get(v, 0), right.map.loops.get(v, 0)
            group = 2.0 if a and b else 1.0 if a else 0.0
            ranks[v] = group, abs(a or b)
        if row_axis < len(left.map.axes):
            ranks[0] = 1.0, abs(left.map.axes[row_axis][0])
        for k in range(1, len(dst.shape)):
            ranks[k] = 0.0, abs(right.map.axes[k][0]) if k < len(right.map.axes) else 0.0
        return ranks
    for ref in refs.values():
        for v, c in ref.map.loops.items():
            ranks.setdefault(v, (0.0, abs(c)))
        if len(ref.map.axes) == len(dst.shape):
            for k, (s, n) in enumerate(ref.map.axes):
                if n == dst.shape[k] and s:
                    ranks.setdefault(k, (0.0, abs(s)))
    return ranks
