"""The view methods of the `nki` package's tensors: all affine, none moves data.

``t.ap(pattern, offset)`` addresses the flattened tensor directly; the others (`slice`, `select`, `permute`, `broadcast`,
`reshape_dim`, ...) are compositions of what subscripts can say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...dtypes import as_dtype
from ...errors import NKIError
from ...ir import Access, Affine, Indirect, LoopVar, Tensor
from ..index import IndexExpr
from ..session import current
from ..tile import Tile, as_extent
from ..views import reshape_access


def _affine(value: Any, what: str) -> Affine:
    if isinstance(value, IndexExpr):
        return value.affine
    if isinstance(value, int):
        return Affine(value)
    raise NKIError("unsupported_index", f"{what} is {type(value).__name__}", line=current().line())


def permute(tile: Tile, dims: Any) -> Tile:
    """Axes in another order; on-chip the partition axis stays first."""
    order = tuple(int(d) for d in dims)
    if sorted(order) != list(range(tile.ndim)):
        raise NKIError("invalid_shape", f"{order} does not permute {tile.ndim} axes", line=current().line())
    if tile.buffer.on_chip and order[0] != 0:
        raise NKIError(
            "err_leading_dimension_of_tensor_must_be_partition",
            "permute of an on-chip tensor must keep axis 0 first",
            line=current().line(),
        )
    mapping: dict[LoopVar | int, Affine | int] = {old: Affine.of(new) for new, old in enumerate(order)}
    moved = tile.access.substitute(mapping)
    return Tile(Access(moved.tensor, moved.index, tuple(tile.shape[d] for d in order)))


def broadcast(tile: Tile, dim: int, size: int) -> Tile:
    """Repeat an axis of extent 1."""
    shape = list(tile.shape)
    shape[dim] = as_extent(size)
    return tile.broadcast_to(tuple(shape))


def expand_dim(tile: Tile, dim: int) -> Tile:
    """Insert an axis of extent 1."""
    return tile.expand_dims(dim)


def squeeze_dim(tile: Tile, dim: int) -> Tile:
    """Drop an axis of extent 1."""
    return tile.squeeze(dim)


def reshape_dim(tile: Tile, dim: int, shape: Any) -> Tile:
    """Split one axis."""
    parts = [int(n) for n in shape]
    if -1 in parts:
        known = math.prod(n for n in parts if n != -1)
        parts[parts.index(-1)] = tile.shape[dim] // known
    return Tile(reshape_access(tile.access, (*tile.shape[:dim], *parts, *tile.shape[dim + 1 :])))


def flatten_dims(tile: Tile, start_dim: int, end_dim: int) -> Tile:
    """Merge adjacent axes."""
    merged = math.prod(tile.shape[start_dim : end_dim + 1])
    return Tile(reshape_access(tile.access, (*tile.shape[:start_dim], merged, *tile.shape[end_dim + 1 :])))


def rearrange(
    tile: Tile, src_pattern: Any, dst_pattern: Any, fixed_sizes: dict[str, int] | None = None
) -> Tile:
    """Split, reorder and merge axes by name, as einops does."""
    sizes = dict(fixed_sizes or {})
    names: list[str] = []
    split: list[int] = []
    for extent, group in zip(tile.shape, src_pattern, strict=True):
        members = group if isinstance(group, tuple | list) else (group,)
        known = math.prod(sizes[m] for m in members if m in sizes)
        for m in members:
            sizes.setdefault(m, extent // known)
            names.append(m)
            split.append(sizes[m])
    flat = [m for g in dst_pattern for m in (g if isinstance(g, tuple | list) else (g,))]
    view = Tile(reshape_access(tile.access, tuple(split)))
    view = permute(view, [names.index(m) for m in flat])
    merged = tuple(
        math.prod(sizes[m] for m in g) if isinstance(g, tuple | list) else sizes[g] for g in dst_pattern
    )
    return Tile(reshape_access(view.access, merged))


def slice_(tile: Tile, dim: int, start: Any, end: Any, step: int = 1) -> Tile:
    """A range of one axis."""
    keys: list[Any] = [slice(None)] * tile.ndim
    keys[dim] = slice(start, end, step)
    return tile[tuple(keys)]


def select(tile: Tile, dim: int, index: Any) -> Tile:
    """One position of an axis, which disappears; a tile as index is read at run time."""
    keys: list[Any] = [slice(None)] * tile.ndim
    if isinstance(index, Tile):
        return _dynamic(tile, dim, index, keep=False)
    keys[dim] = index
    return tile[tuple(keys)]


def vector_select(tile: Tile, dim: int, vector_offset: Tile) -> Tile:
    """Axis 0 indexed by a [P, 1] tile, one row per partition."""
    if dim != 0:
        raise NKIError("err_indirect_indices_free_dim", "vector_select takes dim 0", line=current().line())
    return _dynamic(tile, 0, vector_offset, keep=True)


def _dynamic(tile: Tile, dim: int, index: Tile, *, keep: bool) -> Tile:
    access = tile.access
    on_chip = access.tensor.buffer.on_chip
    if access.is_indirect or on_chip and (keep or dim % tile.ndim == 0):
        raise NKIError(
            "err_indirect_indices_are_not_supported_with_nki_api",
            f"{access.tensor.name} is indexed with a tile "
            + ("twice" if access.is_indirect else "along its partitions, and is on chip"),
            line=current().line(),
        )
    if keep:
        shape = (index.shape[0], *access.shape[1:])
        inner = Access(
            index.access.tensor,
            tuple(
                e.substitute({k: 0 for k in range(1, index.ndim)}) if isinstance(e, Affine) else e
                for e in index.access.index
            ),
            shape,
        )
        return Tile(_with_indirect(access, dim, inner, {}, shape))
    shape = tuple(n for k, n in enumerate(access.shape) if k != dim)
    renumber: dict[LoopVar | int, Affine | int] = {
        k: Affine.of(k - (k > dim)) for k in range(len(access.shape)) if k != dim
    }
    scalar = index.access.substitute({k: 0 for k in range(index.ndim)})
    return Tile(_with_indirect(access, dim, Access(scalar.tensor, scalar.index, shape), renumber, shape))


def _with_indirect(
    access: Access,
    axis: int,
    inner: Access,
    renumber: dict[LoopVar | int, Affine | int],
    shape: tuple[int, ...],
) -> Access:
    index: list[Affine | Indirect] = []
    for e in access.index:
        if isinstance(e, Affine) and e.coefficient(axis):
            scale = e.coefficient(axis)
            rest = (e - Affine.of(axis, scale)).substitute(renumber)
            index.append(Indirect(inner, rest, scale))
        elif isinstance(e, Affine):
            index.append(e.substitute(renumber))
        else:
            index.append(e)
    return Access(access.tensor, tuple(index), shape)


def ap(
    tile: Tile,
    pattern: Any,
    offset: Any = None,
    scalar_offset: Any = None,
    vector_offset: Any = None,
    indirect_dim: int = 0,
    dtype: Any = None,
) -> Tile:
    """A raw access pattern over the flattened tensor: [[stride, count], ...], in elements, from `offset`."""
    session = current()
    access = tile.access
    tensor = access.tensor
    if dtype is not None and as_dtype(dtype) != tile.dtype:
        raise NKIError("unsupported_view", f"ap cannot change {tile.dtype} to {dtype}", line=session.line())
    strides = _strides(tensor)
    base = Affine(0)
    for e, stride in zip(access.affine, strides, strict=True):
        base = base + e.substitute({k: 0 for k in range(len(access.shape))}) * stride
    if offset is not None:
        base = base + _affine(offset, "offset")
    counts = tuple(as_extent(count) for _, count in pattern)
    terms = [(_affine(stride, "stride").const, k) for k, (stride, _) in enumerate(pattern)]
    index: list[Affine | Indirect] = list(_decompose(tensor, strides, base, terms, counts))
    if isinstance(scalar_offset, int | IndexExpr):
        scaled = _affine(scalar_offset, "scalar_offset") * strides[int(indirect_dim)]
        return ap(tile, pattern, IndexExpr(scaled) + (offset if offset is not None else 0), dtype=dtype)
    dynamic = scalar_offset if scalar_offset is not None else vector_offset
    if dynamic is not None:
        if not isinstance(dynamic, Tile) or tensor.buffer.on_chip and vector_offset is not None:
            raise NKIError(
                "err_indirect_indices_are_not_supported_with_nki_api",
                "scalar_offset takes an SBUF tile, and vector_offset one on a tensor in HBM",
                line=session.line(),
            )
        binding: dict[LoopVar | int, Affine | int] = {k: 0 for k in range(dynamic.ndim)}
        if vector_offset is not None:
            binding[0] = Affine.of(0)
        inner = dynamic.access.substitute(binding)
        dim = int(indirect_dim)
        old = index[dim]
        assert isinstance(old, Affine)
        if vector_offset is not None:
            old = old.substitute({0: 0})
        index[dim] = Indirect(Access(inner.tensor, inner.index, counts), old, 1)
    return Tile(Access(tensor, tuple(index), counts))


def _strides(tensor: Tensor) -> list[int]:
    strides = [1] * len(tensor.shape)
    for d in range(len(tensor.shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * tensor.shape[d + 1]
    return strides


def _decompose(
    tensor: Tensor, strides: list[int], base: Affine, terms: list[tuple[int, int]], counts: tuple[int, ...]
) -> list[Affine]:
    """Per-dimension indices whose flat address is ``base + Σ stride · axis``.

    Raises:
        NKIError: if an axis of the pattern runs across rows of the tensor.
    """
    index = [Affine(0) for _ in strides]

    def place(coefficient: int, symbol: LoopVar | int | None) -> None:
        rest = coefficient
        for d, stride in enumerate(strides):
            if tensor.shape[d] == 1 and d < len(strides) - 1:
                continue
            whole = int(rest / stride)
            if whole:
                index[d] = index[d] + (Affine(whole) if symbol is None else Affine.of(symbol, whole))
                rest -= whole * stride

    place(base.const, None)
    for symbol, c in base.terms.items():
        place(c, symbol)
    for stride, axis in terms:
        if counts[axis] > 1:
            place(stride, axis)
    for d, e in enumerate(index):
        low, high = e.bounds(lambda s: counts[s] if isinstance(s, int) else s.trips)
        if low < 0 or high >= tensor.shape[d]:
            raise NKIError(
                "unsupported_view",
                f"the access pattern of `{tensor.name}` runs across dimension {d} of shape {list(tensor.shape)}",
                line=current().line(),
                remedy="reshape the tensor so that every axis of the pattern stays within one dimension",
            )
    return index


METHODS: dict[str, Callable[..., Any]] = {
    "permute": permute,
    "broadcast": broadcast,
    "expand_dim": expand_dim,
    "squeeze_dim": squeeze_dim,
    "reshape_dim": reshape_dim,
    "flatten_dims": flatten_dims,
    "rearrange": rearrange,
    "slice": slice_,
    "select": select,
    "vector_select": vector_select,
    "ap": ap,
    "is_contiguous": lambda tile: tile.access == tile.access.tensor.whole(),
    "is_indirect": lambda tile: tile.access.is_indirect,
    "get_pattern": lambda tile: _pattern(tile),
}
"""Methods that only tensors of this dialect have."""


def _pattern(tile: Tile) -> list[list[int]]:
    strides = _strides(tile.access.tensor)
    out = []
    for k, n in enumerate(tile.shape):
        step = sum(e.coefficient(k) * s for e, s in zip(tile.access.affine, strides, strict=True))
        out.append([step, n])
    return out
