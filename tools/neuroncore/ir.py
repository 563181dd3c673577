"""The intermediate representation: what one NKI kernel does, with its loops kept symbolic.

Everything downstream of the front end reads this and nothing else: the interpreter (results), the compiler and
execution models (time and counters), the rewrites and their printer (new kernels).

* A `Kernel` has a tree of `Loop` and `Instr` nodes. A loop's body is traced once; its `LoopVar` stands for the values
  ``0 .. trips-1`` (start and step of the source loop are folded into the index expressions).
* An `Instr` is one NKI API call, named by its canonical API name (``nl.load``, ``nisa.activation``). Lowering to
  hardware instructions is the compiler model's work, so that the printer gives back what the author wrote.
* Operands are `Access`es: a tensor and, for every one of its dimensions, an affine expression over loop variables
  and the *axes of the tile* (axis ``k`` runs over ``0 .. shape[k]-1``). In
  ``t[i, 128*k + arange(128)[:, None], arange(512)[None, :]]`` the access
  has shape (128, 512) and index ``(i, 128*k + axis0, axis1)``. An axis that appears in no dimension is a broadcast.
* Tensors carry their own scope: the loop in whose body they are created, afresh in each iteration.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Symbol = "LoopVar | int"
"""A loop variable, or the number of a tile axis."""


class LoopVar:
    """The index of a loop: an integer from 0 to ``trips - 1``. Compared by identity."""

    __slots__ = ("name", "trips")

    def __init__(self, name: str, trips: int) -> None:
        """Name it as the source does; `trips` is the loop's iteration count."""
        self.name = name
        self.trips = trips

    def __repr__(self) -> str:
        """The source's name."""
        return self.name


class Affine:
    """``const + Σ coefficient · symbol`` with integer coefficients, none of them zero. Immutable by convention."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: Mapping[LoopVar | int, int] | None = None) -> None:
        """Terms with a zero coefficient must not be passed; arithmetic below keeps it so."""
        self.const = const
        self.terms: Mapping[LoopVar | int, int] = terms if terms is not None else {}

    @classmethod
    def of(cls, symbol: LoopVar | int, coefficient: int = 1) -> Affine:
        """A single symbol."""
        return cls(0, {symbol: coefficient} if coefficient else {})

    def __add__(self, other: Affine | int) -> Affine:
        """Sum."""
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if not other.terms:
            return Affine(self.const + other.const, self.terms)
        terms = dict(self.terms)
        for symbol, coefficient in other.terms.items():
            total = terms.get(symbol, 0) + coefficient
            if total:
                terms[symbol] = total
            else:
                del terms[symbol]
        return Affine(self.const + other.const, terms)

    def __mul__(self, factor: int) -> Affine:
        """Product with an integer."""
        if factor == 1:
            return self
        if factor == 0:
            return Affine(0)
        return Affine(self.const * factor, {s: c * factor for s, c in self.terms.items()})

    def __neg__(self) -> Affine:
        """Negation."""
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        """Difference."""
        return self + (-other)

    def __eq__(self, other: object) -> bool:
        """Same constant and same terms."""
        return isinstance(other, Affine) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash((self.const, frozenset(self.terms.items())))

    def __repr__(self) -> str:
        """``128*k + axis0 + 3``."""
        parts = []
        for symbol, c in self.terms.items():
            name = f"axis{symbol}" if isinstance(symbol, int) else symbol.name
            parts.append(name if c == 1 else f"{c}*{name}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    @property
    def is_const(self) -> bool:
        """Whether no symbol appears."""
        return not self.terms

    def coefficient(self, symbol: LoopVar | int) -> int:
        """The factor of a symbol, 0 if it does not appear."""
        return self.terms.get(symbol, 0)

    def loops(self) -> tuple[LoopVar, ...]:
        """The loop variables that appear."""
        return tuple([s for s in self.terms if not isinstance(s, int)])

    def axes(self) -> tuple[int, ...]:
        """The tile axes that appear."""
        return tuple([s for s in self.terms if isinstance(s, int)])

    def substitute(self, bindings: Mapping[LoopVar | int, Affine | int]) -> Affine:
        """Replace symbols by expressions (or integers); symbols without a binding stay."""
        if not any(s in bindings for s in self.terms):
            return self
        result = Affine(self.const)
        for symbol, c in self.terms.items():
            value = bindings.get(symbol)
            if value is None:
                result = result + Affine(0, {symbol: c})
            elif isinstance(value, int):
                result = result + value * c
            else:
                result = result + value * c
        return result

    def bounds(self, extents: Callable[[LoopVar | int], int]) -> tuple[int, int]:
        """Smallest and largest value when every symbol runs over ``0 .. extents(symbol)-1``."""
        low = high = self.const
        for symbol, c in self.terms.items():
            span = c * (extents(symbol) - 1)
            if span < 0:
                low += span
            else:
                high += span
        return low, high


@functools.lru_cache(maxsize=4096)
def identity_index(shape: tuple[int, ...]) -> tuple[Affine, ...]:
    """One tile axis per dimension, none for extents of 1: the index of a whole tensor, shared by all of that shape."""
    return tuple(Affine.of(k) if n > 1 else Affine(0) for k, n in enumerate(shape))


class Buffer(enum.StrEnum):
    """Where a tensor lives, by NKI's names."""

    HBM = "hbm"
    SHARED_HBM = "shared_hbm"
    SBUF = "sbuf"
    PSUM = "psum"

    @property
    def on_chip(self) -> bool:
        """SBUF or PSUM."""
        return self in (Buffer.SBUF, Buffer.PSUM)


class TensorKind(enum.StrEnum):
    """How a tensor comes to be."""

    INPUT = "input"
    CONSTANT = "constant"
    LOCAL = "local"


class Tensor:
    """A named array on or off chip. Compared by identity.

    Attributes:
        name: unique in the kernel; from the source's variable where that is known.
        shape: all dimensions, block dimensions first.
        dtype: NumPy dtype (``ml_dtypes`` for bf16 and fp8).
        buffer: memory.
        par_dim: position of the partition dimension for on-chip tensors; the dimensions before it are block
            dimensions (separate storage each). 0 for HBM.
        kind: input (a kernel parameter), constant (has `value`), or local.
        scope: the loop in whose body the tensor is created (fresh in each iteration); None for the kernel's top level.
        value: contents of a constant.
        view_of: for a contiguous reshape of another HBM tensor, that tensor; both share storage.
        declared: True if the source declares it (``nl.ndarray``); False if it is the result of an API call.
        mutable: an input that the kernel may write (``nt.mutable_tensor``).
    """

    __slots__ = (
        "name",
        "shape",
        "dtype",
        "buffer",
        "par_dim",
        "kind",
        "scope",
        "value",
        "view_of",
        "declared",
        "mutable",
        "line",
    )

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        buffer: Buffer,
        *,
        par_dim: int = 0,
        kind: TensorKind = TensorKind.LOCAL,
        scope: Loop | None = None,
        value: np.ndarray | None = None,
        view_of: Tensor | None = None,
        declared: bool = False,
        mutable: bool = False,
        line: int = 0,
    ) -> None:
        """See the class attributes."""
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.buffer = buffer
        self.par_dim = par_dim
        self.kind = kind
        self.scope = scope
        self.value = value
        self.view_of = view_of
        self.declared = declared
        self.mutable = mutable
        self.line = line

    def __repr__(self) -> str:
        """``name[128, 512]:float32@sbuf``."""
        return f"{self.name}{list(self.shape)}:{self.dtype}@{self.buffer}"

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Dimensions before the partition dimension."""
        return self.shape[: self.par_dim]

    @property
    def free_bytes_per_partition(self) -> int:
        """Bytes that one block of an on-chip tensor takes in each partition."""
        return math.prod(self.shape[self.par_dim + 1 :]) * self.dtype.itemsize

    @property
    def storage(self) -> Tensor:
        """The tensor whose memory this one uses (itself unless it is a view)."""
        tensor = self
        while tensor.view_of is not None:
            tensor = tensor.view_of
        return tensor

    def whole(self) -> Access:
        """The access to all of it: one tile axis per dimension; an axis of extent 1 appears in no index."""
        return Access(self, identity_index(self.shape), self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class Indirect:
    """An index read at run time: the value of an index tile, plus an affine offset.

    Attributes:
        tile: access to the SBUF tile of indices; its axes are those of the enclosing access (an axis that the index
            tile does not use is absent from its index expressions).
        offset: added to each index read.
        scale: multiplied to each index read before the offset is added.
    """

    tile: Access
    offset: Affine = Affine(0)  # noqa: RUF009 - Affine is immutable by convention
    scale: int = 1


class Access:
    """A tile of a tensor: for every tensor dimension an index expression over loop variables and tile axes.

    Attributes:
        tensor: what is accessed.
        index: one `Affine` (or `Indirect`) per dimension of the tensor.
        shape: extents of the tile's axes; for on-chip tiles axis 0 is the partition axis, the others are free.
        dtype: the element type seen through this access (`view(dtype)` may differ from the tensor's).
    """

    __slots__ = ("tensor", "index", "shape")

    def __init__(self, tensor: Tensor, index: tuple[Affine | Indirect, ...], shape: tuple[int, ...]) -> None:
        """See the class attributes."""
        self.tensor = tensor
        self.index = index
        self.shape = shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.tensor.dtype

    @property
    def is_indirect(self) -> bool:
        """Whether any dimension's index is read at run time."""
        for e in self.index:
            if isinstance(e, Indirect):
                return True
        return False

    @property
    def affine(self) -> tuple[Affine, ...]:
        """The index of a direct access.

        Raises:
            TypeError: if the access is indirect.
        """
        if self.is_indirect:
            raise TypeError(f"{self!r} is indirect")
        return self.index  # type: ignore[return-value]

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def partition_axis(self) -> int:
        """The axis of the tile that runs along the partitions: the first, unless the tile spans block dimensions."""
        if self.tensor.buffer.on_chip:
            expression = self.index[self.tensor.par_dim]
            if isinstance(expression, Affine):
                return next((symbol for symbol in expression.terms if isinstance(symbol, int)), 0)
        return 0

    @property
    def free_size(self) -> int:
        """Elements per partition of the tile."""
        axis = self.partition_axis
        return math.prod(self.shape[:axis]) * math.prod(self.shape[axis + 1 :])

    def loops(self) -> tuple[LoopVar, ...]:
        """Loop variables that appear anywhere in the index, in order of appearance."""
        if all(not e.terms for e in self.index if isinstance(e, Affine)) and not self.is_indirect:
            return ()
        seen: dict[LoopVar, None] = {}
        for expression in self.index:
            if isinstance(expression, Indirect):
                for v in (*expression.offset.loops(), *expression.tile.loops()):
                    seen[v] = None
            else:
                for v in expression.loops():
                    seen[v] = None
        return tuple(seen)

    def substitute(self, bindings: Mapping[LoopVar | int, Affine | int]) -> Access:
        """Replace loop variables (or axes) in every index expression; the shape stays."""
        index: list[Affine | Indirect] = []
        for e in self.index:
            if isinstance(e, Indirect):
                index.append(Indirect(e.tile.substitute(bindings), e.offset.substitute(bindings), e.scale))
            else:
                index.append(e.substitute(bindings))
        return Access(self.tensor, tuple(index), self.shape)

    def broadcast_axes(self) -> tuple[int, ...]:
        """Axes longer than 1 along which the tile repeats itself."""
        used: set[int] = set()
        for e in self.index:
            if isinstance(e, Indirect):
                used.update(e.offset.axes())
                for inner in e.tile.index:
                    if isinstance(inner, Affine):
                        used.update(inner.axes())
            else:
                used.update(e.axes())
        return tuple(k for k, n in enumerate(self.shape) if n > 1 and k not in used)

    def __eq__(self, other: object) -> bool:
        """Same tensor object, same index, same shape."""
        return (
            isinstance(other, Access)
            and self.tensor is other.tensor
            and self.shape == other.shape
            and self.index == other.index
        )

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash((id(self.tensor), self.shape, self.index))

    def __repr__(self) -> str:
        """``x[128*i + axis0, axis1]:(128, 512)``."""
        return f"{self.tensor.name}[{', '.join(map(repr, self.index))}]:{self.shape}"


Operand = Access | float | int | bool | None

REDUCED_OPERAND = {
    "nisa.tensor_reduce": "data",
    "nisa.bn_stats": "data",
    "nisa.bn_aggr": "data",
    "nisa.max8": "src",
    "nisa.nc_find_index8": "data",
    **{f"nl.{name}": "x" for name in ("sum", "max", "min", "mean", "var", "prod", "all")},
}
"""Operations whose result lacks axes of an operand, and that operand's name."""


class Instr:
    """One NKI API call.

    Attributes:
        op: canonical API name, a key of the operation table (`ops.OPS`).
        dsts: what it writes; most operations have exactly one.
        args: tile and scalar operands by the API's parameter names, in signature order. Scalars are Python numbers.
        attrs: everything else, by parameter name: operation names as strings (``"add"``, ``"exp"``), flags, axes.
            ``accumulate=True`` marks ``dst += op(...)`` of a matmul into PSUM.
        mask: affine conditions ``expression >= 0`` over loop variables and the axes of ``dsts[0]`` (of the operand for
            reductions, see `mask_space`); elements for which one is false are neither read nor written.
        line: line in the kernel's source.
    """

    __slots__ = ("op", "dsts", "args", "attrs", "mask", "line")

    def __init__(
        self,
        op: str,
        dsts: tuple[Access, ...],
        args: Mapping[str, Operand],
        attrs: Mapping[str, Any] | None = None,
        mask: tuple[Affine, ...] = (),
        line: int = 0,
    ) -> None:
        """See the class attributes."""
        self.op = op
        self.dsts = dsts
        self.args = dict(args)
        self.attrs = dict(attrs or {})
        self.mask = mask
        self.line = line

    @property
    def dst(self) -> Access:
        """The first (usually only) destination."""
        return self.dsts[0]

    @property
    def mask_space(self) -> tuple[int, ...]:
        """Extents of the axes that the mask speaks of: those of ``dsts[0]``, of the operand for reductions."""
        operand = self.args.get(REDUCED_OPERAND.get(self.op, ""))
        return operand.shape if isinstance(operand, Access) else self.dsts[0].shape

    def reads(self) -> list[Access]:
        """Every tile it reads, index tiles of indirect accesses and its own destination when accumulating included."""
        tiles = [a for a in self.args.values() if isinstance(a, Access)]
        if self.attrs.get("accumulate"):
            tiles.append(self.dsts[0])
        for access in (*tiles, *self.dsts):
            for e in access.index:
                if isinstance(e, Indirect):
                    tiles.append(e.tile)
        return tiles

    def replace(self, **changes: Any) -> Instr:
        """A copy with some fields changed."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields.update(changes)
        return Instr(**fields)

    def map_accesses(self, function: Callable[[Access], Access]) -> Instr:
        """A copy with every destination and tile operand replaced by ``function`` of it (masks stay)."""
        return self.replace(
            dsts=tuple(function(d) for d in self.dsts),
            args={k: function(a) if isinstance(a, Access) else a for k, a in self.args.items()},
        )

    def __repr__(self) -> str:
        """``y[...] = nisa.activation(data=..., op=exp) @12``."""
        fields = [f"{k}={v!r}" for k, v in (*self.args.items(), *self.attrs.items())]
        mask = f" where {list(self.mask)}" if self.mask else ""
        return f"{', '.join(map(repr, self.dsts))} = {self.op}({', '.join(fields)}){mask} @{self.line}"


class LoopKind(enum.StrEnum):
    """What the source says of a loop's iterations."""

    AFFINE = "affine_range"
    SEQUENTIAL = "sequential_range"
    RANGE = "range"
    SPMD = "spmd"

    @property
    def parallel(self) -> bool:
        """Whether the source promises independent iterations (reductions apart)."""
        return self in (LoopKind.AFFINE, LoopKind.SPMD)


class Loop:
    """A counted loop, its body traced once. Compared by identity.

    Attributes:
        var: its index, running over ``0 .. trips-1``.
        kind: how the source wrote it; SPMD loops are the launch grid.
        body: nodes in program order.
        line: line of the ``for``.
    """

    __slots__ = ("var", "kind", "body", "line")

    def __init__(self, var: LoopVar, kind: LoopKind, body: list[Node] | None = None, line: int = 0) -> None:
        """See the class attributes."""
        self.var = var
        self.kind = kind
        self.body: list[Node] = body if body is not None else []
        self.line = line

    @property
    def trips(self) -> int:
        """Iteration count."""
        return self.var.trips

    def __repr__(self) -> str:
        """``for i in affine_range(32)``."""
        return f"for {self.var.name} in {self.kind}({self.trips})"


Node = Loop | Instr


@dataclasses.dataclass(eq=False, slots=True)
class Kernel:
    """A traced kernel.

    Attributes:
        name: the function's name.
        dialect: ``neuronxcc.nki`` or ``nki``.
        params: input tensors in signature order (scalar parameters are folded into the trace and appear in `scalars`).
        scalars: values of the non-tensor parameters that were given, by name.
        signature: names of the parameters that were given, in order; those left at their defaults are part of the trace.
        outputs: returned HBM tensors in order.
        body: top-level nodes.
        source: the text it was traced from.
        target: ``trn1`` or ``trn2``: the limits it was checked against.
    """

    name: str
    dialect: str
    params: list[Tensor]
    outputs: list[Tensor]
    body: list[Node]
    source: str = ""
    target: str = "trn1"
    scalars: dict[str, Any] = dataclasses.field(default_factory=dict)
    signature: list[str] = dataclasses.field(default_factory=list)

    def walk(self) -> Iterator[tuple[Instr, tuple[Loop, ...]]]:
        """Every instruction in program order with the loops around it, outermost first."""
        yield from walk(self.body)

    def tensors(self) -> list[Tensor]:
        """Every tensor mentioned, parameters first, then in order of first mention."""
        seen: dict[Tensor, None] = dict.fromkeys(self.params)
        for instr, _ in self.walk():
            for access in (*instr.dsts, *instr.reads()):
                seen[access.tensor] = None
        for tensor in self.outputs:
            seen[tensor] = None
        return list(seen)


def walk(body: list[Node], loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Instr, tuple[Loop, ...]]]:
    """Every instruction under `body` in program order, with the loops around it."""
    for node in body:
        if isinstance(node, Loop):
            yield from walk(node.body, (*loops, node))
        else:
            yield node, loops


def clone(kernel: Kernel) -> Kernel:
    """A deep copy with its own loops and tensors (constants' values are shared), for a rewrite to change in place."""
    loop_map: dict[Loop, Loop] = {}
    var_map: dict[LoopVar | int, Affine | int] = {}
    tensor_map: dict[Tensor, Tensor] = {}

    def copy_tensor(t: Tensor) -> Tensor:
        if t not in tensor_map:
            tensor_map[t] = Tensor(
                t.name,
                t.shape,
                t.dtype,
                t.buffer,
                par_dim=t.par_dim,
                kind=t.kind,
                scope=loop_map.get(t.scope) if t.scope is not None else None,
                value=t.value,
                view_of=copy_tensor(t.view_of) if t.view_of is not None else None,
                declared=t.declared,
                mutable=t.mutable,
                line=t.line,
            )
        return tensor_map[t]

    def copy_access(a: Access) -> Access:
        index: list[Affine | Indirect] = []
        for e in a.index:
            if isinstance(e, Indirect):
                index.append(Indirect(copy_access(e.tile), e.offset.substitute(var_map), e.scale))
            else:
                index.append(e.substitute(var_map))
        return Access(copy_tensor(a.tensor), tuple(index), a.shape)

    def copy_attr(value: Any) -> Any:
        if isinstance(value, LoopVar):
            mapped = var_map.get(value)
            return mapped.loops()[0] if isinstance(mapped, Affine) else value
        if isinstance(value, Affine):
            return value.substitute(var_map)
        if isinstance(value, Access):
            return copy_access(value)
        if isinstance(value, tuple):
            return tuple(copy_attr(v) for v in value)
        return value

    def copy_body(body: list[Node]) -> list[Node]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, Loop):
                var = LoopVar(node.var.name, node.var.trips)
                var_map[node.var] = Affine.of(var)
                loop = Loop(var, node.kind, [], node.line)
                loop_map[node] = loop
                loop.body = copy_body(node.body)
                out.append(loop)
            else:
                copied = node.map_accesses(copy_access)
                out.append(
                    copied.replace(
                        attrs={k: copy_attr(v) for k, v in node.attrs.items()},
                        mask=tuple(m.substitute(var_map) for m in node.mask),
                    )
                )
        return out

    params = [copy_tensor(t) for t in kernel.params]
    body = copy_body(kernel.body)
    return dataclasses.replace(
        kernel,
        params=params,
        body=body,
        outputs=[copy_tensor(t) for t in kernel.outputs],
        scalars=dict(kernel.scalars),
        signature=list(kernel.signature),
    )


def fingerprint(kernel: Kernel) -> tuple[Any, ...]:
    """A value equal for two kernels exactly when they are the same program up to names and source lines.

    Loop variables and tensors are numbered in order of first appearance.
    """
    loop_numbers: dict[LoopVar, int] = {}
    tensor_numbers: dict[Tensor, int] = {}
    tensors: list[Any] = []

    def tensor_key(t: Tensor) -> int:
        if t not in tensor_numbers:
            tensor_numbers[t] = len(tensor_numbers)
            tensors.append(None)
            slot = tensor_numbers[t]
            value = t.value.tobytes() if t.value is not None else None
            scope = loop_numbers.get(t.scope.var) if t.scope is not None else None
            view = tensor_key(t.view_of) if t.view_of is not None else None
            tensors[slot] = (t.shape, str(t.dtype), str(t.buffer), t.par_dim, str(t.kind), scope, value, view)
        return tensor_numbers[t]

    def affine_key(e: Affine) -> Any:
        return e.const, tuple(
            sorted(
                (("axis", s) if isinstance(s, int) else ("loop", loop_numbers[s]), c)
                for s, c in e.terms.items()
            )
        )

    def key(value: Any) -> Any:
        if isinstance(value, Access):
            return tensor_key(value.tensor), tuple(key(e) for e in value.index), value.shape
        if isinstance(value, Indirect):
            return "indirect", key(value.tile), affine_key(value.offset), value.scale
        if isinstance(value, Affine):
            return affine_key(value)
        if isinstance(value, LoopVar):
            return "loop", loop_numbers[value]
        if isinstance(value, tuple | list):
            return tuple(key(v) for v in value)
        if isinstance(value, float) and value != value:
            return "nan"
        return value

    def body_key(body: list[Node]) -> tuple[Any, ...]:
        out: list[Any] = []
        for node in body:
            if isinstance(node, Loop):
                loop_numbers[node.var] = len(loop_numbers)
                out.append(("loop", str(node.kind), node.trips, body_key(node.body)))
            else:
                out.append(
                    (
                        node.op,
                        tuple(key(d) for d in node.dsts),
                        tuple((k, key(v)) for k, v in node.args.items() if v is not None),
                        tuple(sorted((k, key(v)) for k, v in node.attrs.items())),
                        tuple(sorted(affine_key(m) for m in node.mask)),
                    )
                )
        return tuple(out)

    params = tuple(tensor_key(t) for t in kernel.params)
    body = body_key(kernel.body)
    outputs = tuple(tensor_key(t) for t in kernel.outputs)
    return kernel.dialect, params, body, outputs, tuple(tensors)
