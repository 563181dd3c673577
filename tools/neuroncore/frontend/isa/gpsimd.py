"""Instructions of the GpSimd engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import BY_NAME, FLOAT32, as_dtype
from ...errors import NKIError
from ..emit import condition_parts, result
from ..index import Condition, IndexExpr
from ..opnames import op_name
from ..registry import api
from ..session import current
from ..tile import Tile
from .checks import SBUF, element_type, number, result_type, tile_operand

INDEX_COUNT_MAX = 4096
"""Indices that one GpSimd core takes in a local_gather."""


@api("nisa.iota", engine="gpsimd", cost="150 + N")
def iota(expr: Any, dtype: Any, *, mask: Any = None) -> Tile:
    """A tile holding the values of an affine expression of nl.arange and loop indices."""
    if not isinstance(expr, IndexExpr) or len(expr.shape) == 1 and expr.shape[0] > 1:
        raise NKIError(
            "invalid_operand",
            f"iota takes an nl.arange expression with a partition and a free axis, got {type(expr).__name__}",
            line=current().line(),
            remedy="give each nl.arange its axis: nl.arange(n)[None, :]",
        )
    return result(
        "nisa.iota",
        shape=expr.shape if len(expr.shape) >= 2 else (1, 1),
        dtype=as_dtype(dtype, current().line()),
        args={},
        attrs={"expr": expr.affine},
        mask=mask,
    )


@api("nisa.affine_select", engine="gpsimd", cost="150 + N")
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None
) -> Tile:
    """on_true_tile where an affine comparison of nl.arange holds, else the constant on_false_value.

    The comparison must be a single one; the tile float or an integer of at most 16 bits.
    """
    access = tile_operand(on_true_tile, "on_true_tile", "affine_select")
    line = current().line()
    if isinstance(pred, Condition) and pred.joined:
        raise NKIError(
            "invalid_predicate",
            "affine_select takes one comparison, not several joined by &",
            line=line,
            remedy="apply affine_select twice, or use nl.where",
        )
    if access.dtype.itemsize == 4 and access.dtype != FLOAT32:
        raise NKIError(
            "invalid_operand_dtype",
            f"affine_select takes floating types and integers of 8 or 16 bits, got {access.dtype}",
            line=line,
            remedy="convert the tile with nl.copy(..., dtype=nl.float32)",
        )
    return result(
        "nisa.affine_select",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args={"on_true_tile": access},
        attrs={
            "pred": condition_parts(pred, len(access.shape), "pred"),
            "on_false_value": number(on_false_value, "on_false_value", "affine_select"),
        },
        mask=mask,
        hint="selected",
    )


@api("nisa.tensor_partition_reduce", engine="gpsimd (slow)")
def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Reduce over the partition axis: [P, F] -> [1, F]; add, max, bitwise and/or."""
    access = tile_operand(data, "data", "tensor_partition_reduce")
    name = op_name(op, ("add", "maximum", "bitwise_and", "bitwise_or"), "tensor_partition_reduce")
    return result(
        "nisa.tensor_partition_reduce",
        shape=(1, *access.shape[1:]),
        dtype=result_type(dtype, access.dtype),
        args={"data": access},
        attrs={"op": name},
        mask=mask,
        hint="reduced",
    )


@api("nisa.local_gather", engine="gpsimd", cost="150 + num_valid*num_elem/C")
def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: Any = None,
) -> Tile:
    """Per 16-partition core, gather elements of each partition by the core's indices (uint16, partition-first order).

    Index [P, F] -> [P, F, 16, num_elem_per_idx]: what each partition reads for the 16 x F indices of its core.
    """
    access = tile_operand(src_buffer, "src_buffer", "local_gather", SBUF)
    idx = tile_operand(index, "index", "local_gather", SBUF)
    line = current().line()
    if access.shape[0] % 16 or idx.shape[0] != access.shape[0]:
        raise NKIError(
            "err_num_partition_mismatch",
            f"local_gather needs a multiple of 16 partitions in both tiles, got {access.shape[0]} and {idx.shape[0]}",
            line=line,
        )
    element_type("local_gather", "index", idx.dtype, (BY_NAME["uint16"],))
    width = int(num_elem_per_idx)
    if width not in (1, 2, 4, 8, 16, 32):
        raise NKIError(
            "invalid_operand",
            f"num_elem_per_idx is {width}",
            line=line,
            remedy="use 1, 2, 4, 8, 16 or 32",
        )
    total = idx.free_size * 16
    valid = total if num_valid_indices is None else int(num_valid_indices)
    if total > INDEX_COUNT_MAX or not 0 < valid <= total:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"local_gather takes up to {INDEX_COUNT_MAX} indices per core, got {total} of which {valid} valid",
            line=line,
        )
    return result(
        "nisa.local_gather",
        shape=(access.shape[0], idx.free_size, 16, width),
        dtype=access.dtype,
        args={"src_buffer": access, "index": idx},
        attrs={"num_elem_per_idx": width, "num_valid_indices": valid},
        mask=mask,
        hint="gathered",
    )


@api("nisa.sequence_bounds", engine="gpsimd")
def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> Tile:
    """For each element [start, end) of its run of equal segment ids; padding (id 0) gives (N, -1): [1, N] -> [1, 2, N]."""
    access = tile_operand(segment_ids, "segment_ids", "sequence_bounds", SBUF)
    if access.shape[0] != 1:
        raise NKIError(
            "shape_mismatch",
            f"sequence_bounds takes one partition, got {access.shape[0]}",
            line=current().line(),
            remedy="put the segment ids along the free axis of a [1, N] tile",
        )
    allowed = (FLOAT32, np.dtype(np.int32))
    out = result_type(dtype, access.dtype)
    element_type("sequence_bounds", "segment_ids", access.dtype, allowed)
    element_type("sequence_bounds", "dtype", out, allowed)
    return result(
        "nisa.sequence_bounds",
        shape=(1, 2, math.prod(access.shape)),
        dtype=out,
        args={"segment_ids": access},
        hint="bounds",
    )
