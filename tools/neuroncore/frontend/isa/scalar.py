"""Instructions of the Scalar engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import FLOAT32, is_float
from ...errors import NKIError
from ...ir import Access, Operand
from ..allocation import needs_own_tensor
from ..emit import result
from ..opnames import activation_op, op_name
from ..registry import api
from ..session import current
from ..tile import Tile
from . import enums
from .checks import MIN_II, reduction_target, result_type, tile_operand, unsupported_on_target, vector
from .registers import reduction


@api("nisa.activation", engine="scalar", cost=MIN_II)
def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = enums.reduce_cmd.idle,
    mask: Any = None,
    dtype: Any = None,
) -> Tile:
    """op(data * scale + bias) on ScalarE; scale is a number or a float32 [P, 1] tile, bias a [P, 1] tile.

    With reduce_op=nl.add and reduce_res, also sums along the free axes into reduce_res [P, 1].
    """
    name = activation_op(op, "activation")
    access, args = _operands(name, data, bias, scale, "activation")
    summed = "add" if reduce_op is None else op_name(reduce_op, ("add",), "activation's reduction")
    with reduction("scalar", "activation", summed, reduce_cmd, reduce_res, access) as reduced:
        return result(
            "nisa.activation",
            shape=access.shape,
            dtype=result_type(dtype, access.dtype),
            args=args,
            attrs={"op": name, **reduced.attrs},
            mask=mask,
            extra=reduced.extra,
            hint=name,
        )


def _operands(name: str, data: Any, bias: Any, scale: Any, op: str) -> tuple[Access, dict[str, Operand]]:
    access = tile_operand(data, "data", op)
    args: dict[str, Operand] = {"data": access}
    if bias is not None:
        if not isinstance(bias, Tile):
            raise NKIError(
                "err_activation_bias_invalid_type",
                f"bias is {type(bias).__name__}, not a tile",
                line=current().line(),
            )
        if bias.dtype.itemsize == 1 or not is_float(bias.dtype):
            raise NKIError(
                "err_activation_bias_invalid_type",
                f"bias has element type {bias.dtype}",
                line=current().line(),
            )
        if name == "reciprocal":
            unsupported_on_target("a bias of activation(nl.reciprocal)", 3, "add the bias before")
        args["bias"] = vector(bias, "bias", op, access)
    else:
        needs_own_tensor(
            "err_bias_tensor_must_be_specified_in_allocation",
            f"'{op}' has no bias, and needs a tile of zeros for it",
        )
    args["scale"] = _scale(scale, op, access)
    return access, args


def _scale(scale: Any, op: str, data: Access) -> Operand:
    if isinstance(scale, Tile):
        if scale.dtype != FLOAT32:
            raise NKIError(
                "err_activation_scale_invalid_type",
                f"scale tile has element type {scale.dtype}",
                line=current().line(),
            )
        if scale.access.free_size != 1 and len(scale.shape) > 1:
            raise NKIError(
                "err_activation_scale_scalar_or_vector",
                f"scale has shape {list(scale.shape)}",
                line=current().line(),
            )
        return vector(scale, "scale", op, data)
    if isinstance(scale, int | float | np.number):
        return float(scale)
    raise NKIError(
        "err_activation_scale_invalid_type", f"scale is {type(scale).__name__}", line=current().line()
    )


@api("nisa.activation_reduce", engine="scalar", cost="max(MIN_II, N) + MIN_II")
def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
) -> Tile:
    """op(data * scale + bias), and its sum over all free axes into reduce_res [P, 1]."""
    name = activation_op(op, "activation_reduce")
    access, args = _operands(name, data, bias, scale, "activation_reduce")
    summed = op_name(reduce_op, ("add",), "activation_reduce")
    target = reduction_target(reduce_res, access, "activation_reduce")
    return result(
        "nisa.activation_reduce",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args=args,
        attrs={"op": name, "reduce_op": summed},
        mask=mask,
        extra=(target,),
        hint=name,
    )
