"""Names, and accesses as subscripts."""

from __future__ import annotations

import keyword
import re

from ...neuroncore.ir import Access, Affine, Indirect, Instr, Kernel, Loop, LoopVar, Node, Operand, Tensor
from .facts import extents_in_use, is_whole, unique_scalars
from .text import conjunction, number, tuple_of

RESERVED = frozenset("nki nl nisa nt np kernel slice range print len min max sum abs".split())
"""Names that a kernel's own must not hide."""


class AccessPrinter:
    """Gives names to tensors, loops and index tiles, and writes operands and masks with them."""

    def __init__(self, kernel: Kernel) -> None:
        """Start with the kernel's parameter names taken."""
        self.kernel = kernel
        self.taken: set[str] = {*RESERVED, *kernel.signature}
        self.tensor_names: dict[Tensor, str] = {}
        self.loop_names: dict[LoopVar, str] = {}
        self.index_tiles: dict[tuple[int, int, int], str] = {}
        self.scalar_names = unique_scalars(kernel.scalars)
        self.extents = extents_in_use(kernel)

    # -- names --------------------------------------------------------------------------------------------------------
    def unique(self, wanted: str) -> str:
        """An identifier like the one wanted that nothing else has."""
        stem = re.sub(r"\W", "_", wanted).strip("_") or "tile"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"t_{stem}"
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def name(self, tensor: Tensor) -> str:
        """A tensor's name."""
        if tensor not in self.tensor_names:
            self.tensor_names[tensor] = self.unique(tensor.name)
        return self.tensor_names[tensor]

    def name_loops(self, body: list[Node], outer: dict[str, LoopVar]) -> None:
        """Loops keep the source's names; only a loop inside another of the same name gets a new one."""
        tensor_names = set(self.tensor_names.values()) | set(self.kernel.signature) | RESERVED
        for node in body:
            if not isinstance(node, Loop):
                continue
            stem = re.sub(r"_\d+$", "", node.var.name)
            stem = stem if stem.isidentifier() and not keyword.iskeyword(stem) else "i"
            name, n = stem, 1
            while name in outer or name in tensor_names:
                n += 1
                name = f"{stem}_{n}"
            self.loop_names[node.var] = name
            self.taken.add(name)
            self.name_loops(node.body, {**outer, name: node.var})

    # -- operands -----------------------------------------------------------------------------------------------------
    def operand(self, value: Operand) -> str:
        """A tile or a number as an argument."""
        if isinstance(value, Access):
            return self.subscripted(value)
        if isinstance(value, float) and value in self.scalar_names:
            return self.scalar_names[value]
        return number(value)

    def subscripted(self, access: Access, always: bool = False) -> str:
        """An access as source. `always`: with a subscript even for the whole tensor, as an assignment needs it."""
        name = self.name(access.tensor)
        broadcast = access.broadcast_axes()
        if broadcast:
            shape = tuple(1 if k in broadcast else n for k, n in enumerate(access.shape))
            inner = Access(access.tensor, access.index, shape)
            return f"{self.subscripted(inner)}.broadcast_to({tuple_of(map(str, access.shape))})"
        if is_whole(access) and (access.tensor.par_dim == 0):
            return f"{name}[...]" if always else name
        slices = self.slices(access)
        if slices is not None:
            return f"{name}[{', '.join(slices)}]"
        return f"{name}[{', '.join(self.index(e, access.shape) for e in access.index)}]"

    def slices(self, access: Access) -> list[str] | None:
        """The subscript in slices, or None if the access is not a plain box of the tensor.

        Slices keep their dimension and numbers drop it, so the slices must be the tile's axes in order. A tile axis of
        one element appears in no index; a dimension that is indexed by a number carries it, as a slice of length one.
        """
        if access.is_indirect:
            return None
        tensor = access.tensor
        axis = len(access.shape) - 1
        out: list[str] = []
        for dim in range(len(tensor.shape) - 1, -1, -1):
            e, extent = access.affine[dim], tensor.shape[dim]
            axes = e.axes()
            if axes:
                if axes != (axis,) or e.coefficient(axis) != 1:
                    return None
                start = e - Affine.of(axis)
                low, high = start.bounds(lambda s: s.trips if isinstance(s, LoopVar) else 1)
                if low < 0 or high + access.shape[axis] > extent:
                    return None  # only a mask keeps it inside, and masks go with index tiles
                out.append(self.slice(start, access.shape[axis], extent))
                axis -= 1
            elif axis >= 0 and access.shape[axis] == 1 and self.may_carry(tensor, dim, axis):
                out.append(self.slice(e, 1, extent))
                axis -= 1
            else:
                out.append(self.affine(e, ()))
        return out[::-1] if axis < 0 else None

    @staticmethod
    def may_carry(tensor: Tensor, dim: int, axis: int) -> bool:
        """Whether a dimension may be the tile's axis: on chip, the first axis is the partition and blocks are none."""
        if not tensor.buffer.on_chip:
            return True
        return dim == tensor.par_dim if axis == 0 else dim > tensor.par_dim

    def slice(self, start: Affine, size: int, extent: int) -> str:
        """One dimension of a subscript in slices."""
        if start.is_const and start.const == 0 and size == extent:
            return ":"
        low, high = self.affine(start, ()), self.affine(start + size, ())
        return f"{low}:{high}" if start.is_const else f"{low} : {high}"

    def index(self, e: Affine | Indirect, shape: tuple[int, ...]) -> str:
        """One dimension of a subscript in index tiles."""
        if isinstance(e, Indirect):
            inner = f"{self.name(e.tile.tensor)}[{', '.join(self.index(i, shape) for i in e.tile.index)}]"
            text = inner if e.scale == 1 else f"{e.scale} * {inner}"
            offset = self.affine(e.offset, shape)
            return text if offset == "0" else f"{text} + {offset}"
        return self.affine(e, shape)

    def affine(self, e: Affine, shape: tuple[int, ...]) -> str:
        """An index expression; axes are written as index tiles of the access's shape."""
        text = ""
        for symbol, c in sorted(e.terms.items(), key=_loops_first):
            name = (
                self.tile(len(shape), symbol, shape[symbol])
                if isinstance(symbol, int)
                else self.loop_names[symbol]
            )
            term = name if abs(c) == 1 else f"{abs(c)} * {name}"
            text += (f" - {term}" if c < 0 else f" + {term}") if text else (f"-{term}" if c < 0 else term)
        if not text:
            return str(e.const)
        if e.const:
            text += f" + {e.const}" if e.const > 0 else f" - {-e.const}"
        return text

    def tile(self, rank: int, axis: int, extent: int) -> str:
        """The name of ``nl.arange(extent)`` along one axis of tiles of that rank."""
        key = (rank, axis, extent)
        if key not in self.index_tiles:
            letters = {1: "p", 2: "pf", 3: "pxf", 4: "pxyf", 5: "pxyzf"}.get(rank)
            stem = f"i_{letters[axis]}" if letters else f"i_{axis}"
            stem = stem if rank == 2 else f"{stem}_{rank}d"
            others = {n for r, a, n in self.extents if (r, a) == (rank, axis)}
            if len(others) > 1:
                stem = f"{stem}_{extent}"
            self.index_tiles[key] = self.unique(stem)
        return self.index_tiles[key]

    # -- masks --------------------------------------------------------------------------------------------------------
    def mask(self, instr: Instr) -> list[str]:
        """The ``mask=`` argument, if there is a mask."""
        if not instr.mask:
            return []
        return [f"mask={conjunction([self.condition(e, instr.mask_space) for e in instr.mask])}"]

    def condition(self, e: Affine, shape: tuple[int, ...]) -> str:
        """``e >= 0`` with the negative terms moved to the other side: ``128 * i + i_p < 1000``."""
        left = Affine(0, {s: -c for s, c in e.terms.items() if c < 0})
        right = Affine(e.const, {s: c for s, c in e.terms.items() if c > 0})
        if left.is_const:
            return f"{self.affine(right - e.const, shape)} >= {-e.const}"
        if right.is_const:
            return f"{self.affine(left, shape)} < {e.const + 1}"
        return f"{self.affine(left, shape)} <= {self.affine(right, shape)}"


def _loops_first(term: tuple[LoopVar | int, int]) -> tuple[bool, int]:
    """Loop indices before axes, the one with the largest step first, as nested tiles are usually written."""
    symbol, coefficient = term
    return (True, symbol) if isinstance(symbol, int) else (False, -abs(coefficient))
