"""Loads, stores and copies."""

from __future__ import annotations

from typing import Any

from ...dtypes import as_dtype
from ...errors import NKIError
from ...ir import Access
from .. import emit
from ..emit import HBM_BUFFERS, ON_CHIP, check_free_indices, emit_into, result
from ..operand import operand
from ..opnames import op_name
from ..registry import api
from ..session import current
from ..tile import MaskedTile, Tile


@api("nl.load", engine="dma")
def load(src: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """HBM to SBUF: at most 128 partitions (first axis of the index). One contiguous piece per partition is fastest.

    src may be indexed with a tile of row numbers: x[idx[i_p, 0], i_f].
    """
    access = _hbm_tile(src, "load")
    check_free_indices(access, "load")
    out = as_dtype(dtype, current().line()) if dtype is not None else src.dtype
    return result("nl.load", shape=access.shape, dtype=out, args={"src": access}, mask=mask, hint="loaded")


def _tensor(value: Any, op: str) -> Tile:
    if isinstance(value, MaskedTile):
        raise value.refusal()
    if not isinstance(value, Tile):
        raise NKIError(
            "invalid_operand",
            f"'{op}' takes a tensor, got {type(value).__name__}",
            line=current().line(),
            remedy="pass a kernel parameter or an nl.ndarray in HBM, or a part of one",
        )
    return value


def _hbm_tile(src: Any, op: str) -> Access:
    access = operand(_tensor(src, op), name="src", op=op, buffers=HBM_BUFFERS)
    if len(access.shape) < 2:
        access = Access(access.tensor, access.index, (*access.shape, *(1,) * (2 - len(access.shape))))
    limit = current().machine.partitions
    if access.shape[0] > limit:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {access.shape[0]} exceeds architecture limitation of {limit}.",
            line=current().line(),
            remedy=f"index the first axis in tiles of at most {limit} rows",
        )
    return access


@api("nl.store", engine="dma")
def store(dst: Any, value: Any, *, mask: Any = None) -> None:
    """SBUF (or PSUM, through a copy) to HBM; value may be a number."""
    emit.store(_tensor(dst, "store"), value, mask)


@api("nl.load_transpose2d", engine="dma (slow on trn1)")
def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Load a [R, C] region as [C, R]."""
    access = operand(_tensor(src, "load_transpose2d"), name="src", op="load_transpose2d", buffers=HBM_BUFFERS)
    if len(access.shape) != 2:
        raise NKIError(
            "err_exceed_max_supported_dimension",
            f"load_transpose2d takes two axes, got {len(access.shape)}",
            line=current().line(),
        )
    out = as_dtype(dtype, current().line()) if dtype is not None else src.dtype
    return result(
        "nl.load_transpose2d",
        shape=(access.shape[1], access.shape[0]),
        dtype=out,
        args={"src": access},
        mask=mask,
        hint="transposed",
    )


@api("nl.atomic_rmw", engine="dma")
def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None) -> None:
    """Read-modify-write of HBM at rows given by an index tile; op is np.add."""
    target = operand(_tensor(dst, "atomic_rmw"), name="dst", op="atomic_rmw", buffers=HBM_BUFFERS)
    source = operand(_tensor(value, "atomic_rmw"), name="value", op="atomic_rmw", buffers=ON_CHIP)
    emit_into(
        "nl.atomic_rmw",
        (target,),
        {"value": emit.fit(source, target.shape, target.tensor.name)},
        {"op": op_name(op, ("add",), "atomic_rmw")},
        mask=mask,
    )


@api("nl.copy", engine="scalar (chosen by the compiler)")
def copy(src: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """A copy in SBUF, cast to dtype; the usual way out of PSUM."""
    return emit.copy(_tensor(src, "copy"), dtype, mask)
