"""`neuronxcc.nki.isa` (Beta 1): one function per instruction, each returning a new tile.

Costs are those documented up to SDK 2.26, in cycles of the engine for N elements per partition.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ..dtypes import FLOAT32, Dtype, as_dtype, is_float
from ..errors import NKIError
from ..ir import Access, Buffer, Operand
from .emit import (
    HBM_BUFFERS,
    ON_CHIP,
    condition_parts,
    destination,
    elementwise_operands,
    emit_into,
    result,
    scalar_operand,
)
from .index import IndexExpr
from .opnames import BITVEC, activation_op, alu_op, op_name, reduce_op
from .registry import api
from .session import current
from .tile import Tile, broadcast_access, operand

MIN_II = "max(MIN_II, N)"
SBUF = (Buffer.SBUF,)


class engine(enum.Enum):  # noqa: N801 - NKI's name
    """Engines, by NKI's numbers."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    sync = 6
    unknown = 0


class nc_version(enum.IntEnum):  # noqa: N801 - NKI's name
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class reduce_cmd(enum.Enum):  # noqa: N801 - NKI's name
    """What an instruction does with the reduction registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3


class dge_mode(enum.Enum):  # noqa: N801 - NKI's name
    """Who generates DMA descriptors."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class oob_mode(enum.Enum):  # noqa: N801 - NKI's name
    """What an indirect DMA does with indices out of range."""

    error = 0
    skip = 1


tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown


def _engine(value: Any, op: str, allowed: tuple[str, ...]) -> str:
    name = value.name if isinstance(value, engine) else str(value or "unknown")
    if name == "unknown" or name in allowed:
        return name
    raise NKIError(
        "unsupported_engine",
        f"{op} cannot run on the {name} engine",
        line=current().line(),
        remedy=f"use {' or '.join(allowed)}, or leave engine out",
    )


def _tile(value: Any, name: str, op: str, buffers: tuple[Buffer, ...] = ON_CHIP) -> Access:
    if not isinstance(value, Tile):
        raise NKIError(
            "invalid_operand",
            f"operand '{name}' of '{op}' must be a tile, got {type(value).__name__}",
            line=current().line(),
        )
    return operand(value, name=name, op=op, buffers=buffers)


def _dtype(value: Any, default: Dtype) -> Dtype:
    return as_dtype(value, current().line()) if value is not None else default


def _same_partitions(op: str, **tiles: Access) -> None:
    sizes = {name: access.shape[0] for name, access in tiles.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise NKIError(
            "err_num_partition_mismatch",
            f"operands of '{op}' differ in their number of partitions: {listed}",
            line=current().line(),
        )


def _number(value: Any, name: str, op: str) -> float:
    """A scalar that cannot be a tile."""
    number = scalar_operand(value, name, op)
    assert isinstance(number, int | float)
    return float(number)


def _vector(value: Any, name: str, op: str, data: Access) -> Operand:
    """A scalar operand: a number, or a [P, 1] tile."""
    if not isinstance(value, Tile):
        return scalar_operand(value, name, op)
    access = _tile(value, name, op)
    if access.free_size != 1:
        raise NKIError(
            "invalid_operand",
            f"operand '{name}' of '{op}' must be a number or a tile with one element per partition, got shape "
            f"{list(access.shape)}",
            line=current().line(),
            remedy="use nisa.tensor_tensor or nl.multiply for two full tiles",
        )
    if access.shape[0] not in (1, data.shape[0]):
        _same_partitions(op, data=data, **{name: access})
    return access


def _free_limit(op: str, limit: int, **tiles: Access) -> None:
    for name, access in tiles.items():
        if access.free_size > limit:
            raise NKIError(
                "err_size_of_dimension_exceed_arch_limit",
                f"operand '{name}' of '{op}' has {access.free_size} elements per partition, the limit is {limit}",
                line=current().line(),
            )


def _not_both_psum(op: str, **tiles: Access) -> None:
    in_psum = [name for name, access in tiles.items() if access.tensor.buffer is Buffer.PSUM]
    if len(in_psum) > 1:
        raise NKIError(
            "err_unsupported_memory",
            f"operands {' and '.join(in_psum)} of '{op}' cannot both be in psum",
            line=current().line(),
            remedy="copy one of them to sbuf with nl.copy",
        )


# -- TensorE -------------------------------------------------------------------------------------------------------------
@api("nisa.nc_matmul", engine="tensor", cost="max(min(64, S_free), M_free), x4 for fp32")
def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Any = None,
) -> Tile:
    """stationary.T @ moving into PSUM, fp32 accumulation: [K, M] x [K, N] -> [M, N].

    Both operands in SBUF with the same K <= 128 partitions; M <= 128, N <= 512. `psum_tile += nisa.nc_matmul(...)`
    accumulates. With is_transpose=True and an identity as moving, it transposes.
    """
    s = _tile(stationary, "stationary", "nc_matmul", SBUF)
    m = _tile(moving, "moving", "nc_matmul", SBUF)
    return _matmul(s, m, is_stationary_onezero, is_moving_onezero, is_transpose, mask)


def check_matmul(s: Access, m: Access, op: str) -> None:
    """Refuse operands that TensorE cannot take.

    Raises:
        NKIError: partition mismatch, tile limits, or float32 mixed with another type.
    """
    machine = current().machine
    if s.shape[0] != m.shape[0]:
        raise NKIError(
            "err_num_partition_mismatch",
            f"stationary and moving of '{op}' contract over their partitions, which are {s.shape[0]} and {m.shape[0]}",
            line=current().line(),
        )
    _free_limit(op, machine.gemm_stationary_fmax, stationary=s)
    _free_limit(op, machine.gemm_moving_fmax, moving=m)
    if (s.dtype == FLOAT32) != (m.dtype == FLOAT32):
        raise NKIError(
            "invalid_operand_dtype",
            f"'{op}' mixes {s.dtype} and {m.dtype}; if one is float32 both must be",
            line=current().line(),
        )


def _matmul(s: Access, m: Access, s_onezero: bool, m_onezero: bool, is_transpose: bool, mask: Any) -> Tile:
    check_matmul(s, m, "nc_matmul")
    attrs = {
        "is_stationary_onezero": bool(s_onezero),
        "is_moving_onezero": bool(m_onezero),
        "is_transpose": bool(is_transpose),
    }
    shape = (s.free_size, *m.shape[1:])
    return result(
        "nisa.nc_matmul",
        shape=shape,
        dtype=FLOAT32,
        buffer=Buffer.PSUM,
        args={"stationary": s, "moving": m},
        attrs=attrs,
        mask=mask,
        hint="psum",
    )


@api("nisa.nc_transpose", engine="tensor or vector", cost="vector max(MIN_II, N); tensor max(P, min(64, F))")
def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """[P, F] -> [F, P], free dimensions flattened. TensorE: up to 128x128 into PSUM; VectorE: up to 32x32."""
    access = _tile(data, "data", "nc_transpose")
    where = _engine(engine, "nc_transpose", ("tensor", "vector"))
    free = access.free_size
    small = access.shape[0] <= 32 and free <= 32
    if where == "unknown":
        where = "vector" if small and access.tensor.buffer is Buffer.PSUM else "tensor"
    if where == "vector" and not small:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"nc_transpose on the vector engine takes 32x32, got {access.shape[0]}x{free}",
            line=current().line(),
        )
    if where == "tensor":
        if access.tensor.buffer is not Buffer.SBUF:
            raise NKIError(
                "err_unsupported_memory",
                "Expected operand 'data' of 'nc_transpose' on the tensor engine to be in address space 'sbuf', but got "
                f"a tile in '{access.tensor.buffer}' instead.",
                line=current().line(),
            )
        _free_limit("nc_transpose", current().machine.partitions, data=access)
    return result(
        "nisa.nc_transpose",
        shape=(free, access.shape[0]),
        dtype=_dtype(dtype, access.dtype),
        buffer=Buffer.PSUM if where == "tensor" else Buffer.SBUF,
        args={"data": access},
        attrs={"engine": where},
        mask=mask,
        hint="transposed",
    )


# -- ScalarE -------------------------------------------------------------------------------------------------------------
@api("nisa.activation", engine="scalar", cost=MIN_II)
def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    mask: Any = None,
    dtype: Any = None,
) -> Tile:
    """op(data * scale + bias) on ScalarE; scale is a number or a float32 [P, 1] tile, bias a [P, 1] tile.

    With reduce_op=nl.add and reduce_res, also sums along the free axes into reduce_res [P, 1].
    """
    name = activation_op(op, "activation")
    access, args = _activation_args(data, bias, scale, "activation")
    attrs: dict[str, Any] = {"op": name}
    extra: tuple[Access, ...] = ()
    command = getattr(reduce_cmd, "name", "idle")
    if reduce_res is not None:
        reduction = op_name(reduce_op, ("add",), "activation's reduction") if reduce_op is not None else "add"
        attrs |= {"reduce_op": reduction, "reduce_cmd": "reset_reduce" if command == "idle" else command}
        extra = (_reduction_target(reduce_res, access, "activation"),)
    return result(
        "nisa.activation",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args=args,
        attrs=attrs,
        mask=mask,
        extra=extra,
        hint=name,
    )


def _activation_args(data: Any, bias: Any, scale: Any, op: str) -> tuple[Access, dict[str, Operand]]:
    access = _tile(data, "data", op)
    args: dict[str, Operand] = {"data": access}
    line = current().line()
    if bias is not None:
        if not isinstance(bias, Tile):
            raise NKIError(
                "err_activation_bias_invalid_type", f"bias is {type(bias).__name__}, not a tile", line=line
            )
        if bias.dtype.itemsize == 1 or not is_float(bias.dtype):
            raise NKIError(
                "err_activation_bias_invalid_type", f"bias has element type {bias.dtype}", line=line
            )
        args["bias"] = _vector(bias, "bias", op, access)
    if isinstance(scale, Tile):
        if scale.dtype != FLOAT32:
            raise NKIError(
                "err_activation_scale_invalid_type", f"scale tile has element type {scale.dtype}", line=line
            )
        if scale.access.free_size != 1 and len(scale.shape) > 1:
            raise NKIError(
                "err_activation_scale_scalar_or_vector", f"scale has shape {list(scale.shape)}", line=line
            )
        args["scale"] = _vector(scale, "scale", op, access)
    elif isinstance(scale, int | float | np.number):
        args["scale"] = float(scale)
    else:
        raise NKIError("err_activation_scale_invalid_type", f"scale is {type(scale).__name__}", line=line)
    return access, args


def _reduction_target(value: Any, data: Access, op: str) -> Access:
    access = destination(value, name="reduce_res", op=op, buffers=ON_CHIP)
    if access.shape[0] != data.shape[0] or access.free_size != 1:
        raise NKIError(
            "shape_mismatch",
            f"reduce_res of '{op}' must have shape [{data.shape[0]}, 1], got {list(access.shape)}",
            line=current().line(),
        )
    return access


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
    access, args = _activation_args(data, bias, scale, "activation_reduce")
    reduction = op_name(reduce_op, ("add",), "activation_reduce")
    target = _reduction_target(reduce_res, access, "activation_reduce")
    return result(
        "nisa.activation_reduce",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args=args,
        attrs={"op": name, "reduce_op": reduction},
        mask=mask,
        extra=(target,),
        hint=name,
    )


# -- VectorE -------------------------------------------------------------------------------------------------------------
@api(
    "nisa.tensor_tensor",
    engine="vector (gpsimd for power and integer add, subtract, multiply)",
    cost="max(MIN_II, 2N)",
)
def tensor_tensor(
    data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None
) -> Tile:
    """data1 op data2, element by element; same partitions and the same number of elements; not both in PSUM."""
    name = alu_op(op, "tensor_tensor")
    a, b = _tile(data1, "data1", "tensor_tensor"), _tile(data2, "data2", "tensor_tensor")
    _same_partitions("tensor_tensor", data1=a, data2=b)
    _not_both_psum("tensor_tensor", data1=a, data2=b)
    where = _engine(engine, "tensor_tensor", ("vector", "gpsimd"))
    if where == "gpsimd" and Buffer.PSUM in (a.tensor.buffer, b.tensor.buffer):
        raise NKIError(
            "err_unsupported_memory", "the gpsimd engine cannot access psum", line=current().line()
        )
    args, shape, promoted = elementwise_operands("tensor_tensor", {"data1": data1, "data2": data2})
    return result(
        "nisa.tensor_tensor",
        shape=shape,
        dtype=_dtype(dtype, promoted),
        args=args,
        attrs={"op": name, "engine": where},
        mask=mask,
        hint=name,
    )


def _check_op_mix(op0: str, op1: str | None, op: str) -> None:
    if op1 is not None and (op0 in BITVEC) != (op1 in BITVEC):
        raise NKIError(
            "unsupported_op",
            f"'{op}' mixes the bitwise operation and the arithmetic operation {op0}, {op1}",
            line=current().line(),
        )


@api("nisa.tensor_scalar", engine="vector, scalar or gpsimd", cost=MIN_II)
def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = None,
) -> Tile:
    """(data op0 operand0) op1 operand1; operands are numbers or [P, 1] tiles. Two operations cost as much as one.

    reverse0/reverse1 swap the sides: operand0 op0 data.
    """
    access = _tile(data, "data", "tensor_scalar")
    args: dict[str, Operand] = {
        "data": access,
        "operand0": _vector(operand0, "operand0", "tensor_scalar", access),
    }
    name0 = alu_op(op0, "tensor_scalar")
    attrs: dict[str, Any] = {"op0": name0, "reverse0": bool(reverse0)}
    name1 = None
    if op1 is not None:
        name1 = alu_op(op1, "tensor_scalar")
        args["operand1"] = _vector(operand1, "operand1", "tensor_scalar", access)
        attrs |= {"op1": name1, "reverse1": bool(reverse1)}
    _check_op_mix(name0, name1, "tensor_scalar")
    attrs["engine"] = _engine(engine, "tensor_scalar", ("vector", "scalar", "gpsimd"))
    return result(
        "nisa.tensor_scalar",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args=args,
        attrs=attrs,
        mask=mask,
        hint=name1 or name0,
    )


@api("nisa.tensor_scalar_reduce", engine="vector", cost="max(MIN_II, N) + MIN_II")
def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tile:
    """Data op0 operand0, and its reduction over all free axes into reduce_res [P, 1]."""
    access = _tile(data, "data", "tensor_scalar_reduce")
    name = alu_op(op0, "tensor_scalar_reduce")
    reduction = op_name(
        reduce_op, ("add", "subtract", "multiply", "maximum", "minimum"), "tensor_scalar_reduce"
    )
    target = _reduction_target(reduce_res, access, "tensor_scalar_reduce")
    return result(
        "nisa.tensor_scalar_reduce",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"data": access, "operand0": _vector(operand0, "operand0", "tensor_scalar_reduce", access)},
        attrs={"op0": name, "reverse0": bool(reverse0), "reduce_op": reduction},
        mask=mask,
        extra=(target,),
        hint=name,
    )


@api("nisa.scalar_tensor_tensor", engine="vector", cost="2N")
def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tile:
    """(data op0 operand0) op1 operand1, with operand0 a number or [P, 1] tile and operand1 a full tile."""
    access = _tile(data, "data", "scalar_tensor_tensor")
    other = _tile(operand1, "operand1", "scalar_tensor_tensor")
    _same_partitions("scalar_tensor_tensor", data=access, operand1=other)
    _not_both_psum("scalar_tensor_tensor", data=access, operand1=other)
    name0, name1 = alu_op(op0, "scalar_tensor_tensor"), alu_op(op1, "scalar_tensor_tensor")
    _check_op_mix(name0, name1, "scalar_tensor_tensor")
    full, shape, promoted = elementwise_operands("scalar_tensor_tensor", {"data": data, "operand1": operand1})
    args = {
        "data": full["data"],
        "operand0": _vector(operand0, "operand0", "scalar_tensor_tensor", access),
        "operand1": full["operand1"],
    }
    return result(
        "nisa.scalar_tensor_tensor",
        shape=shape,
        dtype=_dtype(dtype, promoted),
        args=args,
        attrs={"op0": name0, "op1": name1, "reverse0": bool(reverse0), "reverse1": bool(reverse1)},
        mask=mask,
        hint=name1,
    )


def reduction_axes(axis: Any, ndim: int, op: str, *, trailing: bool = False) -> tuple[int, ...]:
    """The free axes that a reduction names.

    Args:
        axis: one axis or several.
        ndim: axes of the tile.
        op: for the message.
        trailing: whether they must be contiguous and end at the last, as `nisa.tensor_reduce` of Beta 1 wants.

    Raises:
        NKIError: if they are not allowed, or include the partition axis.
    """
    values = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(int(a) % ndim for a in values))
    if 0 in axes:
        raise NKIError(
            "unsupported_axis",
            f"'{op}' cannot reduce the partition axis",
            line=current().line(),
            remedy="transpose first, multiply by a vector of ones with nc_matmul, or use nisa.tensor_partition_reduce",
        )
    if trailing and axes != tuple(range(ndim - len(axes), ndim)):
        raise NKIError(
            "unsupported_axis",
            f"'{op}' reduces axes {list(axes)} of a {ndim}-axis tile; they must be the trailing ones",
            line=current().line(),
        )
    return axes


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Shape of a reduction's result; at least two axes."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    kept = tuple(n for k, n in enumerate(shape) if k not in axes)
    return kept if len(kept) >= 2 else (*kept, 1)


@api("nisa.tensor_reduce", engine="vector", cost="N")
def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
) -> Tile:
    """Reduce the trailing free axes with an associative operation; negate=True negates the result."""
    access = _tile(data, "data", "tensor_reduce")
    name = reduce_op(op, "tensor_reduce")
    trailing = current().dialect == "neuronxcc.nki"
    axes = reduction_axes(axis, len(access.shape), "tensor_reduce", trailing=trailing)
    return result(
        "nisa.tensor_reduce",
        shape=reduced_shape(access.shape, axes, keepdims),
        dtype=_dtype(dtype, access.dtype),
        args={"data": access},
        attrs={"op": name, "axis": axes, "negate": bool(negate), "keepdims": bool(keepdims)},
        mask=mask,
        mask_ndim=len(access.shape),
        hint=f"{name}_reduced",
    )


@api("nisa.tensor_partition_reduce", engine="gpsimd (slow)")
def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Reduce over the partition axis: [P, F] -> [1, F]; add, max, bitwise and/or."""
    access = _tile(data, "data", "tensor_partition_reduce")
    name = op_name(op, ("add", "maximum", "bitwise_and", "bitwise_or"), "tensor_partition_reduce")
    return result(
        "nisa.tensor_partition_reduce",
        shape=(1, *access.shape[1:]),
        dtype=_dtype(dtype, access.dtype),
        args={"data": access},
        attrs={"op": name},
        mask=mask,
        hint="reduced",
    )


@api("nisa.reciprocal", engine="vector", cost="documented max(MIN_II, 8N), measured about 2N")
def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """1 / data, more precise than ScalarE's reciprocal."""
    access = _tile(data, "data", "reciprocal")
    return result(
        "nisa.reciprocal",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"data": access},
        mask=mask,
    )


@api("nisa.tensor_tensor_scan", engine="vector", cost="max(MIN_II, 2N)")
def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
) -> Tile:
    """r[i] = (data0[i] op0 r[i-1]) op1 data1[i] along the free axis, r[-1] = initial (a number or [P, 1] tile)."""
    a, b = _tile(data0, "data0", "tensor_tensor_scan"), _tile(data1, "data1", "tensor_tensor_scan")
    _same_partitions("tensor_tensor_scan", data0=a, data1=b)
    _not_both_psum("tensor_tensor_scan", data0=a, data1=b)
    full, shape, promoted = elementwise_operands("tensor_tensor_scan", {"data0": data0, "data1": data1})
    args = {**full, "initial": _vector(initial, "initial", "tensor_tensor_scan", a)}
    attrs = {
        "op0": alu_op(op0, "tensor_tensor_scan"),
        "op1": alu_op(op1, "tensor_tensor_scan"),
        "reverse0": bool(reverse0),
        "reverse1": bool(reverse1),
    }
    return result(
        "nisa.tensor_tensor_scan",
        shape=shape,
        dtype=_dtype(dtype, promoted),
        args=args,
        attrs=attrs,
        mask=mask,
        hint="scan",
    )


@api("nisa.tensor_copy", engine="vector, scalar or gpsimd", cost=MIN_II)
def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """A copy, cast to dtype; GpSimd cannot touch PSUM."""
    access = _tile(src, "src", "tensor_copy")
    where = _engine(engine, "tensor_copy", ("vector", "scalar", "gpsimd"))
    if where == "gpsimd" and access.tensor.buffer is Buffer.PSUM:
        raise NKIError(
            "err_unsupported_memory", "the gpsimd engine cannot access psum", line=current().line()
        )
    return result(
        "nisa.tensor_copy",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"src": access},
        attrs={"engine": where},
        mask=mask,
        hint="copy",
    )


@api("nisa.tensor_copy_predicated", engine="vector", cost="max(MIN_II, 2N), N if one operand is in PSUM")
def tensor_copy_predicated(
    *, src: Any, dst: Any, predicate: Any, mask: Any = None, dtype: Any = None, reverse_pred: bool = False
) -> None:
    """dst[...] = src where predicate is non-zero; elsewhere dst keeps its value."""
    target = destination(dst, op="tensor_copy_predicated", buffers=ON_CHIP)
    pred = _tile(predicate, "predicate", "tensor_copy_predicated")
    value = (
        broadcast_access(_tile(src, "src", "tensor_copy_predicated"), target.shape)
        if isinstance(src, Tile)
        else scalar_operand(src, "src", "tensor_copy_predicated")
    )
    emit_into(
        "nisa.tensor_copy_predicated",
        (target,),
        {"src": value, "predicate": broadcast_access(pred, target.shape), "dst": target},
        {"reverse_pred": bool(reverse_pred)},
        mask=mask,
    )


@api("nisa.tensor_copy_dynamic_src", engine="vector, scalar or gpsimd", cost="max(600, N)")
def tensor_copy_dynamic_src(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """A copy from an offset read at run time (given as an index tile in the subscript of src)."""
    if not isinstance(src, Tile):
        raise NKIError("invalid_operand", "src must be a tile", line=current().line())
    access = operand(src, name="src", op="tensor_copy_dynamic_src")
    return result(
        "nisa.tensor_copy_dynamic_src",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"src": access},
        attrs={"engine": _engine(engine, "tensor_copy_dynamic_src", ("vector", "scalar", "gpsimd"))},
        mask=mask,
        hint="copy",
    )


@api("nisa.memset", engine="vector or gpsimd", cost="max(MIN_II, N), N/2 for zero in a 2-byte type")
def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None) -> Tile:
    """A tile filled with a constant; shape[0] is the partition dimension."""
    dims = tuple(int(d) for d in shape)
    return result(
        "nisa.memset",
        shape=dims,
        dtype=as_dtype(dtype, current().line()),
        args={},
        attrs={
            "value": scalar_operand(value, "value", "memset"),
            "engine": _engine(engine, "memset", ("vector", "gpsimd")),
        },
        mask=mask,
        hint="constant",
    )


@api("nisa.bn_stats", engine="vector", cost=MIN_II)
def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Per partition (count, mean, variance*count) of the even elements, then of the odd ones: [P, N <= 512] -> [P, 6]."""
    access = _tile(data, "data", "bn_stats")
    _free_limit("bn_stats", 512, data=access)
    return result(
        "nisa.bn_stats",
        shape=(access.shape[0], 6),
        dtype=_dtype(dtype, FLOAT32),
        args={"data": access},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="stats",
    )


@api("nisa.bn_aggr", engine="vector", cost="max(MIN_II, 13*N/3)")
def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Combine (count, mean, variance*count) triples into [P, 2] = (mean, variance)."""
    access = _tile(data, "data", "bn_aggr")
    if access.free_size % 3:
        raise NKIError(
            "shape_mismatch",
            f"bn_aggr takes triples, got {access.free_size} elements per partition",
            line=current().line(),
        )
    return result(
        "nisa.bn_aggr",
        shape=(access.shape[0], 2),
        dtype=_dtype(dtype, FLOAT32),
        args={"data": access},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="mean_var",
    )


def _top8_limits(access: Access, op: str) -> None:
    if not 8 <= access.free_size <= 16384:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"'{op}' takes 8 to 16384 elements per partition, got {access.free_size}",
            line=current().line(),
        )


@api("nisa.max8", engine="vector", cost="N")
def max8(*, src: Any, mask: Any = None, dtype: Any = None) -> Tile:
    """The eight largest values of each partition, descending: [P, 8]."""
    access = _tile(src, "src", "max8")
    _top8_limits(access, "max8")
    return result(
        "nisa.max8",
        shape=(access.shape[0], 8),
        dtype=_dtype(dtype, access.dtype),
        args={"src": access},
        mask=mask,
        mask_ndim=len(access.shape),
        hint="top8",
    )


def _eight(value: Any, op: str) -> Access:
    access = _tile(value, "vals", op)
    if access.free_size != 8:
        raise NKIError(
            "shape_mismatch",
            f"'vals' of '{op}' must have 8 values per partition, got {access.free_size}",
            line=current().line(),
        )
    return access


@api("nisa.nc_find_index8", engine="vector", cost="N")
def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None) -> Tile:
    """Index of the first occurrence of each of eight values in each partition: [P, 8] unsigned."""
    access = _tile(data, "data", "nc_find_index8")
    _top8_limits(access, "nc_find_index8")
    return result(
        "nisa.nc_find_index8",
        shape=(access.shape[0], 8),
        dtype=_dtype(dtype, np.dtype(np.uint32)),
        args={"data": access, "vals": _eight(vals, "nc_find_index8")},
        mask=mask,
        hint="index8",
    )


@api("nisa.nc_match_replace8", engine="vector", cost=MIN_II)
def nc_match_replace8(
    *, data: Any, vals: Any, imm: Any, dst_idx: Any = None, mask: Any = None, dtype: Any = None
) -> Tile:
    """Replace the first occurrence of each of eight values by imm; dst_idx [P, 8] gets where they were."""
    access = _tile(data, "data", "nc_match_replace8")
    _top8_limits(access, "nc_match_replace8")
    extra = (
        (destination(dst_idx, name="dst_idx", op="nc_match_replace8", buffers=ON_CHIP),)
        if dst_idx is not None
        else ()
    )
    return result(
        "nisa.nc_match_replace8",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={
            "data": access,
            "vals": _eight(vals, "nc_match_replace8"),
            "imm": scalar_operand(imm, "imm", "nc_match_replace8"),
        },
        mask=mask,
        extra=extra,
        hint="replaced",
    )


@api("nisa.nc_stream_shuffle", engine="vector", cost=MIN_II)
def nc_stream_shuffle(src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None) -> None:
    """Within each quadrant of 32 partitions, output partition i takes input partition shuffle_mask[i] (255 keeps)."""
    target = destination(dst, op="nc_stream_shuffle", buffers=ON_CHIP)
    source = _tile(src, "src", "nc_stream_shuffle")
    lanes = tuple(int(v) for v in shuffle_mask)
    if len(lanes) != 32 or any(not (0 <= v < 32 or v == 255) for v in lanes):
        raise NKIError(
            "invalid_operand", "shuffle_mask must be 32 values from 0..31 or 255", line=current().line()
        )
    emit_into("nisa.nc_stream_shuffle", (target,), {"src": source}, {"shuffle_mask": lanes}, mask=mask)


@api("nisa.dropout", engine="vector", cost=MIN_II)
def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Each element becomes zero with probability prob (a number or a [P, 1] tile)."""
    access = _tile(data, "data", "dropout")
    return result(
        "nisa.dropout",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"data": access, "prob": _vector(prob, "prob", "dropout", access)},
        mask=mask,
    )


@api("nisa.select_reduce", engine="vector")
def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_op: Any = None,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> None:
    """Dst = on_true where predicate else on_false (a number or [P, 1] tile); optionally max-reduces into reduce_res."""
    target = destination(dst, op="select_reduce", buffers=ON_CHIP)
    pred = broadcast_access(_tile(predicate, "predicate", "select_reduce"), target.shape)
    true = broadcast_access(_tile(on_true, "on_true", "select_reduce"), target.shape)
    attrs: dict[str, Any] = {"reverse_pred": bool(reverse_pred)}
    extra: tuple[Access, ...] = ()
    if reduce_res is not None:
        name = op_name(reduce_op, ("maximum",), "select_reduce") if reduce_op is not None else "maximum"
        attrs |= {"reduce_op": name, "reduce_cmd": getattr(reduce_cmd, "name", "idle")}
        extra = (_reduction_target(reduce_res, target, "select_reduce"),)
    emit_into(
        "nisa.select_reduce",
        (target, *extra),
        {
            "predicate": pred,
            "on_true": true,
            "on_false": _vector(on_false, "on_false", "select_reduce", target),
        },
        attrs,
        mask=mask,
    )


@api("nisa.range_select", engine="vector (trn2 and later)", cost=MIN_II)
def range_select(
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_res: Any = None,
    reduce_op: Any = None,
    range_start: Any = 0,
    on_false_value: Any = -3.4028235e38,
    mask: Any = None,
    dtype: Any = None,
) -> Tile:
    """Keep element i where comp_op0(range_start+i, bound0) and comp_op1(range_start+i, bound1); max-reduces on request."""
    session = current()
    if session.machine.generation < 3:
        raise NKIError(
            "unsupported_on_target",
            "range_select needs NeuronCore-v3 (trn2)",
            line=session.line(),
            remedy="use nisa.affine_select or nl.where",
        )
    access = _tile(on_true_tile, "on_true_tile", "range_select")
    comparisons = ("equal", "less", "less_equal", "greater", "greater_equal")
    attrs: dict[str, Any] = {
        "comp_op0": op_name(comp_op0, comparisons, "range_select"),
        "comp_op1": op_name(comp_op1, comparisons, "range_select"),
        "range_start": int(range_start),
        "on_false_value": float(on_false_value),
    }
    extra: tuple[Access, ...] = ()
    if reduce_res is not None:
        attrs |= {"reduce_op": "maximum", "reduce_cmd": getattr(reduce_cmd, "name", "idle")}
        extra = (_reduction_target(reduce_res, access, "range_select"),)
    args: dict[str, Operand] = {
        "on_true_tile": access,
        "bound0": _vector(bound0, "bound0", "range_select", access),
        "bound1": _vector(bound1, "bound1", "range_select", access),
    }
    return result(
        "nisa.range_select",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args=args,
        attrs=attrs,
        mask=mask,
        extra=extra,
        hint="selected",
    )


# -- GpSimd --------------------------------------------------------------------------------------------------------------
@api("nisa.iota", engine="gpsimd", cost="150 + N")
def iota(expr: Any, dtype: Any, *, mask: Any = None) -> Tile:
    """A tile holding the values of an affine expression of nl.arange and loop indices."""
    if not isinstance(expr, IndexExpr) or len(expr.shape) < 2:
        raise NKIError(
            "invalid_operand",
            "iota takes an nl.arange expression with a partition and a free axis",
            line=current().line(),
        )
    return result(
        "nisa.iota",
        shape=expr.shape,
        dtype=as_dtype(dtype, current().line()),
        args={},
        attrs={"expr": expr.affine},
        mask=mask,
    )


@api("nisa.affine_select", engine="gpsimd", cost="150 + N")
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None
) -> Tile:
    """on_true_tile where an affine comparison of nl.arange holds, else the constant on_false_value."""
    access = _tile(on_true_tile, "on_true_tile", "affine_select")
    parts = condition_parts(pred, len(access.shape), "pred")
    return result(
        "nisa.affine_select",
        shape=access.shape,
        dtype=_dtype(dtype, access.dtype),
        args={"on_true_tile": access},
        attrs={
            "pred": parts,
            "on_false_value": _number(on_false_value, "on_false_value", "affine_select"),
        },
        mask=mask,
        hint="selected",
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
    """Per 16-partition core, gather elements of each partition by the core's indices (uint16, partition-first order)."""
    access = _tile(src_buffer, "src_buffer", "local_gather")
    idx = _tile(index, "index", "local_gather")
    line = current().line()
    if access.shape[0] % 16 or idx.shape[0] != access.shape[0]:
        raise NKIError(
            "err_num_partition_mismatch",
            "local_gather needs a multiple of 16 partitions in both tiles",
            line=line,
        )
    if num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
        raise NKIError("invalid_operand", "num_elem_per_idx must be 1, 2, 4, 8, 16 or 32", line=line)
    total = idx.free_size * 16
    valid = total if num_valid_indices is None else int(num_valid_indices)
    if total > 4096 or valid > total:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"local_gather takes up to 4096 indices, got {total}",
            line=line,
        )
    shape = (
        (access.shape[0], total) if num_elem_per_idx == 1 else (access.shape[0], total, int(num_elem_per_idx))
    )
    return result(
        "nisa.local_gather",
        shape=shape,
        dtype=access.dtype,
        args={"src_buffer": access, "index": idx},
        attrs={"num_elem_per_idx": int(num_elem_per_idx), "num_valid_indices": valid},
        mask=mask,
        hint="gathered",
    )


@api("nisa.sequence_bounds", engine="gpsimd")
def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> Tile:
    """For each element [start, end) of its run of equal segment ids; padding (id 0) gives (N, -1): [1, N] -> [1, 2, N]."""
    access = _tile(segment_ids, "segment_ids", "sequence_bounds")
    if access.shape[0] != 1:
        raise NKIError("shape_mismatch", "sequence_bounds takes one partition", line=current().line())
    return result(
        "nisa.sequence_bounds",
        shape=(1, 2, access.free_size),
        dtype=_dtype(dtype, access.dtype),
        args={"segment_ids": access},
        hint="bounds",
    )


# -- DMA -----------------------------------------------------------------------------------------------------------------
@api("nisa.dma_copy", engine="dma")
def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = oob_mode.error,
    dge_mode: Any = None,
) -> None:
    """Copy between HBM and SBUF in any direction, with a cast; dst_rmw_op=np.add adds into dst."""
    copy_over_dma(dst, src, mask, dst_rmw_op, oob_mode)


def copy_over_dma(dst: Any, src: Any, mask: Any, dst_rmw_op: Any, oob: Any) -> None:
    """The body of `dma_copy`, for both dialects.

    Raises:
        NKIError: for PSUM operands or shapes that differ.
    """
    allowed = (Buffer.SBUF, *HBM_BUFFERS)
    if not isinstance(dst, Tile) or not isinstance(src, Tile):
        raise NKIError("invalid_operand", "dma_copy takes two tensors", line=current().line())
    target = destination(dst, op="dma_copy", buffers=allowed)
    source = operand(src, name="src", op="dma_copy", buffers=allowed)
    if source.shape != target.shape:
        if int(np.prod(source.shape)) == int(np.prod(target.shape)) and len(source.shape) != len(
            target.shape
        ):
            from .emit import _fit

            source = _fit(source, target.shape, target.tensor.name)
        else:
            source = broadcast_access(source, target.shape)
    attrs: dict[str, Any] = {"oob_mode": getattr(oob, "name", "error")}
    if dst_rmw_op is not None:
        attrs["dst_rmw_op"] = op_name(dst_rmw_op, ("add",), "dma_copy")
    emit_into("nisa.dma_copy", (target,), {"src": source}, attrs, mask=mask)


@api("nisa.dma_transpose", engine="dma (slow on trn1)")
def dma_transpose(
    src: Any, *, axes: Any = None, dge_mode: Any = None, mask: Any = None, dtype: Any = None
) -> Tile:
    """Transpose while loading: 2-D (1, 0), 3-D (2, 1, 0), 4-D (3, 1, 2, 0)."""
    if not isinstance(src, Tile):
        raise NKIError("invalid_operand", "dma_transpose takes a tensor", line=current().line())
    access = operand(src, name="src", op="dma_transpose", buffers=(Buffer.SBUF, *HBM_BUFFERS))
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    n = len(access.shape)
    order = tuple(int(a) for a in axes) if axes is not None else defaults.get(n)
    if order is None or order != defaults.get(n):
        raise NKIError(
            "unsupported_axis", f"dma_transpose does not support axes {axes} of {n}", line=current().line()
        )
    return result(
        "nisa.dma_transpose",
        shape=tuple(access.shape[a] for a in order),
        dtype=_dtype(dtype, access.dtype),
        args={"src": access},
        attrs={"axes": order},
        mask=mask,
        hint="transposed",
    )


@api("nisa.get_nc_version", engine="host")
def get_nc_version() -> nc_version:
    """The target's NeuronCore generation."""
    return nc_version(current().machine.generation)
