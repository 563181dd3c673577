"""Emitting instructions: results, assignments into tensors, in-place updates, operators on tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dtypes import FLOAT32, Dtype, as_dtype, is_integer, of_scalar, promote
from ..errors import NKIError
from ..ir import Access, Affine, Buffer, Indirect, Instr, LoopVar, Operand, identity_index
from .index import Condition, IndexExpr, broadcast_shapes
from .operand import check_bounds, check_mask, check_place, mask_parts, new_tile, operand
from .session import Session, current, in_kernel
from .subscript import RuntimeIndex
from .tile import MaskedTile, Tile
from .views import broadcast_access

ON_CHIP = (Buffer.SBUF, Buffer.PSUM)
HBM_BUFFERS = (Buffer.HBM, Buffer.SHARED_HBM)


def scalar_operand(value: Any, name: str, op: str) -> Operand:
    """A Python or NumPy number used as an operand.

    Raises:
        NKIError: for anything else.
    """
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.generic):
        item = value.item()
        if isinstance(item, bool | int | float):
            return item
    if isinstance(value, IndexExpr) and not value.shape:
        return float(value.__index__())
    if isinstance(value, IndexExpr | RuntimeIndex):
        raise NKIError(
            "invalid_operand",
            f"operand '{name}' of '{op}' is an nl.arange expression",
            line=current().line(),
            remedy="make a tile of it with nisa.iota",
        )
    if isinstance(value, np.ndarray) and value.size == 1:
        return scalar_operand(value.reshape(())[()], name, op)
    if isinstance(value, MaskedTile):
        raise value.refusal()
    raise NKIError(
        "invalid_operand",
        f"operand '{name}' of '{op}' is {type(value).__name__}, expected a tile or a number",
        line=current().line(),
    )


def result(
    op: str,
    *,
    shape: tuple[int, ...],
    dtype: Dtype,
    args: Mapping[str, Operand],
    attrs: Mapping[str, Any] | None = None,
    buffer: Buffer = Buffer.SBUF,
    mask: Any = None,
    mask_ndim: int | None = None,
    extra: tuple[Access, ...] = (),
    hint: str | None = None,
) -> Tile:
    """Emit an API call that returns a new tile.

    Args:
        op: canonical API name.
        shape: of the result.
        dtype: of the result.
        args: operands, already checked.
        attrs: everything else.
        buffer: memory of the result.
        mask: the call's ``mask=``, over the axes of the iteration space.
        mask_ndim: axes of the iteration space, when that is not the result's (reductions).
        extra: further destinations.
        hint: fallback for the result's name.
    """
    tile = new_tile(shape, dtype, buffer, hint=hint or op.rsplit(".", 1)[-1])
    emit_into(op, (tile.access, *extra), args, attrs, mask, mask_ndim, fresh=True)
    return tile


def emit_into(
    op: str,
    dsts: tuple[Access, ...],
    args: Mapping[str, Operand],
    attrs: Mapping[str, Any] | None = None,
    mask: Any = None,
    mask_ndim: int | None = None,
    fresh: bool = False,
) -> Instr:
    """Emit an API call with given destinations, after checking bounds.

    Args:
        op: canonical API name.
        dsts: what it writes.
        args: operands, already checked.
        attrs: everything else.
        mask: the call's ``mask=``, or its inequalities.
        mask_ndim: see `result`.
        fresh: whether the first destination is a new tensor, made for this call.

    Raises:
        NKIError: for accesses that may leave their tensors, or iterations that overwrite each other.
    """
    session = in_kernel()
    if mask is None:
        conditions: tuple[Affine, ...] = ()
    else:
        conditions = mask if isinstance(mask, tuple) else mask_parts(mask, mask_ndim or len(dsts[0].shape))
    instr = Instr(op, dsts, args, attrs, conditions, dsts[0].tensor.line if fresh else session.line())
    if conditions:
        check_mask(op, conditions, instr.mask_space[0])
    for name, value in args.items():
        if isinstance(value, Access):
            check_bounds(value, _over_operand(op, name, attrs or {}, conditions))
            check_place(op, value)
    for k, access in enumerate(dsts):
        if k or not fresh:
            check_bounds(access, conditions)
            check_place(op, access, written=True)
            check_writable(session, access)
            session.written.add(access.tensor.storage)
    for operand_or_dst in (*dsts, *args.values()):
        if isinstance(operand_or_dst, Access) and operand_or_dst.is_indirect:
            for e in operand_or_dst.index:
                if isinstance(e, Indirect):
                    check_bounds(e.tile, conditions)
    session.emit(instr)
    return instr


def _over_operand(
    op: str, name: str, attrs: Mapping[str, Any], conditions: tuple[Affine, ...]
) -> tuple[Affine, ...]:
    """Those of a call's conditions that speak of an operand, over its axes: a product's are those of two tiles."""
    if op not in ("nisa.nc_matmul", "nl.matmul") or not conditions:
        return conditions
    if name in ("moving", "y"):
        return tuple(c for c in conditions if 0 not in c.axes())
    column = 0 if op == "nl.matmul" and not attrs.get("transpose_x") else 1
    return tuple(c.substitute({0: Affine.of(column)}) for c in conditions if set(c.axes()) <= {0})


def check_writable(session: Session, access: Access) -> None:
    """Refuse writes into kernel parameters.

    Raises:
        NKIError: `err_cannot_update_immutable_parameter`.
    """
    tensor = access.tensor.storage
    if tensor.kind == "input" and not tensor.mutable or tensor.kind == "constant":
        raise NKIError(
            "err_cannot_update_immutable_parameter",
            f"cannot write into {tensor.kind} tensor `{tensor.name}`",
            line=session.line(),
        )


def destination(
    value: Tile, *, name: str = "dst", op: str, buffers: tuple[Buffer, ...] | None = None
) -> Access:
    """The access of a tile used as a destination: like an operand, but reading it is not implied."""
    return operand(value, name=name, op=op, buffers=buffers)


def assign(dst: Access, value: Any) -> None:
    """``tensor[...] = value``.

    A result that was just computed is written straight into place; anything else is copied. If that result turns out
    to be used again later, tracing starts over and keeps both.

    Raises:
        NKIError: if shapes or memories do not fit.
    """
    session = current()
    if isinstance(value, Tile) and value.access == dst:
        return  # the tail of an in-place update: `t[...] += x` has done its work
    target = Tile(dst)
    if not target.buffer.on_chip:
        store(target, value)
        return
    if not isinstance(value, Tile):
        number = scalar_operand(value, "value", "assignment")
        access = destination(target, op="assignment")
        emit_into("nisa.memset", (access,), {}, {"value": number, "engine": "unknown"})
        return
    access = destination(target, op="assignment", buffers=ON_CHIP)
    if _retarget(session, access, value):
        return
    source = operand(value, name="value", op="assignment", buffers=ON_CHIP)
    source = fit(source, access.shape, access.tensor.name)
    emit_into("nl.copy", (access,), {"src": source})


def fit(source: Access, shape: tuple[int, ...], name: str) -> Access:
    """`source` seen with the shape of the destination `name`, broadcast where need be.

    Raises:
        NKIError: `err_store_dst_shape_smaller_than_other_shape`.
    """
    if source.shape == shape:
        return source
    squeezed = _align(source, shape)
    if squeezed is None:
        raise NKIError(
            "err_store_dst_shape_smaller_than_other_shape",
            f"a value of shape {list(source.shape)} does not fit into {name} of shape {list(shape)}",
            line=current().line(),
        )
    return squeezed


def _align(source: Access, shape: tuple[int, ...]) -> Access | None:
    """`source` broadcast to `shape`, ignoring axes of extent 1 that one of them lacks."""
    old = source.shape
    if len(old) <= len(shape) and all(
        o in (1, n) for o, n in zip(old, shape[len(shape) - len(old) :], strict=True)
    ):
        return broadcast_access(source, shape)
    kept_old = [k for k, n in enumerate(old) if n > 1]
    kept_new = [k for k, n in enumerate(shape) if n > 1]
    if [old[k] for k in kept_old] != [shape[k] for k in kept_new]:
        return None
    mapping: dict[LoopVar | int, Affine | int] = {k: 0 for k in range(len(old))}
    mapping.update({a: Affine.of(b) for a, b in zip(kept_old, kept_new, strict=True)})
    moved = source.substitute(mapping)
    return Access(moved.tensor, moved.index, shape)


def _retarget(session: Session, dst: Access, value: Tile) -> bool:
    """Make the instruction that just produced `value` write into `dst` instead, if nothing forbids it."""
    instr = session.last_instr()
    tensor = value.access.tensor
    if instr is None or tensor.declared or instr.dst.tensor is not tensor:
        return False
    whole = identity_index(tensor.shape)
    if value.access.index is not whole or instr.dst.index is not whole or value.shape != tensor.shape:
        return False
    if instr.attrs.get("accumulate") or dst.is_indirect:
        return False
    site = session.site()
    if site in session.assumptions.kept or instr.op == "nl.load" and dst.tensor.buffer is not Buffer.SBUF:
        return False
    if tensor.buffer is not dst.tensor.buffer and (Buffer.PSUM is tensor.buffer or instr.op in ("nl.load",)):
        return False
    if dst.shape != instr.dst.shape:
        aligned = _drop_unit_axes(dst, instr.dst.shape)
        if aligned is None:
            return False
        dst = aligned
    instr.dsts = (dst, *instr.dsts[1:])
    if instr.attrs.get("later"):  # a loop_reduce in an iteration other than the first of unrolled loops
        instr.op, instr.args, instr.attrs = f"nl.{instr.attrs['op']}", {"x": dst, "y": instr.args["x"]}, {}
    check_bounds(dst, instr.mask)
    check_place(instr.op, dst, written=True)
    session.written.add(dst.tensor.storage)
    session.moved[tensor] = site
    session.names.pop(tensor.name, None)
    return True


def _drop_unit_axes(dst: Access, shape: tuple[int, ...]) -> Access | None:
    """`dst` seen with the axes of `shape`, when they differ by axes of extent 1 only."""
    kept_old = [k for k, n in enumerate(dst.shape) if n > 1]
    kept_new = [k for k, n in enumerate(shape) if n > 1]
    if [dst.shape[k] for k in kept_old] != [shape[k] for k in kept_new]:
        return None
    mapping: dict[LoopVar | int, Affine | int] = {k: 0 for k in range(len(dst.shape))}
    mapping.update({a: Affine.of(b) for a, b in zip(kept_old, kept_new, strict=True)})
    moved = dst.substitute(mapping)
    return Access(moved.tensor, moved.index, shape)


def store(dst: Tile, value: Any, mask: Any = None) -> None:
    """``nl.store(dst, value)``, or an assignment into an HBM tensor.

    Raises:
        NKIError: wrong memories, shapes or types.
    """
    target = operand(dst, name="dst", op="store", buffers=HBM_BUFFERS)
    check_free_indices(target, "store")
    if not isinstance(value, Tile):
        number = scalar_operand(value, "value", "store")
        shape = target.shape if len(target.shape) >= 2 else (*target.shape, *(1,) * (2 - len(target.shape)))
        value = result(
            "nisa.memset",
            shape=shape,
            dtype=target.dtype,
            args={},
            attrs={"value": number, "engine": "unknown"},
            hint="constant",
        )
    source = operand(value, name="value", op="store", buffers=ON_CHIP)
    shape = target.shape
    if source.shape != shape:
        source = fit(source, shape, target.tensor.name)
    emit_into("nl.store", (target,), {"value": source}, mask=mask)


def check_free_indices(access: Access, op: str) -> None:
    """Refuse an index tile behind the partition dimension, which `nl.load` and `nl.store` of Beta 1 cannot do.

    Raises:
        NKIError: `err_indirect_indices_free_dim`.
    """
    if not access.is_indirect or current().dialect != "neuronxcc.nki":
        return
    partition = len(access.index)
    for dim, e in enumerate(access.index):
        if isinstance(e, Affine):
            if 0 in e.terms:
                partition = min(partition, dim)
            continue
        along = {s for a in e.tile.affine for s in a.axes()}
        if dim > partition or any(k for k in along if access.shape[k] > 1):
            raise NKIError(
                "err_indirect_indices_free_dim",
                f"'{op}' of {access.tensor.name} has an index tile on dimension {dim}, a free dimension",
                line=current().line(),
            )


def copy(src: Tile, dtype: Any = None, mask: Any = None) -> Tile:
    """``nl.copy``."""
    access = operand(src, name="src", op="copy", buffers=ON_CHIP)
    out = as_dtype(dtype, current().line()) if dtype is not None else src.dtype
    return result("nl.copy", shape=access.shape, dtype=out, args={"src": access}, mask=mask)


def elementwise_operands(op: str, named: dict[str, Any]) -> tuple[dict[str, Operand], tuple[int, ...], Dtype]:
    """Check and broadcast the tile and scalar operands of an element-wise call.

    Returns:
        the operands with tiles broadcast to the common shape, that shape, and the promoted element type.
    """
    checked: dict[str, Operand] = {}
    shape: tuple[int, ...] = ()
    dtype: Dtype | None = None
    for name, value in named.items():
        if isinstance(value, Tile):
            access = operand(value, name=name, op=op, buffers=ON_CHIP)
            checked[name] = access
            shape = broadcast_shapes(shape, access.shape) if shape else access.shape
            dtype = value.dtype if dtype is None else promote(dtype, value.dtype)
        else:
            checked[name] = scalar_operand(value, name, op)
            dtype = of_scalar(value) if dtype is None else promote(dtype, of_scalar(value))
    if not shape:
        raise NKIError("invalid_operand", f"'{op}' needs a tile", line=current().line())
    for name, value in checked.items():
        if isinstance(value, Access) and value.shape != shape:
            checked[name] = broadcast_access(value, shape)
    assert dtype is not None
    return checked, shape, dtype


BITWISE_CALLS = frozenset(["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert"])


def integers_only(op: str, *dtypes: Dtype) -> None:
    """Refuse element types other than integers, for operations on bits.

    Raises:
        NKIError: naming the type.
    """
    for dtype in dtypes:
        if not is_integer(dtype):
            raise NKIError(
                "invalid_operand_dtype",
                f"'{op}' works on the bits of integers, got {dtype}",
                line=current().line(),
                remedy="give it int8, uint8, int16, uint16, int32 or uint32 tiles, for example by nl.copy(x, dtype=nl.int32)",
            )


COMPARISONS = frozenset(
    [
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
    ]
)


def binary(name: str, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tile:
    """``nl.add(x, y)`` and its siblings; operators on tiles come here too."""
    op = f"nl.{name}"
    args, shape, promoted = elementwise_operands(name, {"x": x, "y": y})
    if name in BITWISE_CALLS:
        given = [v.dtype if isinstance(v, Tile) else of_scalar(v) for v in (x, y)]
        integers_only(name, *given)
        if not is_integer(promoted):  # uint32 and a Python integer, which counts as int32
            promoted = next(v.dtype for v in (x, y) if isinstance(v, Tile))
    if dtype is not None:
        out = as_dtype(dtype, current().line())
    elif name in COMPARISONS:
        out = as_dtype("bool_")
    elif name == "divide" and is_integer(promoted):
        out = FLOAT32
    else:
        out = promoted
    return result(op, shape=shape, dtype=out, args=args, mask=mask)


def operator(name: str, x: Any, y: Any) -> Any:
    """``x + y`` and its siblings on tiles.

    With an `nl.arange` expression on the other side it is an index read at run time, for a subscript.

    Raises:
        NKIError: if the operands have different numbers of partitions: operators do not broadcast them.
    """
    if isinstance(x, Tile) and isinstance(y, Tile):
        _same_partitions(name, x, y)
    elif name in ("add", "subtract"):
        tile, other = (x, y) if isinstance(x, Tile) else (y, x)
        if isinstance(other, IndexExpr) and other.shape and (name == "add" or tile is x):
            return RuntimeIndex(tile, other if name == "add" else -other)
    return binary(name, x, y)


def _same_partitions(name: str, x: Tile, y: Tile) -> None:
    if len(x.shape) == len(y.shape) and x.shape and x.shape[0] != y.shape[0] and x.buffer.on_chip:
        raise NKIError(
            "err_num_partition_mismatch",
            f"the operator of nl.{name} does not broadcast partitions: {x!r} and {y!r}",
            line=current().line(),
            remedy=f"call nl.{name}(x, y), or broadcast with .broadcast_to first",
        )


def unary(name: str, x: Any, dtype: Any = None, mask: Any = None) -> Tile:
    """``nl.exp(x)`` and its siblings."""
    op = f"nl.{name}"
    access = operand(x, name="x", op=name, buffers=ON_CHIP)
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    if name == "invert":
        integers_only(name, x.dtype)
    if name == "logical_not" and dtype is None:
        out = as_dtype("bool_")
    return result(op, shape=access.shape, dtype=out, args={"x": access}, mask=mask)


def update(name: str, tile: Tile, other: Any) -> Tile:
    """``tile += other`` and its siblings: into the tile itself.

    ``psum += matmul`` makes the matmul accumulate; everything else is an element-wise operation into place.
    """
    session = current()
    access = destination(tile, op=f"{name} in place")
    if not access.tensor.buffer.on_chip:
        raise NKIError(
            "err_unsupported_memory",
            f"in-place {name} on `{access.tensor.name}` in {access.tensor.buffer}",
            line=session.line(),
        )
    check_writable(session, access)
    if name == "add" and isinstance(other, Tile) and access.tensor.buffer is Buffer.PSUM:
        instr = session.last_instr()
        if (
            instr is not None
            and instr.op in ("nisa.nc_matmul", "nl.matmul")
            and instr.dst == other.access
            and instr.dst == other.access.tensor.whole()
            and not other.access.tensor.declared
            and not instr.attrs.get("accumulate")
            and not instr.attrs.get("is_transpose")
            and instr.dst.shape == access.shape
            and session.site() not in session.assumptions.kept
        ):
            instr.dsts = (access,)
            instr.attrs["accumulate"] = True
            check_bounds(access, instr.mask)
            check_place(instr.op, access, written=True)
            session.written.add(access.tensor.storage)
            session.moved[other.access.tensor] = session.site()
            session.names.pop(other.access.tensor.name, None)
            return tile
    op = f"nl.{name}"
    if isinstance(other, Tile):
        _same_partitions(name, tile, other)
    args, shape, _ = elementwise_operands(name, {"x": Tile(access), "y": other})
    if shape != access.shape:
        raise NKIError(
            "err_store_dst_shape_smaller_than_other_shape",
            f"an operand of shape {list(shape)} does not fit into {access.tensor.name} of shape {list(access.shape)}",
            line=session.line(),
        )
    emit_into(op, (access,), args)
    return tile


def condition_parts(value: Any, ndim: int, what: str) -> tuple[Affine, ...]:
    """The inequalities of a predicate over the axes of a tile with `ndim` axes.

    Raises:
        NKIError: if it is not a comparison of index expressions.
    """
    if not isinstance(value, Condition) or value.negated:
        raise NKIError(
            "invalid_predicate",
            f"{what} must be an affine comparison, got {type(value).__name__}",
            line=current().line(),
        )
    return mask_parts(value, ndim)
