"""Instructions of the Vector engine: element-wise, scans, copies, selections."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import BY_NAME, FLOAT32, as_dtype, is_float, is_integer
from ...errors import NKIError
from ...ir import Access, Affine, Operand
from ..emit import ON_CHIP, destination, elementwise_operands, emit_into, result, scalar_operand
from ..opnames import (
    ARITHMETIC,
    BINARY_ARITHMETIC,
    NOT_ON_VECTOR,
    UNARY_ARITHMETIC,
    alu_op,
    binary_op,
    op_name,
    reduce_op,
    vector_op,
)
from ..registry import api
from ..session import current
from ..tile import Tile, as_extent
from ..views import broadcast_access, reshape_access
from . import enums
from .checks import (
    MIN_II,
    SHORT_INTEGERS,
    check_op_mix,
    element_type,
    engine_name,
    no_psum_on_gpsimd,
    not_both_psum,
    number,
    reduced_shape,
    reduction_axes,
    result_type,
    same_free_size,
    same_partitions,
    tile_operand,
    unsupported_on_target,
    vector,
)
from .registers import reduction

EXACT = ("add", "subtract", "multiply")
"""Operations that GpSimd does in true 32-bit integers."""


# -- element-wise ---------------------------------------------------------------------------------------------------------
@api(
    "nisa.tensor_tensor",
    engine="vector (gpsimd for power and 32-bit integer add, subtract, multiply)",
    cost="max(MIN_II, 2N)",
)
def tensor_tensor(
    data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None
) -> Tile:
    """data1 op data2, element by element; same partitions, free axes of extent 1 repeat; not both in PSUM."""
    name = binary_op(op, "tensor_tensor")
    a, b = tile_operand(data1, "data1", "tensor_tensor"), tile_operand(data2, "data2", "tensor_tensor")
    same_partitions("tensor_tensor", data1=a, data2=b)
    not_both_psum("tensor_tensor", data1=a, data2=b)
    check_op_mix("tensor_tensor", a.dtype, name)
    check_op_mix("tensor_tensor", b.dtype, name)
    where = engine_name(engine, "tensor_tensor", ("gpsimd",) if name == "power" else ("vector", "gpsimd"))
    exact = (
        name in EXACT
        and a.dtype.itemsize == b.dtype.itemsize == 4
        and is_integer(a.dtype)
        and is_integer(b.dtype)
    )
    if where == "gpsimd" or name == "power" or exact:
        no_psum_on_gpsimd("tensor_tensor", a, b)
    if a.shape != b.shape and a.free_size == b.free_size:
        b = _like(b, a)
    args, shape, promoted = elementwise_operands("tensor_tensor", {"data1": Tile(a), "data2": Tile(b)})
    return result(
        "nisa.tensor_tensor",
        shape=shape,
        dtype=result_type(dtype, promoted),
        args=args,
        attrs={"op": name, "engine": where},
        mask=mask,
        hint=name,
    )


def _like(access: Access, other: Access) -> Access:
    """`access` with the free axes of another of the same size."""
    kept = [n for n in access.shape if n > 1]
    if kept == [n for n in other.shape if n > 1] or len(access.shape) != len(other.shape):
        return reshape_access(access, other.shape)
    return access


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
    access = tile_operand(data, "data", "tensor_scalar")
    name0 = alu_op(op0, "tensor_scalar")
    args: dict[str, Operand] = {"data": access, "operand0": _second(name0, operand0, "operand0", access)}
    attrs: dict[str, Any] = {"op0": name0, "reverse0": bool(reverse0)}
    name1 = None
    if op1 is not None:
        name1 = alu_op(op1, "tensor_scalar")
        args["operand1"] = _second(name1, operand1, "operand1", access)
        attrs |= {"op1": name1, "reverse1": bool(reverse1)}
    elif operand1 is not None:
        raise NKIError(
            "invalid_operand",
            "tensor_scalar has operand1 without op1",
            line=current().line(),
            remedy="give op1 too, or leave operand1 out",
        )
    check_op_mix("tensor_scalar", access.dtype, name0, name1)
    attrs["engine"] = _tensor_scalar_engine(engine, name0, name1)
    if attrs["engine"] == "gpsimd":
        no_psum_on_gpsimd("tensor_scalar", access)
    return result(
        "nisa.tensor_scalar",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args=args,
        attrs=attrs,
        mask=mask,
        hint=name1 or name0,
    )


def _second(op: str, value: Any, name: str, data: Access) -> Operand:
    """The second operand of an ALU operation; those with one operand may leave it out."""
    if value is None and op in UNARY_ARITHMETIC:
        return 0.0
    return vector(value, name, "tensor_scalar", data)


def _tensor_scalar_engine(value: Any, op0: str, op1: str | None) -> str:
    name = engine_name(value, "tensor_scalar", ("vector", "scalar", "gpsimd"))
    ops = [op for op in (op0, op1) if op is not None]
    fault = None
    if name == "vector" and any(op in NOT_ON_VECTOR for op in ops):
        fault = "the vector engine has neither rsqrt nor power"
    elif name == "gpsimd" and any(op not in NOT_ON_VECTOR for op in ops):
        fault = "on the gpsimd engine it does rsqrt and power only"
    elif name == "scalar":
        newer = current().machine.generation >= 3
        chains = [["multiply", "add"], ["multiply"], ["add"]] if newer else []
        if ops not in chains and any(op not in ("rsqrt", "reciprocal", "abs") for op in ops):
            fault = "on the scalar engine it does " + (
                "multiply with add, multiply, or add only"
                if newer
                else "neither add nor multiply before trn2"
            )
    if fault:
        raise NKIError(
            "unsupported_engine",
            f"tensor_scalar with {' and '.join(ops)} cannot run on the {name} engine: {fault}",
            line=current().line(),
            remedy="leave engine out, or use nisa.activation for the scalar engine",
        )
    return name


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
    """Data op0 operand0 (arithmetic), and its reduction over all free axes into reduce_res [P, 1]."""
    if reverse0:
        raise NKIError(
            "unsupported_api",
            "tensor_scalar_reduce does not support reverse0 yet",
            line=current().line(),
            remedy="use nisa.tensor_scalar with reverse0=True and nisa.tensor_reduce",
        )
    command = enums.reduce_cmd.reset_reduce
    return reduced_tensor_scalar(data, op0, operand0, reduce_op, reduce_res, command, dtype, mask)


def reduced_tensor_scalar(
    data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any, command: Any, dtype: Any, mask: Any
) -> Tile:
    """The body of `tensor_scalar_reduce`, for both dialects."""
    op = "tensor_scalar_reduce"
    access = tile_operand(data, "data", op)
    name = vector_op(op0, op, ARITHMETIC)
    folded = op_name(reduce_op, ("add", "subtract", "multiply", "maximum", "minimum"), op)
    with reduction("vector", op, folded, command, reduce_res, access) as reduced:
        return result(
            "nisa.tensor_scalar_reduce",
            shape=access.shape,
            dtype=result_type(dtype, access.dtype),
            args={"data": access, "operand0": _second(name, operand0, "operand0", access)},
            attrs={"op0": name, "reverse0": False, "reduce_op": folded, **_only_later(reduced.attrs)},
            mask=mask,
            extra=reduced.extra,
            hint=name,
        )


def _only_later(attrs: dict[str, Any]) -> dict[str, Any]:
    """What an instruction that always reduces says of its registers: only that it adds to them."""
    return {k: v for k, v in attrs.items() if k == "reduce_cmd" and v == "reduce"}


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
    access = tile_operand(data, "data", "scalar_tensor_tensor")
    other = tile_operand(operand1, "operand1", "scalar_tensor_tensor")
    same_partitions("scalar_tensor_tensor", data=access, operand1=other)
    same_free_size("scalar_tensor_tensor", data=access, operand1=other)
    not_both_psum("scalar_tensor_tensor", data=access, operand1=other)
    name0, name1 = (vector_op(op, "scalar_tensor_tensor") for op in (op0, op1))
    check_op_mix("scalar_tensor_tensor", access.dtype, name0, name1)
    full, shape, promoted = elementwise_operands("scalar_tensor_tensor", {"data": data, "operand1": operand1})
    args = {
        "data": full["data"],
        "operand0": vector(operand0, "operand0", "scalar_tensor_tensor", access),
        "operand1": full["operand1"],
    }
    return result(
        "nisa.scalar_tensor_tensor",
        shape=shape,
        dtype=result_type(dtype, promoted),
        args=args,
        attrs={"op0": name0, "op1": name1, "reverse0": bool(reverse0), "reverse1": bool(reverse1)},
        mask=mask,
        hint=name1,
    )


@api("nisa.reciprocal", engine="vector", cost="documented max(MIN_II, 8N), measured about 2N")
def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """1 / data, more precise than ScalarE's reciprocal."""
    access = tile_operand(data, "data", "reciprocal")
    return result(
        "nisa.reciprocal",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
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
    a, b = (
        tile_operand(data0, "data0", "tensor_tensor_scan"),
        tile_operand(data1, "data1", "tensor_tensor_scan"),
    )
    same_partitions("tensor_tensor_scan", data0=a, data1=b)
    same_free_size("tensor_tensor_scan", data0=a, data1=b)
    not_both_psum("tensor_tensor_scan", data0=a, data1=b)
    full, shape, promoted = elementwise_operands("tensor_tensor_scan", {"data0": data0, "data1": data1})
    args = {**full, "initial": vector(initial, "initial", "tensor_tensor_scan", a)}
    attrs = {
        "op0": vector_op(op0, "tensor_tensor_scan", BINARY_ARITHMETIC),
        "op1": vector_op(op1, "tensor_tensor_scan", BINARY_ARITHMETIC),
        "reverse0": bool(reverse0),
        "reverse1": bool(reverse1),
    }
    return result(
        "nisa.tensor_tensor_scan",
        shape=shape,
        dtype=result_type(dtype, promoted),
        args=args,
        attrs=attrs,
        mask=mask,
        hint="scan",
    )


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
    access = tile_operand(data, "data", "tensor_reduce")
    name = reduce_op(op, "tensor_reduce")
    check_op_mix("tensor_reduce", access.dtype, name)
    if negate and name.startswith("bitwise"):
        raise NKIError(
            "unsupported_op", "tensor_reduce negates the results of arithmetic only", line=current().line()
        )
    trailing = current().dialect == "neuronxcc.nki"
    axes = reduction_axes(axis, len(access.shape), "tensor_reduce", trailing=trailing)
    return result(
        "nisa.tensor_reduce",
        shape=reduced_shape(access.shape, axes, keepdims),
        dtype=result_type(dtype, access.dtype),
        args={"data": access},
        attrs={"op": name, "axis": axes, "negate": bool(negate), "keepdims": bool(keepdims)},
        mask=mask,
        mask_ndim=len(access.shape),
        hint=f"{name}_reduced",
    )


# -- copies ---------------------------------------------------------------------------------------------------------------
@api("nisa.tensor_copy", engine="vector, scalar or gpsimd", cost=MIN_II)
def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """A copy, cast to dtype; GpSimd cannot touch PSUM."""
    access = tile_operand(src, "src", "tensor_copy")
    where = engine_name(engine, "tensor_copy", ("vector", "scalar", "gpsimd"))
    if where == "gpsimd":
        no_psum_on_gpsimd("tensor_copy", access)
    return result(
        "nisa.tensor_copy",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args={"src": access},
        attrs={"engine": where},
        mask=mask,
        hint="copy",
    )


@api("nisa.tensor_copy_predicated", engine="vector", cost="max(MIN_II, 2N), N if one operand is in PSUM")
def tensor_copy_predicated(
    *, src: Any, dst: Any, predicate: Any, mask: Any = None, dtype: Any = None, reverse_pred: bool = False
) -> None:
    """dst[...] = src where predicate (uint8, uint16 or uint32) is non-zero; elsewhere dst keeps its value."""
    op = "tensor_copy_predicated"
    target = destination(dst, op=op, buffers=ON_CHIP)
    pred = tile_operand(predicate, "predicate", op)
    element_type(op, "predicate", pred.dtype, tuple(BY_NAME[n] for n in ("uint8", "uint16", "uint32")))
    if isinstance(src, Tile):
        source = tile_operand(src, "src", op)
        same_partitions(op, src=source, dst=target, predicate=pred)
        not_both_psum(op, src=source, predicate=pred)
        element_type(op, "src", source.dtype, (target.dtype,))
        value: Operand = broadcast_access(source, target.shape)
    else:
        value = scalar_operand(src, "src", op)
    emit_into(
        "nisa.tensor_copy_predicated",
        (target,),
        {"src": value, "predicate": broadcast_access(pred, target.shape), "dst": target},
        {"reverse_pred": bool(reverse_pred)},
        mask=mask,
    )


@api("nisa.tensor_copy_dynamic_src", engine="vector, scalar or gpsimd", cost="max(600, N)")
def tensor_copy_dynamic_src(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """A copy from an offset read at run time: src is indexed with a scalar of an index tile, t[i_p, offsets[0, k] + i_f]."""
    access = tile_operand(src, "src", "tensor_copy_dynamic_src")
    _scalar_offset(access, "tensor_copy_dynamic_src")
    return result(
        "nisa.tensor_copy_dynamic_src",
        shape=access.shape,
        dtype=result_type(dtype, access.dtype),
        args={"src": access},
        attrs={"engine": engine_name(engine, "tensor_copy_dynamic_src", ("vector", "scalar", "gpsimd"))},
        mask=mask,
        hint="copy",
    )


@api("nisa.tensor_copy_dynamic_dst", engine="vector, scalar or gpsimd", cost="max(600, N)")
def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = None
) -> None:
    """A copy to an offset read at run time: dst is indexed with a scalar of an index tile."""
    op = "tensor_copy_dynamic_dst"
    target = destination(dst, op=op, buffers=ON_CHIP)
    _scalar_offset(target, op)
    source = tile_operand(src, "src", op)
    same_partitions(op, dst=target, src=source)
    same_free_size(op, dst=target, src=source)
    if source.shape != target.shape:
        source = _like(source, target)
    emit_into(
        "nisa.tensor_copy_dynamic_dst",
        (target,),
        {"src": source},
        {"engine": engine_name(engine, op, ("vector", "scalar", "gpsimd"))},
        mask=mask,
    )


def _scalar_offset(access: Access, op: str) -> None:
    """Refuse offsets that differ between elements, or move along the partitions.

    Raises:
        NKIError: `err_copy_dynamic_indirect_indices_not_natively_supported`.
    """
    for dim, e in enumerate(access.index):
        if isinstance(e, Affine):
            continue
        varies = any(access.shape[k] > 1 for a in e.tile.affine for k in a.axes())
        if varies or dim <= access.tensor.par_dim:
            where = "differ between elements" if varies else "lie along the partitions"
            raise NKIError(
                "err_copy_dynamic_indirect_indices_not_natively_supported",
                f"'{op}' takes one offset within each partition, those of {access.tensor.name} {where}",
                line=current().line(),
                remedy="loop over the offsets and copy once for each: t[i_p, offsets[0, k] + i_f]",
            )


@api("nisa.memset", engine="vector or gpsimd", cost="max(MIN_II, N), N/2 for zero in a 2-byte type")
def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None) -> Tile:
    """A tile filled with a constant; shape[0] is the partition dimension."""
    return result(
        "nisa.memset",
        shape=tuple(as_extent(d) for d in shape),
        dtype=as_dtype(dtype, current().line()),
        args={},
        attrs={
            "value": scalar_operand(value, "value", "memset"),
            "engine": engine_name(engine, "memset", ("vector", "gpsimd")),
        },
        mask=mask,
        hint="constant",
    )


@api("nisa.nc_stream_shuffle", engine="vector", cost=MIN_II)
def nc_stream_shuffle(src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None) -> None:
    """Within each quadrant of 32 partitions, output partition i takes input partition shuffle_mask[i] (255 keeps)."""
    op = "nc_stream_shuffle"
    target = destination(dst, op=op, buffers=ON_CHIP)
    source = tile_operand(src, "src", op)
    element_type(op, "src", source.dtype, (target.dtype,))
    same_free_size(op, dst=target, src=source)
    lanes = tuple(int(v) for v in shuffle_mask)
    if len(lanes) != 32 or any(not (0 <= v < 32 or v == 255) for v in lanes):
        raise NKIError(
            "invalid_operand",
            f"shuffle_mask has {len(lanes)} values between {min(lanes, default=0)} and {max(lanes, default=0)}",
            line=current().line(),
            remedy="give 32 values from 0 to 31, or 255 for partitions that keep their contents",
        )
    emit_into("nisa.nc_stream_shuffle", (target,), {"src": source}, {"shuffle_mask": lanes}, mask=mask)


@api("nisa.dropout", engine="vector", cost=MIN_II)
def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Each element becomes zero with probability prob (a number or a [P, 1] tile)."""
    access = tile_operand(data, "data", "dropout")
    out = result_type(dtype, access.dtype)
    if isinstance(prob, Tile):
        element_type("dropout", "prob", prob.dtype, "float" if is_float(access.dtype) else (FLOAT32,))
    if is_integer(access.dtype) and out != access.dtype:
        element_type("dropout", "dtype", out, (access.dtype,))
    return result(
        "nisa.dropout",
        shape=access.shape,
        dtype=out,
        args={"data": access, "prob": vector(prob, "prob", "dropout", access)},
        mask=mask,
    )


# -- selection ------------------------------------------------------------------------------------------------------------
@api("nisa.select_reduce", engine="vector")
def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = enums.reduce_cmd.idle,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> None:
    """Dst = on_true where predicate else on_false (a number or [P, 1] tile); optionally max-reduces into reduce_res."""
    op = "select_reduce"
    target = destination(dst, op=op, buffers=ON_CHIP)
    pred, true = tile_operand(predicate, "predicate", op), tile_operand(on_true, "on_true", op)
    same_partitions(op, dst=target, predicate=pred, on_true=true)
    not_both_psum(op, predicate=pred, on_true=true)
    element_type(op, "predicate", pred.dtype, SHORT_INTEGERS)
    if true.dtype.itemsize == 4 and is_integer(true.dtype):
        element_type(op, "on_true", true.dtype, (FLOAT32,))
    name = op_name(reduce_op, ("maximum",), op) if reduce_op is not None else "maximum"
    with reduction("vector", op, name, reduce_cmd, reduce_res, target) as reduced:
        emit_into(
            "nisa.select_reduce",
            (target, *reduced.extra),
            {
                "predicate": broadcast_access(pred, target.shape),
                "on_true": broadcast_access(true, target.shape),
                "on_false": vector(on_false, "on_false", op, target),
            },
            {"reverse_pred": bool(reverse_pred), **reduced.attrs},
            mask=mask,
        )


FLOAT32_MIN = -3.4028234663852886e38


@api("nisa.range_select", engine="vector (trn2 and later)", cost=MIN_II)
def range_select(
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = enums.reduce_cmd.idle,
    reduce_res: Any = None,
    reduce_op: Any = np.amax,
    range_start: Any = 0,
    on_false_value: Any = FLOAT32_MIN,
    mask: Any = None,
    dtype: Any = None,
) -> Tile:
    """Keep element i where comp_op0(range_start+i, bound0) and comp_op1(range_start+i, bound1); max-reduces on request.

    The bounds are float32 [P, 1] tiles; what is not kept becomes nl.fp32.min.
    """
    op = "range_select"
    unsupported_on_target(op, 3, "use nisa.affine_select or nl.where")
    access = tile_operand(on_true_tile, "on_true_tile", op)
    element_type(op, "on_true_tile", access.dtype, "float")
    comparisons = ("equal", "less", "less_equal", "greater", "greater_equal")
    bounds: dict[str, Operand] = {}
    for name, value in (("bound0", bound0), ("bound1", bound1)):
        bounds[name] = vector(tile_operand(value, name, op) and value, name, op, access)
        element_type(op, name, value.dtype, (FLOAT32,))
    if np.float32(number(on_false_value, "on_false_value", op)) != np.float32(FLOAT32_MIN):
        raise NKIError(
            "invalid_operand",
            f"on_false_value of '{op}' is {on_false_value}; the hardware fills with the smallest float32",
            line=current().line(),
            remedy="leave it out, or pass nl.fp32.min",
        )
    folded = op_name(reduce_op, ("maximum",), op) if reduce_op is not None else "maximum"
    with reduction("vector", op, folded, reduce_cmd, reduce_res, access) as reduced:
        return result(
            "nisa.range_select",
            shape=access.shape,
            dtype=result_type(dtype, access.dtype),
            args={"on_true_tile": access, **bounds},
            attrs={
                "comp_op0": op_name(comp_op0, comparisons, op),
                "comp_op1": op_name(comp_op1, comparisons, op),
                "range_start": int(range_start),
                "on_false_value": FLOAT32_MIN,
                **reduced.attrs,
            },
            mask=mask,
            extra=reduced.extra,
            hint="selected",
        )
