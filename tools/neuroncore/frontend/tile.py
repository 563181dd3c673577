"""What a kernel holds in its hands: tensors, tiles and views of them.

A `Tile` is an `Access` being built: indexing composes affine index expressions, operators and methods emit
instructions. HBM tensors, on-chip tensors and their slices are all `Tile`s, as they are all tensors in NKI.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import Dtype, as_dtype
from ..errors import NKIError
from ..ir import Access, Affine, Buffer, Indirect, LoopVar, Tensor, TensorKind, identity_index
from .index import Condition, DynamicSlice, IndexExpr, MGrid, as_integer, broadcast_shapes, shift_axes
from .session import Retrace, current


class Tile:
    """A tensor or a part of one, as NKI code sees it.

    Attributes:
        access: where it is.
        shape: its extents as the kernel sees them (an `Access` has the same).
    """

    __slots__ = ("access", "_view_dtype")
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, access: Access, view_dtype: Dtype | None = None) -> None:
        """`view_dtype`: element type when it is seen through ``view(dtype)``."""
        self.access = access
        self._view_dtype = view_dtype

    # -- facts ---------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.access.shape

    @property
    def dtype(self) -> Dtype:
        """Element type."""
        return self._view_dtype or self.access.tensor.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.access.shape)

    @property
    def buffer(self) -> Buffer:
        """Memory."""
        return self.access.tensor.buffer

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.access.shape)

    @property
    def par_dim(self) -> int:
        """Position of the partition dimension."""
        return self.access.tensor.par_dim

    def __repr__(self) -> str:
        """For messages and f-strings in kernels."""
        return f"{self.access.tensor.name}{list(self.shape)}"

    def __len__(self) -> int:
        """First extent."""
        return self.access.shape[0]

    def __iter__(self) -> Any:
        """Refused: a tile is not a Python sequence."""
        raise NKIError(
            "unsupported_iteration",
            f"{self!r} cannot be iterated over while tracing",
            line=current().line(),
            remedy="loop over nl.affine_range and index the tensor",
        )

    def __bool__(self) -> bool:
        """Refused: the value is not known while tracing."""
        raise NKIError(
            "err_ambiguous_tensor_truth_value",
            f"the truth value of {self!r} is needed, which is only known at run time",
            line=current().line(),
        )

    def __index__(self) -> int:
        """Refused: the value is not known while tracing."""
        raise NKIError(
            "err_dynamic_control_flow_not_supported",
            f"the value of {self!r} is needed as an integer while tracing",
            line=current().line(),
        )

    __int__ = __index__

    def __float__(self) -> float:
        """Refused, as `__index__`."""
        self.__index__()
        return 0.0

    def __getattr__(self, name: str) -> Any:
        """The view methods that only the later dialect's tensors have."""
        if not name.startswith("_") and current().dialect == "nki":
            from .dialect_nki.views import METHODS

            if name in METHODS:
                return functools.partial(METHODS[name], self)
        raise AttributeError(f"a tensor has no attribute `{name}`")

    # -- views ---------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Tile:
        """A part: slices, `nl.ds`, integers and loop indices, or `nl.arange` expressions; never both kinds at once."""
        return Tile(index_access(self.access, key), self._view_dtype)

    def reshape(self, *shape: Any) -> Tile:
        """The same elements in another shape, where that is a view."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return Tile(reshape_access(self.access, tuple(as_extent(d) for d in dims)), self._view_dtype)

    def broadcast_to(self, *shape: Any) -> Tile:
        """A view that repeats axes of extent 1 (along the partition axis the hardware needs a matmul for it)."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return Tile(broadcast_access(self.access, tuple(as_extent(d) for d in dims)), self._view_dtype)

    def expand_dims(self, axis: Any) -> Tile:
        """Insert axes of extent 1."""
        axes = axis if isinstance(axis, tuple | list) else (axis,)
        n = self.ndim + len(axes)
        where = {a % n for a in axes}
        keys = tuple(None if k in where else slice(None) for k in range(n))
        return self[keys]

    def squeeze(self, axis: Any = None) -> Tile:
        """Drop axes of extent 1."""
        axes = range(self.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
        drop = {a % self.ndim for a in axes if self.shape[a] == 1}
        return self[tuple(0 if k in drop else slice(None) for k in range(self.ndim))]

    def view(self, dtype: Any) -> Tile:
        """The same bytes as another element type of the same size."""
        new = as_dtype(dtype, current().line())
        if new.itemsize != self.dtype.itemsize:
            raise NKIError(
                "unsupported_view",
                f"view from {self.dtype} to {new} changes the element size",
                line=current().line(),
            )
        return Tile(self.access, new)

    def assert_shape(self, shape: Any) -> Tile:
        """Itself, if it has that shape."""
        if tuple(as_extent(d) for d in shape) != self.shape:
            raise NKIError(
                "err_annotation_shape_mismatch",
                f"{self!r} is asserted to have shape {list(shape)}",
                line=current().line(),
            )
        return self

    # -- writing -------------------------------------------------------------------------------------------------------
    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a value into a part."""
        calls().assign(index_access(self.access, key), value)

    def astype(self, dtype: Any) -> Tile:
        """A copy in another element type."""
        return calls().copy(self, dtype=dtype)


def _binary(name: str, reverse: bool = False) -> Callable[[Tile, Any], Any]:
    def method(self: Tile, other: Any) -> Any:
        return calls().binary(name, other, self) if reverse else calls().binary(name, self, other)

    method.__doc__ = f"`nl.{name}`."
    return method


def _unary(name: str) -> Callable[[Tile], Any]:
    def method(self: Tile) -> Any:
        return calls().unary(name, self)

    method.__doc__ = f"`nl.{name}`."
    return method


def _inplace(name: str) -> Callable[[Tile, Any], Any]:
    def method(self: Tile, other: Any) -> Any:
        return calls().update(name, self, other)

    method.__doc__ = f"`nl.{name}` into itself."
    return method


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "mod": "mod",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
for _python, _nki in _OPERATORS.items():
    setattr(Tile, f"__{_python}__", _binary(_nki))
    setattr(Tile, f"__r{_python}__", _binary(_nki, reverse=True))
    setattr(Tile, f"__i{_python}__", _inplace(_nki))
for _python, _nki in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}.items():
    setattr(Tile, f"__{_python}__", _binary(_nki))
for _python, _nki in {"neg": "negative", "abs": "abs", "invert": "invert"}.items():
    setattr(Tile, f"__{_python}__", _unary(_nki))


def calls() -> Any:
    """The emitters behind operators (imported late: they need this module)."""
    from . import emit

    return emit


def as_extent(value: Any) -> int:
    """A positive integer extent."""
    try:
        n = int(value.__index__())
    except (AttributeError, TypeError):
        raise NKIError("invalid_shape", f"{value!r} is not an extent", line=current().line()) from None
    if n <= 0 and n != -1:
        raise NKIError("invalid_shape", f"extent {n} is not positive", line=current().line())
    return n


# -- indexing ----------------------------------------------------------------------------------------------------------
def index_access(access: Access, key: Any) -> Access:
    """The part of `access` that a subscript selects.

    Raises:
        NKIError: for out-of-range constants, mixed indexing, or unsupported subscripts.
    """
    session = current()
    keys = list(key) if isinstance(key, tuple) else [key]
    flat: list[Any] = []
    for k in keys:
        flat.extend(k.parts if isinstance(k, MGrid) else [k])
    ndim = len(access.shape)
    consumed = sum(1 for k in flat if k is not None and k is not Ellipsis)
    if consumed > ndim:
        raise NKIError(
            "too_many_indices",
            f"{consumed} indices for {access.tensor.name} of shape {list(access.shape)}",
            line=session.line(),
        )
    if any(k is Ellipsis for k in flat):
        at = next(i for i, k in enumerate(flat) if k is Ellipsis)
        flat[at : at + 1] = [slice(None)] * (ndim - consumed)
    else:
        flat += [slice(None)] * (ndim - consumed)
    advanced = any(isinstance(k, Tile) or isinstance(k, IndexExpr) and k.shape for k in flat)
    if advanced:
        basic = [k for k in flat if isinstance(k, slice | DynamicSlice) or k is None]
        trailing = all(isinstance(k, slice) and k == slice(None) for k in basic)
        if basic and not (trailing and flat[-len(basic) :] == basic and consumed < ndim):
            raise NKIError(
                "err_unsupported_mixing_basic_advanced_tensor_indexing",
                f"slices and nl.arange indices are mixed in one subscript of {access.tensor.name}",
                line=session.line(),
            )
        return _advanced(access, flat)
    return _basic(access, flat)


def _basic(access: Access, keys: list[Any]) -> Access:
    session = current()
    replacement: dict[LoopVar | int, Affine | int] = {}
    shape: list[int] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        extent = access.shape[axis]
        if isinstance(k, slice | DynamicSlice):
            start, size, step = _slice_parts(k, extent, access)
            _check_range(access, axis, start.bounds(_trips), size, step)
            replacement[axis] = start + (Affine(0, {len(shape): step}) if size > 1 else 0)
            shape.append(size)
        else:
            position = _scalar_index(k, extent, access)
            _check_range(access, axis, position.bounds(_trips), 1, 1)
            replacement[axis] = position
        axis += 1
    del session
    return Access(access.tensor, _substitute_index(access, replacement), tuple(shape))


def _trips(symbol: LoopVar | int) -> int:
    assert isinstance(symbol, LoopVar)
    return symbol.trips


def _check_range(access: Access, axis: int, start: tuple[int, int], size: int, step: int) -> None:
    low = start[0] + min(0, step * (size - 1))
    high = start[1] + max(0, step * (size - 1))
    if low < 0 or high >= access.shape[axis]:
        raise out_of_bounds(access.tensor, axis, low, high, access.shape[axis])


def out_of_bounds(tensor: Tensor, dim: int, low: int, high: int, size: int) -> NKIError:
    """The error for an index range that leaves its dimension."""
    return NKIError(
        "err_tensor_access_out_of_bound",
        f"Out-of-bound access for tensor `{tensor.name}` on dimension {dim}: index range [{low}, {high}] exceed "
        f"dimension size of {size}",
        line=current().line(),
    )


def _slice_parts(k: slice | DynamicSlice, extent: int, access: Access) -> tuple[Affine, int, int]:
    session = current()
    if isinstance(k, DynamicSlice):
        return _as_affine(k.start, access), k.size, 1
    step = as_integer(k.step) if k.step is not None else 1
    if step is None or step <= 0:
        raise NKIError(
            "unsupported_slice", f"slice step {k.step!r} is not a positive integer", line=session.line()
        )
    start_value = 0 if k.start is None else k.start
    stop_value = extent if k.stop is None else k.stop
    start, stop = _as_affine(start_value, access), _as_affine(stop_value, access)
    if start.is_const and start.const < 0:
        start = start + extent
    if stop.is_const and stop.const < 0:
        stop = stop + extent
    length = stop - start
    if not length.is_const:
        raise NKIError(
            "unsupported_slice",
            f"the length of slice {k.start!r}:{k.stop!r} depends on a loop index",
            line=session.line(),
            remedy="use slices of constant length, and mask= at the edge",
        )
    size = -(-length.const // step)
    if size <= 0:
        raise NKIError(
            "empty_slice",
            f"slice {k.start!r}:{k.stop!r} of {access.tensor.name} is empty",
            line=session.line(),
        )
    return start, size, step


def _as_affine(value: Any, access: Access) -> Affine:
    if isinstance(value, IndexExpr):
        if value.affine.axes():
            raise NKIError("unsupported_slice", "a slice bound depends on nl.arange", line=current().line())
        return value.affine
    n = as_integer(value)
    if n is None:
        if isinstance(value, Tile):
            raise NKIError(
                "err_dynamic_control_flow_not_supported",
                f"a slice bound of {access.tensor.name} is a tile",
                line=current().line(),
            )
        raise NKIError(
            "unsupported_index", f"{access.tensor.name} is indexed with {value!r}", line=current().line()
        )
    return Affine(n)


def _scalar_index(value: Any, extent: int, access: Access) -> Affine:
    affine = _as_affine(value, access)
    if affine.is_const and affine.const < 0:
        return affine + extent
    return affine


def _advanced(access: Access, keys: list[Any]) -> Access:
    """All dimensions by index arrays, scalars, index tiles, or trailing full slices."""
    shape: tuple[int, ...] = ()
    for k in keys:
        if isinstance(k, IndexExpr | Tile):
            if len(k.shape) == 1 and k.shape[0] > 1:
                raise NKIError(
                    "err_1d_arange_not_supported",
                    f"{access.tensor.name} is indexed with a one-dimensional index of {k.shape[0]} elements",
                    line=current().line(),
                )
            shape = broadcast_shapes(shape, k.shape)
    full = [i for i, k in enumerate(keys) if isinstance(k, slice)]
    tail = tuple(access.shape[i] for i in full)
    replacement: dict[LoopVar | int, Affine | int] = {}
    indirect: dict[int, Indirect] = {}
    for axis, k in enumerate(keys):
        if isinstance(k, slice):
            replacement[axis] = Affine.of(len(shape) + full.index(axis)) if access.shape[axis] > 1 else 0
        elif isinstance(k, Tile):
            indirect[axis] = _indirect(access, axis, k, shape)
        elif isinstance(k, IndexExpr):
            replacement[axis] = shift_axes(k.affine, len(shape) - len(k.shape))
        else:
            replacement[axis] = _scalar_index(k, access.shape[axis], access)
    index = list(_substitute_index(access, replacement))
    for axis, e in indirect.items():
        dims = [d for d, old in enumerate(access.index) if isinstance(old, Affine) and axis in old.terms]
        if len(dims) != 1:
            raise NKIError(
                "err_indirect_indices_free_dim",
                f"{access.tensor.name} is indexed indirectly through a view",
                line=current().line(),
            )
        old = access.index[dims[0]]
        assert isinstance(old, Affine)
        coefficient = old.coefficient(axis)
        rest = (old - Affine.of(axis, coefficient)).substitute(replacement)
        index[dims[0]] = Indirect(e.tile, rest + e.offset * coefficient, e.scale * coefficient)
    return Access(access.tensor, tuple(index), (*shape, *tail))


def _indirect(access: Access, axis: int, tile: Tile, shape: tuple[int, ...]) -> Indirect:
    if access.tensor.buffer.on_chip:
        raise NKIError(
            "err_indirect_indices_are_not_supported_with_nki_api",
            f"on-chip tensor {access.tensor.name} is indexed with a tile",
            line=current().line(),
        )
    if tile.buffer is not Buffer.SBUF:
        raise NKIError(
            "err_unsupported_memory",
            f"index tile {tile!r} is in {tile.buffer}, it must be in sbuf",
            line=current().line(),
        )
    if np.dtype(tile.dtype).kind not in "iu":
        raise NKIError(
            "invalid_index_dtype", f"index tile {tile!r} has type {tile.dtype}", line=current().line()
        )
    shift = len(shape) - len(tile.shape)
    inner = tile.access.substitute({k: Affine.of(k + shift) for k in range(len(tile.shape))})
    return Indirect(Access(inner.tensor, inner.index, shape))


def _substitute_index(
    access: Access, replacement: dict[LoopVar | int, Affine | int]
) -> tuple[Affine | Indirect, ...]:
    out: list[Affine | Indirect] = []
    for e in access.index:
        if isinstance(e, Indirect):
            out.append(Indirect(e.tile.substitute(replacement), e.offset.substitute(replacement), e.scale))
        else:
            out.append(e.substitute(replacement))
    return tuple(out)


def broadcast_access(access: Access, shape: tuple[int, ...]) -> Access:
    """`access` seen with a larger shape: axes of extent 1 (or missing leading axes) repeat."""
    old = access.shape
    shift = len(shape) - len(old)
    if shift < 0 or any(o not in (1, n) for o, n in zip(old, shape[shift:], strict=True)):
        raise NKIError(
            "shape_mismatch",
            f"{access.tensor.name} of shape {list(old)} does not broadcast to {list(shape)}",
            line=current().line(),
        )
    index = _substitute_index(access, {k: Affine.of(k + shift) if n > 1 else 0 for k, n in enumerate(old)})
    return Access(access.tensor, index, shape)


def reshape_access(access: Access, shape: tuple[int, ...]) -> Access:
    """`access` with its axes split or merged.

    Raises:
        NKIError: where the new axes are not affine in the old ones (that would be a copy).
    """
    session = current()
    size = math.prod(access.shape)
    if -1 in shape:
        known = math.prod(d for d in shape if d != -1)
        shape = tuple(size // known if d == -1 else d for d in shape)
    if math.prod(shape) != size:
        raise NKIError(
            "shape_mismatch",
            f"cannot reshape {access.tensor.name}{list(access.shape)} to {list(shape)}",
            line=session.line(),
        )
    if shape == access.shape:
        return access
    whole = access == access.tensor.whole()
    if whole and not access.tensor.buffer.on_chip:
        tensor = access.tensor
        view = Tensor(
            session.unique(session.hint() or tensor.name),
            shape,
            tensor.dtype,
            tensor.buffer,
            kind=tensor.kind,
            scope=tensor.scope,
            view_of=tensor,
            declared=True,
            mutable=tensor.mutable,
            line=session.line(),
        )
        return view.whole()
    replacement = _regroup(access.shape, shape)
    if replacement is None:
        merged = _merge_free(access, shape)
        if merged is not None:
            return merged
        raise NKIError(
            "unsupported_reshape",
            f"reshape of {access.tensor.name}{list(access.shape)} to {list(shape)} is not a view",
            line=session.line(),
            remedy="reshape the whole tensor, or index it with nl.arange expressions",
        )
    return Access(access.tensor, _substitute_index(access, replacement), shape)


def _regroup(old: tuple[int, ...], new: tuple[int, ...]) -> dict[LoopVar | int, Affine | int] | None:
    """Old axes as affine expressions of new ones, when every new axis lies within one old axis."""
    replacement: dict[LoopVar | int, Affine | int] = {}
    j = 0
    for k, extent in enumerate(old):
        parts: list[int] = []
        product = 1
        while product < extent and j < len(new):
            parts.append(j)
            product *= new[j]
            j += 1
        if product != extent:
            return None
        expression = Affine(0)
        stride = extent
        for p in parts:
            stride //= new[p]
            if new[p] > 1:
                expression = expression + Affine(0, {p: stride})
        replacement[k] = expression
        while j < len(new) and new[j] == 1:
            j += 1
    return replacement if all(n == 1 for n in new[j:]) else None


def _merge_free(access: Access, shape: tuple[int, ...]) -> Access | None:
    """Merge free axes that together run over one dimension without gaps."""
    old = access.shape
    if len(shape) >= len(old):
        return None
    # Only the case of trailing axes merged into the last one.
    head = len(shape) - 1
    if shape[:head] != old[:head] or math.prod(old[head:]) != shape[head]:
        return None
    strides: dict[int, tuple[int, int]] = {}
    for d, e in enumerate(access.index):
        if not isinstance(e, Affine):
            return None
        for axis in e.axes():
            if axis >= head:
                if axis in strides:
                    return None
                strides[axis] = (d, e.coefficient(axis))
    used = [a for a in range(head, len(old)) if old[a] > 1]
    dims = {strides[a][0] for a in used if a in strides}
    if len(dims) != 1 or any(a not in strides for a in used):
        return None
    inner = strides[used[-1]][1]
    expected = inner
    for a in reversed(used):
        if strides[a][1] != expected:
            return None
        expected *= old[a]
    d = dims.pop()
    e = access.index[d]
    assert isinstance(e, Affine)
    base = e.substitute({a: 0 for a in used})
    index = list(access.index)
    index[d] = base + Affine(0, {head: inner})
    return Access(access.tensor, tuple(index), shape)


# -- operands ----------------------------------------------------------------------------------------------------------
def operand(value: Tile, *, name: str, op: str, buffers: tuple[Buffer, ...] | None = None) -> Access:
    """The access of a tile used as an operand: in scope, in the right memory, a proper tile.

    Raises:
        NKIError: otherwise.
    """
    session = current()
    access = value.access
    tensor = access.tensor
    if buffers is not None and tensor.buffer not in buffers:
        expected = " or ".join(f"'{b}'" for b in buffers)
        raise NKIError(
            "err_unsupported_memory",
            f"Expected operand '{name}' of '{op}' to be in address space {expected}, but got a tile in "
            f"'{tensor.buffer}' instead.",
            line=session.line(),
        )
    site = session.moved.get(tensor)
    if site is not None:
        session.assumptions.kept.add(site)
        raise Retrace(f"{tensor.name} is used after it was assigned into another tensor")
    session.check_scope(access)
    for e in access.index:
        if isinstance(e, Indirect):
            session.check_scope(e.tile)
    if tensor.buffer.on_chip:
        return as_tile(access, name=name, op=op)
    return access


def as_tile(access: Access, *, name: str, op: str) -> Access:
    """An on-chip access with its partition axis first, at least two axes, and no axis over a block dimension.

    Raises:
        NKIError: if it is not a tile.
    """
    session = current()
    tensor = access.tensor
    if len(access.shape) < 2:
        access = Access(tensor, access.index, (*access.shape, *(1,) * (2 - len(access.shape))))
    p = access.index[tensor.par_dim]
    blocks = access.index[: tensor.par_dim]
    free = access.index[tensor.par_dim + 1 :]
    if any(isinstance(e, Affine) and e.axes() for e in blocks):
        raise NKIError(
            "err_failed_to_infer_tile_from_local_tensor",
            f"operand '{name}' of '{op}' spans block dimensions of {tensor.name}{list(tensor.shape)}; its partition "
            f"dimension is dimension {tensor.par_dim}",
            line=session.line(),
        )
    p_axes = p.axes() if isinstance(p, Affine) else ()
    if any(a != 0 for a in p_axes) or any(0 in e.axes() for e in free if isinstance(e, Affine)):
        raise NKIError(
            "err_leading_dimension_of_tensor_must_be_partition",
            f"the first axis of operand '{name}' of '{op}' must run over the partition dimension of {tensor.name}",
            line=session.line(),
        )
    if access.shape[0] > session.machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {access.shape[0]} exceeds architecture limitation of "
            f"{session.machine.partitions}.",
            line=session.line(),
        )
    return access


def check_bounds(access: Access, mask: tuple[Affine, ...]) -> None:
    """Refuse an access whose affine index may leave its tensor where the mask allows it.

    Raises:
        NKIError: `err_tensor_access_out_of_bound`.
    """
    tensor = access.tensor
    if access.index is identity_index(tensor.shape) and access.shape == tensor.shape:
        return

    def extent(s: LoopVar | int) -> int:
        return access.shape[s] if isinstance(s, int) else s.trips

    for dim, e in enumerate(access.index):
        if isinstance(e, Indirect):
            continue
        low, high = e.bounds(extent)
        size = tensor.shape[dim]
        if (
            low < 0
            and not _guarded(e, mask, extent)
            or high >= size
            and not _guarded(-e + (size - 1), mask, extent)
        ):
            raise out_of_bounds(tensor, dim, low, high, size)


def _guarded(slack: Affine, mask: tuple[Affine, ...], extent: Callable[[LoopVar | int], int]) -> bool:
    """Whether `slack >= 0` follows from one of the mask's conditions."""
    for condition in mask:
        for s, c in slack.terms.items():
            m = condition.coefficient(s)
            if not m or (m > 0) != (c > 0):
                continue
            # slack·|m| - condition·|c| >= 0 everywhere makes slack >= 0 wherever the condition holds.
            difference = slack * abs(m) - condition * abs(c)
            if difference.bounds(extent)[0] > -abs(m):
                return True
    return False


def mask_parts(mask: Any, ndim: int) -> tuple[Affine, ...]:
    """The inequalities of a ``mask=`` argument over the axes of a tile with `ndim` axes.

    Raises:
        NKIError: `err_unsupported_expression_in_mask`.
    """
    if mask is None or mask is True:
        return ()
    if not isinstance(mask, Condition) or mask.negated:
        raise NKIError(
            "err_unsupported_expression_in_mask",
            f"a mask must be comparisons of affine expressions, got {type(mask).__name__}",
            line=current().line(),
        )
    parts = []
    for part in mask.parts:
        shift = ndim - len(part.shape)
        if shift < 0:
            raise NKIError(
                "err_unsupported_expression_in_mask",
                f"a mask with {len(part.shape)} axes is applied to a tile with {ndim}",
                line=current().line(),
            )
        affine = shift_axes(part.affine, shift)
        if affine.is_const and affine.const >= 0:
            continue
        parts.append(affine)
    return tuple(parts)


def new_tile(
    shape: tuple[int, ...],
    dtype: Dtype,
    buffer: Buffer,
    *,
    hint: str,
    declared: bool = False,
    par_dim: int = 0,
) -> Tile:
    """A fresh on-chip tensor in the current scope, as a tile.

    Raises:
        NKIError: if it cannot exist on the target.
    """
    session = current()
    if len(shape) < 2:
        shape = (*shape, *(1,) * (2 - len(shape)))
    tensor = Tensor(
        session.unique(session.hint() or hint),
        shape,
        dtype,
        buffer,
        par_dim=par_dim,
        kind=TensorKind.LOCAL,
        scope=session.scope,
        declared=declared,
        line=session.line(),
    )
    check_capacity(tensor)
    return Tile(tensor.whole())


def check_capacity(tensor: Tensor) -> None:
    """Refuse a tensor that the target's memories cannot hold.

    Raises:
        NKIError: too many partitions, a PSUM tile larger than a bank, or an SBUF tile larger than SBUF.
    """
    session = current()
    machine = session.machine
    if math.prod(tensor.shape) * tensor.dtype.itemsize > session.limits.tensor_bytes:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"tensor `{tensor.name}` of shape {list(tensor.shape)} takes "
            f"{math.prod(tensor.shape) * tensor.dtype.itemsize:,} bytes",
            line=session.line(),
        )
    if not tensor.buffer.on_chip:
        return
    partitions = tensor.shape[tensor.par_dim]
    if partitions > machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {partitions} exceeds architecture limitation of {machine.partitions}.",
            line=session.line(),
        )
    free = tensor.free_bytes_per_partition
    if tensor.buffer is Buffer.PSUM:
        if free > machine.psum_bytes_per_partition:
            raise NKIError(
                "err_size_of_dimension_exceed_arch_limit",
                f"PSUM tensor `{tensor.name}` takes {free} bytes per partition; PSUM has "
                f"{machine.psum_bytes_per_partition}, in banks of {machine.psum_bank_bytes}",
                line=session.line(),
            )
    elif free > machine.sbuf_bytes_per_partition:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"SBUF tensor `{tensor.name}` takes {free} bytes per partition; SBUF has {machine.sbuf_bytes_per_partition}",
            line=session.line(),
        )
