"""Instructions of the Vector engine over whole rows: batch statistics, the eight largest values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import NKIError
from ...ir import Access, Affine
from ..emit import ON_CHIP, destination, result, scalar_operand
from ..operand import mask_parts
from ..registry import api
from ..session import current
from ..tile import Tile
from .checks import MIN_II, element_type, free_limit, result_type, same_partitions, tile_operand

TOP8_MIN, TOP8_MAX = 8, 16384
"""Elements per partition that the top-8 instructions take."""


@api("nisa.bn_stats", engine="vector", cost=MIN_II)
def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Per partition (count, mean, variance*count) of the even elements, then of the odd ones: [P, N <= 512] -> [P, 6]."""
    access = tile_operand(data, "data", "bn_stats")
    free_limit("bn_stats", 512, data=access)
    conditions = tuple(c for c in mask_parts(mask, len(access.shape)) if not _always(c, access))
    if any(a for condition in conditions for a in condition.axes()):
        raise NKIError(
            "err_unsupported_expression_in_mask",
            "the mask of bn_stats speaks of the axis that it reduces",
            line=current().line(),
            remedy="mask the partition axis only, and index fewer elements",
        )
    return result(
        "nisa.bn_stats",
        shape=(access.shape[0], 6),
        dtype=result_type(dtype, access.dtype),
        args={"data": access},
        mask=conditions,
        mask_ndim=len(access.shape),
        hint="stats",
    )


def _always(condition: Affine, access: Access) -> bool:
    """Whether a condition holds for every element and iteration."""
    return condition.bounds(lambda s: access.shape[s] if isinstance(s, int) else s.trips)[0] >= 0


@api("nisa.bn_aggr", engine="vector", cost="max(MIN_II, 13*N/3)")
def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Combine (count, mean, variance*count) triples into [P, 2] = (mean, variance)."""
    access = tile_operand(data, "data", "bn_aggr")
    if access.free_size % 3:
        raise NKIError(
            "shape_mismatch",
            f"bn_aggr takes triples, got {access.free_size} elements per partition",
            line=current().line(),
            remedy="pass the results of nisa.bn_stats, six values each",
        )
    return result(
        "nisa.bn_aggr",
        shape=(access.shape[0], 2),
        dtype=result_type(dtype, access.dtype),
        args={"data": access},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="mean_var",
    )


def _row_limits(access: Access, op: str) -> None:
    if not TOP8_MIN <= access.free_size <= TOP8_MAX:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"'{op}' takes {TOP8_MIN} to {TOP8_MAX} elements per partition, got {access.free_size}",
            line=current().line(),
        )


@api("nisa.max8", engine="vector", cost="N")
def max8(*, src: Any, mask: Any = None, dtype: Any = None) -> Tile:
    """The eight largest values of each partition, descending: [P, 8]."""
    access = tile_operand(src, "src", "max8")
    _row_limits(access, "max8")
    return result(
        "nisa.max8",
        shape=(access.shape[0], 8),
        dtype=result_type(dtype, access.dtype),
        args={"src": access},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="top8",
    )


def _eight(value: Any, data: Access, op: str) -> Access:
    access = tile_operand(value, "vals", op)
    if access.free_size != 8:
        raise NKIError(
            "shape_mismatch",
            f"'vals' of '{op}' must have 8 values per partition, got {access.free_size}",
            line=current().line(),
            remedy="pass the result of nisa.max8",
        )
    same_partitions(op, data=data, vals=access)
    return access


@api("nisa.nc_find_index8", engine="vector", cost="N")
def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None) -> Tile:
    """Index of the first occurrence of each of eight values in each partition: [P, 8] of uint32 or uint16."""
    access = tile_operand(data, "data", "nc_find_index8")
    _row_limits(access, "nc_find_index8")
    out = result_type(dtype, np.dtype(np.uint32))
    element_type("nc_find_index8", "dtype", out, (np.dtype(np.uint32), np.dtype(np.uint16)))
    return result(
        "nisa.nc_find_index8",
        shape=(access.shape[0], 8),
        dtype=out,
        args={"data": access, "vals": _eight(vals, access, "nc_find_index8")},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="index8",
    )


@api("nisa.nc_match_replace8", engine="vector", cost=MIN_II)
def nc_match_replace8(
    *, data: Any, vals: Any, imm: Any, dst_idx: Any = None, mask: Any = None, dtype: Any = None
) -> Tile:
    """Replace the first occurrence of each of eight values by imm; dst_idx [P, 8] gets where they were."""
    op = "nc_match_replace8"
    access = tile_operand(data, "data", op)
    _row_limits(access, op)
    extra: tuple[Access, ...] = ()
    if dst_idx is not None:
        target = destination(dst_idx, name="dst_idx", op=op, buffers=ON_CHIP)
        if target.free_size != 8:
            raise NKIError(
                "shape_mismatch",
                f"dst_idx of '{op}' must have 8 elements per partition, got {target.free_size}",
                line=current().line(),
            )
        same_partitions(op, data=access, dst_idx=target)
        extra = (target,)
    return result(
        "nisa.nc_match_replace8",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args={
            "data": access,
            "vals": _eight(vals, access, op),
            "imm": scalar_operand(imm, "imm", op),
        },
        mask=mask,
        extra=extra,
        hint="replaced",
    )
