"""Subscripts: which part of a tensor ``t[...]`` selects, as affine expressions of the new tile's axes.

Subscripts are basic (slices, `nl.ds`, integers, loop indices) or advanced (`nl.arange` expressions, index tiles); NKI does
not mix the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import NKIError
from ..ir import Access, Affine, Buffer, Indirect, LoopVar, Tensor, identity_index
from .index import Condition, DynamicSlice, IndexExpr, MGrid, as_integer, broadcast_shapes, shift_axes
from .session import current
from .tile import Tile
from .views import substitute_index


class RuntimeIndex:
    """``scale * tile + offset``: an index read at run time with an affine offset, as ``offsets[0, i] + nl.arange(4)``.

    Attributes:
        tile: where the index is read.
        offset: what is added to it.
        scale: what it is multiplied with first.
    """

    __slots__ = ("tile", "offset", "scale")
    __array_ufunc__ = None

    def __init__(self, tile: Tile, offset: IndexExpr, scale: int = 1) -> None:
        """See the class attributes."""
        self.tile = tile
        self.offset = offset
        self.scale = scale

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes that it runs over."""
        return broadcast_shapes(self.tile.shape, self.offset.shape)

    def __add__(self, other: Any) -> RuntimeIndex:
        """Sum with an integer or an index expression."""
        if not isinstance(other, IndexExpr) and as_integer(other) is None:
            return NotImplemented
        return RuntimeIndex(self.tile, self.offset + other, self.scale)

    __radd__ = __add__

    def __sub__(self, other: Any) -> RuntimeIndex:
        """Difference."""
        return self + (-other)

    def __mul__(self, other: Any) -> RuntimeIndex:
        """Product with an integer."""
        factor = as_integer(other)
        return (
            NotImplemented
            if factor is None
            else RuntimeIndex(self.tile, self.offset * factor, self.scale * factor)
        )

    __rmul__ = __mul__


def index_access(access: Access, key: Any) -> Access:
    """The part of `access` that a subscript selects.

    Raises:
        NKIError: for out-of-range constants, mixed indexing, or unsupported subscripts.
    """
    keys = key if type(key) is tuple else (key,)
    if len(keys) == len(access.shape):
        for k in keys:
            if type(k) is not slice and type(k) is not int:
                break
        else:
            return _basic(access, keys)
    return _general(access, keys)


def _general(access: Access, keys: tuple[Any, ...]) -> Access:
    flat: list[Any] = []
    for k in keys:
        flat.extend(k.parts if isinstance(k, MGrid) else [k])
    ndim = len(access.shape)
    consumed = sum(1 for k in flat if k is not None and k is not Ellipsis)
    if consumed > ndim:
        raise NKIError(
            "too_many_indices",
            f"{consumed} indices for {access.tensor.name} of shape {list(access.shape)}",
            line=current().line(),
        )
    if any(k is Ellipsis for k in flat):
        at = next(i for i, k in enumerate(flat) if k is Ellipsis)
        flat[at : at + 1] = [slice(None)] * (ndim - consumed)
    else:
        flat += [slice(None)] * (ndim - consumed)
    if any(isinstance(k, Condition) for k in flat):
        raise NKIError(
            "unsupported_index",
            f"{access.tensor.name} is indexed with a comparison",
            line=current().line(),
            remedy="pass the comparison as mask= of the operation",
        )
    if any(isinstance(k, Tile | RuntimeIndex) or isinstance(k, IndexExpr) and k.shape for k in flat):
        basic = [k for k in flat if isinstance(k, slice | DynamicSlice) or k is None]
        trailing = all(isinstance(k, slice) and k == slice(None) for k in basic)
        if basic and not (trailing and flat[-len(basic) :] == basic and consumed < ndim):
            raise NKIError(
                "err_unsupported_mixing_basic_advanced_tensor_indexing",
                f"slices and nl.arange indices are mixed in one subscript of {access.tensor.name}",
                line=current().line(),
            )
        return _advanced(access, flat)
    return _basic(access, tuple(flat))


# -- slices and scalars ------------------------------------------------------------------------------------------------
def _basic(access: Access, keys: tuple[Any, ...]) -> Access:
    extents = access.shape
    parts: list[Affine] = []
    """For every axis of `access`, its position as an expression of the new axes."""
    shape: list[int] = []
    dropped: list[int] = []
    sound = True
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        axis = len(parts)
        extent = extents[axis]
        if type(k) is slice:
            start, stop = k.start, k.stop
            if k.step is None and _is_plain(start) and _is_plain(stop):
                low = 0 if start is None else start if start >= 0 else start + extent
                size = (extent if stop is None else stop if stop >= 0 else stop + extent) - low
                if size <= 0:
                    raise _empty(access, k)
                if low < 0 or low + size > extent:
                    sound = sound and _may_leave(access, axis, low, low + size - 1)
                parts.append(Affine(low, {len(shape): 1} if size > 1 else None))
                shape.append(size)
                continue
        elif type(k) is int:
            position = k if k >= 0 else k + extent
            if not 0 <= position < extent:
                raise out_of_bounds(access.tensor, axis, position, position, extent)
            dropped.append(axis)
            parts.append(Affine(position))
            continue
        if isinstance(k, slice | DynamicSlice):
            base, size, step = _slice_parts(k, extent, access)
            sound = _check_range(access, axis, base.bounds(_trips), size, step) and sound
            parts.append(base + Affine(0, {len(shape): step}) if size > 1 else base)
            shape.append(size)
        else:
            scalar = _scalar_index(k, extent, access)
            sound = _check_range(access, axis, scalar.bounds(_trips), 1, 1) and sound
            dropped.append(axis)
            parts.append(scalar)
    index: tuple[Affine | Indirect, ...]
    session = current()
    whole = access.index is identity_index(access.tensor.shape) and extents == access.tensor.shape
    if dropped and access.tensor.buffer.on_chip:
        # A tile keeps two axes: t[0, 0:512] has shape (1, 512), and t[0:128, 0] has shape (128, 1).
        if (access.tensor.par_dim if whole else _partition_axis(access)) in dropped:
            parts = [shift_axes(part, 1) for part in parts]
            shape = [1, *shape]
        if len(shape) == 1:
            shape.append(1)
    if whole:
        index = tuple(parts)
    else:
        index = substitute_index(access, dict(enumerate(parts)), tuple(shape))
    if sound and (whole or session.trusts(access.index)):
        session.trust(index)
    return Access(access.tensor, index, tuple(shape))


def _partition_axis(access: Access) -> int:
    """The axis of an on-chip view that runs over the partitions: the first, unless its index says otherwise."""
    p = access.index[access.tensor.par_dim]
    along = p.axes() if isinstance(p, Affine) else ()
    return along[0] if along else 0


def _is_plain(bound: Any) -> bool:
    return bound is None or type(bound) is int


def _trips(symbol: LoopVar | int) -> int:
    assert isinstance(symbol, LoopVar)
    return symbol.trips


def _check_range(access: Access, axis: int, start: tuple[int, int], size: int, step: int) -> bool:
    """Whether positions stay within an axis.

    Raises:
        NKIError: `err_tensor_access_out_of_bound` where no mask could keep them.
    """
    low = start[0] + min(0, step * (size - 1))
    high = start[1] + max(0, step * (size - 1))
    return low >= 0 and high < access.shape[axis] or _may_leave(access, axis, low, high)


def _may_leave(access: Access, axis: int, low: int, high: int) -> bool:
    """Positions that leave an axis: of a whole tensor they may, until an instruction without a mask uses them.

    Returns:
        False, for not being within bounds.

    Raises:
        NKIError: `err_tensor_access_out_of_bound` for a part of a tensor.
    """
    tensor = access.tensor
    if access.index is not identity_index(tensor.shape):
        raise out_of_bounds(tensor, axis, low, high, access.shape[axis])
    return False


def out_of_bounds(tensor: Tensor, dim: int, low: int, high: int, size: int) -> NKIError:
    """The error for an index range that leaves its dimension."""
    return NKIError(
        "err_tensor_access_out_of_bound",
        f"Out-of-bound access for tensor `{tensor.name}` on dimension {dim}: index range [{low}, {high}] exceed "
        f"dimension size of {size}",
        line=current().line(),
    )


def _empty(access: Access, k: slice) -> NKIError:
    return NKIError(
        "empty_slice",
        f"slice {k.start!r}:{k.stop!r} of {access.tensor.name} is empty",
        line=current().line(),
        remedy="make the stop larger than the start",
    )


def _slice_parts(k: slice | DynamicSlice, extent: int, access: Access) -> tuple[Affine, int, int]:
    """First position, number of positions and step of a slice."""
    if isinstance(k, DynamicSlice):
        return _as_affine(k.start, access), k.size, 1
    step = as_integer(k.step) if k.step is not None else 1
    if step is None or step <= 0:
        raise NKIError(
            "unsupported_slice", f"slice step {k.step!r} is not a positive integer", line=current().line()
        )
    start = _as_affine(0 if k.start is None else k.start, access)
    stop = _as_affine(extent if k.stop is None else k.stop, access)
    if start.is_const and start.const < 0:
        start = start + extent
    if stop.is_const and stop.const < 0:
        stop = stop + extent
    length = stop - start
    if not length.is_const:
        raise NKIError(
            "unsupported_slice",
            f"the length of slice {k.start!r}:{k.stop!r} depends on a loop index",
            line=current().line(),
            remedy="use slices of constant length, and mask= at the edge",
        )
    size = -(-length.const // step)
    if size <= 0:
        raise _empty(access, k)
    return start, size, step


def _as_affine(value: Any, access: Access) -> Affine:
    if isinstance(value, IndexExpr):
        if value.affine.axes():
            raise NKIError(
                "err_unsupported_mixing_basic_advanced_tensor_indexing",
                f"a slice bound of {access.tensor.name} depends on nl.arange",
                line=current().line(),
            )
        return value.affine
    n = as_integer(value)
    if n is not None:
        return Affine(n)
    if isinstance(value, Tile | RuntimeIndex):
        raise NKIError(
            "err_dynamic_control_flow_not_supported",
            f"a slice bound of {access.tensor.name} is a tile, whose value is only known at run time",
            line=current().line(),
            remedy="use the tile as an index of its own, with nl.arange expressions for the other dimensions",
        )
    raise NKIError(
        "unsupported_index",
        f"{access.tensor.name} is indexed with {value!r}",
        line=current().line(),
        remedy="index with integers, loop indices, slices, nl.ds or nl.arange expressions",
    )


def _scalar_index(value: Any, extent: int, access: Access) -> Affine:
    affine = _as_affine(value, access)
    if affine.is_const and affine.const < 0:
        return affine + extent
    return affine


# -- index arrays and index tiles --------------------------------------------------------------------------------------
def _advanced(access: Access, keys: list[Any]) -> Access:
    """All dimensions by index arrays, scalars, index tiles, or trailing full slices."""
    shape: tuple[int, ...] = ()
    for k in keys:
        if isinstance(k, IndexExpr | Tile | RuntimeIndex):
            if len(k.shape) == 1 and k.shape[0] > 1:
                raise NKIError(
                    "err_1d_arange_not_supported",
                    f"{access.tensor.name} is indexed with a one-dimensional index of {k.shape[0]} elements",
                    line=current().line(),
                )
            shape = broadcast_shapes(shape, k.shape)
    full = [i for i, k in enumerate(keys) if isinstance(k, slice)]
    shape = (*shape, *(access.shape[i] for i in full))
    shift = len(full)
    replacement: dict[LoopVar | int, Affine | int] = {}
    indirect: dict[int, Indirect] = {}
    for axis, k in enumerate(keys):
        if isinstance(k, slice):
            position = len(shape) - shift + full.index(axis)
            replacement[axis] = Affine.of(position) if access.shape[axis] > 1 else 0
        elif isinstance(k, Tile | RuntimeIndex):
            index_read = k if isinstance(k, RuntimeIndex) else RuntimeIndex(k, IndexExpr(Affine(0)))
            _check_index_tile(access, index_read.tile)
            indirect[axis] = _indirect(index_read, shape, shift)
        elif isinstance(k, IndexExpr):
            replacement[axis] = shift_axes(k.affine, len(shape) - shift - len(k.shape))
        else:
            replacement[axis] = _scalar_index(k, access.shape[axis], access)
    index = list(substitute_index(access, replacement, shape))
    for axis, extent in enumerate(access.shape):
        along = Affine(0) + replacement.get(axis, 0)
        if extent == 1 and along != Affine(0):
            _beside_the_only_element(access, axis, along, shape, index)
    for axis, e in indirect.items():
        dim, old = _dimension_of(access, axis)
        coefficient = old.coefficient(axis)
        rest = (old - Affine.of(axis, coefficient)).substitute(replacement)
        index[dim] = Indirect(e.tile, rest + e.offset * coefficient, e.scale * coefficient)
    return Access(access.tensor, tuple(index), shape)


def _beside_the_only_element(
    access: Access, axis: int, position: Affine, shape: tuple[int, ...], index: list[Affine | Indirect]
) -> None:
    """Note in `index` a position along an axis of one element, which has no part in the index of `access`.

    Raises:
        NKIError: `err_tensor_access_out_of_bound` for a part of a tensor, whose other elements are not meant.
    """
    low, high = position.bounds(lambda s: shape[s] if isinstance(s, int) else _trips(s))
    if access.index is not identity_index(access.tensor.shape):
        raise out_of_bounds(access.tensor, axis, low, high, 1)
    index[axis] = position


def _dimension_of(access: Access, axis: int) -> tuple[int, Affine]:
    """The one dimension of the tensor that an axis of `access` runs along, and its index."""
    found = [(d, e) for d, e in enumerate(access.index) if isinstance(e, Affine) and axis in e.terms]
    if len(found) == 1:
        return found[0]
    if access.shape[axis] == 1 and access.index is identity_index(access.tensor.shape):
        return axis, Affine.of(axis)
    raise NKIError(
        "err_indirect_indices_free_dim",
        f"{access.tensor.name} is indexed indirectly through a view of it",
        line=current().line(),
    )


def _check_index_tile(access: Access, tile: Tile) -> None:
    """Refuse an index tile that no instruction takes as one.

    Raises:
        NKIError: `err_indirect_indices_free_dim` for one with a free axis, as nl.mgrid makes it; wrong memory or type.
    """
    line = current().line()
    if (
        not access.tensor.buffer.on_chip
        and current().dialect == "neuronxcc.nki"
        and math.prod(tile.shape[1:]) > 1
    ):
        raise NKIError(
            "err_indirect_indices_free_dim",
            f"{access.tensor.name} is indexed with the tile {tile!r}, which has a free axis",
            line=line,
            remedy="use one index per partition, indices[nl.arange(n)[:, None], 0]; nl.mgrid does not work for it",
        )
    if tile.buffer is not Buffer.SBUF:
        raise NKIError(
            "err_unsupported_memory",
            f"index tile {tile!r} is in {tile.buffer}, it must be in sbuf",
            line=line,
            remedy="load the indices with nl.load first",
        )
    if np.dtype(tile.dtype).kind not in "iu":
        raise NKIError(
            "invalid_index_dtype",
            f"index tile {tile!r} has type {tile.dtype}",
            line=line,
            remedy="use an int32 or uint32 tile as index",
        )


def _indirect(index: RuntimeIndex, shape: tuple[int, ...], trailing: int) -> Indirect:
    """An index read at run time, over the axes of a tile of shape `shape`, whose last `trailing` axes it does not have."""
    tile = index.tile
    axes = len(shape) - trailing
    shift = axes - len(tile.shape)
    inner = tile.access.substitute({k: Affine.of(k + shift) for k in range(len(tile.shape))})
    offset = shift_axes(index.offset.affine, axes - len(index.offset.shape))
    return Indirect(Access(inner.tensor, inner.index, shape), offset, index.scale)
