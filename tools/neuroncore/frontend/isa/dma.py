"""Data movement by the DMA engines, and what asks for the target."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import NKIError
from ...ir import Buffer
from ..emit import HBM_BUFFERS, destination, emit_into, fit, result
from ..operand import operand
from ..opnames import op_name
from ..registry import api
from ..session import current
from ..tile import Tile
from ..views import broadcast_access
from . import enums
from .checks import result_type, unsupported_on_target

PLACES = (Buffer.SBUF, *HBM_BUFFERS)
"""Memories that `nisa.dma_copy` moves between."""


@api("nisa.dma_copy", engine="dma")
def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = enums.oob_mode.error,
    dge_mode: Any = enums.dge_mode.unknown,
) -> None:
    """Copy between HBM and SBUF in any direction, with a cast; dst_rmw_op=np.add adds into dst.

    Either side may be indexed with a tile; oob_mode.skip leaves out what lies outside.
    """
    check_dge(dge_mode, "dma_copy")
    copy_over_dma(dst, src, mask, dst_rmw_op, oob_mode)


def check_dge(mode: Any, op: str) -> None:
    """Refuse hardware descriptor generation where there is none.

    Raises:
        NKIError: `unsupported_on_target`.
    """
    if getattr(mode, "name", None) == "hwdge":
        unsupported_on_target(f"dge_mode.hwdge of '{op}'", 3, "leave dge_mode out")


def copy_over_dma(dst: Any, src: Any, mask: Any, dst_rmw_op: Any, oob: Any) -> None:
    """The body of `dma_copy`, for both dialects.

    Raises:
        NKIError: for PSUM operands or shapes that differ.
    """
    line = current().line()
    if not isinstance(dst, Tile) or not isinstance(src, Tile):
        raise NKIError("invalid_operand", "dma_copy takes two tensors", line=line)
    target = destination(dst, op="dma_copy", buffers=PLACES)
    source = operand(src, name="src", op="dma_copy", buffers=PLACES)
    if source.shape != target.shape:
        same_size = int(np.prod(source.shape)) == int(np.prod(target.shape))
        if same_size and len(source.shape) != len(target.shape):
            source = fit(source, target.shape, target.tensor.name)
        else:
            source = broadcast_access(source, target.shape)
    mode = getattr(oob, "name", "error")
    attrs: dict[str, Any] = {"oob_mode": mode}
    if dst_rmw_op is not None:
        if mode != "error":
            raise NKIError(
                "invalid_operand",
                "dma_copy with dst_rmw_op takes oob_mode.error only",
                line=line,
                remedy="clamp the indices before, or leave oob_mode out",
            )
        attrs["dst_rmw_op"] = op_name(dst_rmw_op, ("add",), "dma_copy")
    emit_into("nisa.dma_copy", (target,), {"src": source}, attrs, mask=mask)


@api("nisa.dma_transpose", engine="dma (slow on trn1)")
def dma_transpose(
    src: Any, *, axes: Any = None, dge_mode: Any = None, mask: Any = None, dtype: Any = None
) -> Tile:
    """Transpose while loading: 2-D (1, 0), 3-D (2, 1, 0), 4-D (3, 1, 2, 0)."""
    if not isinstance(src, Tile):
        raise NKIError("invalid_operand", "dma_transpose takes a tensor", line=current().line())
    check_dge(dge_mode, "dma_transpose")
    access = operand(src, name="src", op="dma_transpose", buffers=PLACES)
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    n = len(access.shape)
    order = tuple(int(a) for a in axes) if axes is not None else defaults.get(n)
    if order is None or order != defaults.get(n):
        raise NKIError(
            "unsupported_axis",
            f"dma_transpose does not support axes {axes} of a {n}-axis tile",
            line=current().line(),
            remedy="the supported orders are (1, 0), (2, 1, 0) and (3, 1, 2, 0)",
        )
    return result(
        "nisa.dma_transpose",
        shape=tuple(access.shape[a] for a in order),
        dtype=result_type(dtype, access.dtype),
        args={"src": access},
        attrs={"axes": order},
        mask=mask,
        hint="transposed",
    )


@api("nisa.get_nc_version", engine="host")
def get_nc_version() -> enums.nc_version:
    """The target's NeuronCore generation."""
    return enums.nc_version(current().machine.generation)
