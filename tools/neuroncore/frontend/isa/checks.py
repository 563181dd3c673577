"""What several instructions demand of their operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import Dtype, as_dtype, is_float, is_integer
from ...errors import NKIError
from ...ir import Access, Buffer, Operand
from ..emit import ON_CHIP, copy, destination, integers_only, scalar_operand
from ..operand import operand
from ..opnames import BITVEC
from ..session import current
from ..tile import MaskedTile, Tile
from .enums import engine

MIN_II = "max(MIN_II, N)"
SBUF = (Buffer.SBUF,)
SHORT_INTEGERS = tuple(np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16))


def engine_name(value: Any, op: str, allowed: tuple[str, ...]) -> str:
    """The engine that an ``engine=`` argument names; ``unknown`` lets the compiler choose.

    Raises:
        NKIError: for an engine that does not have the instruction.
    """
    if value is None:
        return "unknown"
    name = value.name if isinstance(value, engine) else str(value)
    if name == "unknown" or name in allowed:
        return name
    raise NKIError(
        "unsupported_engine",
        f"'{op}' cannot run on the {name} engine",
        line=current().line(),
        remedy=f"use {' or '.join(f'nisa.{a}_engine' for a in allowed)}, or leave engine out",
    )


def tile_operand(value: Any, name: str, op: str, buffers: tuple[Buffer, ...] = ON_CHIP) -> Access:
    """An operand that must be a tile.

    Raises:
        NKIError: if it is something else, or in the wrong memory.
    """
    if isinstance(value, MaskedTile):
        raise value.refusal()
    if not isinstance(value, Tile):
        raise NKIError(
            "invalid_operand",
            f"operand '{name}' of '{op}' must be a tile, got {type(value).__name__}",
            line=current().line(),
            remedy="load or compute a tile in sbuf first",
        )
    return operand(value, name=name, op=op, buffers=buffers)


def matmul_operand(value: Any, name: str, op: str) -> Access:
    """An operand of the tensor engine, which reads SBUF only.

    The result of a transpose, which the tensor engine leaves in PSUM, is copied first, as NKI's compiler does.
    """
    session = current()
    if isinstance(value, Tile) and value.access.tensor in session.transposed:
        tensor = value.access.tensor
        copied = session.transposed[tensor]
        if copied is None or copied.scope is not None and copied.scope not in session.loops:
            copied = copy(Tile(tensor.whole())).access.tensor
            session.transposed[tensor] = copied
        value = Tile(Access(copied, value.access.index, value.access.shape))
    return tile_operand(value, name, op, SBUF)


def result_type(value: Any, default: Dtype) -> Dtype:
    """The element type that a ``dtype=`` argument names, or the default."""
    return as_dtype(value, current().line()) if value is not None else default


def same_partitions(op: str, **tiles: Access) -> None:
    """Refuse operands with different numbers of partitions.

    Raises:
        NKIError: `err_num_partition_mismatch`.
    """
    sizes = {name: access.shape[0] for name, access in tiles.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise NKIError(
            "err_num_partition_mismatch",
            f"operands of '{op}' differ in their number of partitions: {listed}",
            line=current().line(),
        )


def same_free_size(op: str, **tiles: Access) -> None:
    """Refuse operands with different numbers of elements per partition.

    Raises:
        NKIError: naming them.
    """
    sizes = {name: access.free_size for name, access in tiles.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise NKIError(
            "shape_mismatch",
            f"operands of '{op}' differ in their number of elements per partition: {listed}",
            line=current().line(),
            remedy="use nisa.tensor_scalar for an operand with one element per partition, or .broadcast_to",
        )


def number(value: Any, name: str, op: str) -> float:
    """A scalar that cannot be a tile."""
    scalar = scalar_operand(value, name, op)
    assert isinstance(scalar, int | float)
    return float(scalar)


def vector(value: Any, name: str, op: str, data: Access) -> Operand:
    """A scalar operand: a number, or a [P, 1] tile.

    Raises:
        NKIError: for a tile of another shape.
    """
    if not isinstance(value, Tile):
        return scalar_operand(value, name, op)
    access = tile_operand(value, name, op)
    if access.free_size != 1:
        raise NKIError(
            "invalid_operand",
            f"operand '{name}' of '{op}' must be a number or a tile with one element per partition, got shape "
            f"{list(access.shape)}",
            line=current().line(),
            remedy="use nisa.tensor_tensor or nl.multiply for two full tiles",
        )
    if access.shape[0] not in (1, data.shape[0]):
        same_partitions(op, data=data, **{name: access})
    return access


def free_limit(op: str, limit: int, **tiles: Access) -> None:
    """Refuse tiles with more elements per partition than the engine takes.

    Raises:
        NKIError: `err_size_of_dimension_exceed_arch_limit`.
    """
    for name, access in tiles.items():
        if access.free_size > limit:
            raise NKIError(
                "err_size_of_dimension_exceed_arch_limit",
                f"operand '{name}' of '{op}' has {access.free_size} elements per partition, the limit is {limit}",
                line=current().line(),
            )


def not_both_psum(op: str, **tiles: Access) -> None:
    """Refuse two operands from PSUM.

    Raises:
        NKIError: `err_unsupported_memory`.
    """
    in_psum = [name for name, access in tiles.items() if access.tensor.buffer is Buffer.PSUM]
    if len(in_psum) > 1:
        raise NKIError(
            "err_unsupported_memory",
            f"operands {' and '.join(in_psum)} of '{op}' cannot both be in psum",
            line=current().line(),
            remedy="copy one of them to sbuf with nl.copy",
        )


def no_psum_on_gpsimd(op: str, *tiles: Access) -> None:
    """Refuse operands in PSUM where the instruction runs on GpSimd.

    Raises:
        NKIError: `err_unsupported_memory`.
    """
    for access in tiles:
        if access.tensor.buffer is Buffer.PSUM:
            raise NKIError(
                "err_unsupported_memory",
                f"'{op}' runs on the gpsimd engine here, which cannot access psum, where `{access.tensor.name}` is",
                line=current().line(),
                remedy="copy the tile to sbuf with nl.copy first",
            )


def element_type(op: str, name: str, dtype: Dtype, allowed: tuple[Dtype, ...] | str) -> None:
    """Refuse an operand's element type.

    Args:
        op: for the message.
        name: of the operand.
        dtype: of the operand.
        allowed: types, or ``"float"`` for all floating ones.

    Raises:
        NKIError: naming what is allowed.
    """
    fits = is_float(dtype) if isinstance(allowed, str) else dtype in allowed
    if not fits:
        listed = "a floating type" if isinstance(allowed, str) else " or ".join(str(d) for d in allowed)
        raise NKIError(
            "invalid_operand_dtype",
            f"operand '{name}' of '{op}' has element type {dtype}, it must be {listed}",
            line=current().line(),
            remedy="convert it with nl.copy(..., dtype=...)",
        )


def check_op_mix(op: str, data: Dtype, *names: str | None) -> None:
    """Refuse bitwise and arithmetic operations in one instruction, and bitwise ones on anything but integers.

    Raises:
        NKIError: naming the operations or the type.
    """
    ops = [n for n in names if n is not None]
    bitwise = [n for n in ops if n in BITVEC]
    if bitwise and len(bitwise) < len(ops):
        raise NKIError(
            "unsupported_op",
            f"'{op}' mixes a bitwise and an arithmetic operation: {', '.join(ops)}",
            line=current().line(),
            remedy="use two instructions",
        )
    if bitwise:
        integers_only(f"{op} with {bitwise[0]}", data)


def reduction_target(value: Any, data: Access, op: str) -> Access:
    """The [P, 1] tile that an instruction also reduces into.

    Raises:
        NKIError: for another shape.
    """
    if not isinstance(value, Tile):
        raise NKIError(
            "invalid_operand",
            f"reduce_res of '{op}' must be a tile, got {type(value).__name__}",
            line=current().line(),
            remedy="create one with nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)",
        )
    access = destination(value, name="reduce_res", op=op, buffers=ON_CHIP)
    if access.shape[0] != data.shape[0] or access.free_size != 1:
        raise NKIError(
            "shape_mismatch",
            f"reduce_res of '{op}' must have shape [{data.shape[0]}, 1], got {list(access.shape)}",
            line=current().line(),
        )
    return access


def reduction_axes(axis: Any, ndim: int, op: str, *, trailing: bool) -> tuple[int, ...]:
    """The free axes that a reduction names.

    Args:
        axis: one axis or several.
        ndim: axes of the tile.
        op: for the message.
        trailing: whether they must be contiguous and end at the last, as Beta 1 wants.

    Raises:
        NKIError: if they are not allowed, or include the partition axis.
    """
    values = axis if isinstance(axis, tuple | list) else (axis,)
    numbers = [int(a.__index__()) for a in values]
    if not numbers or any(not -ndim <= a < ndim for a in numbers):
        raise NKIError(
            "unsupported_axis",
            f"'{op}' reduces axes {numbers} of a {ndim}-axis tile",
            line=current().line(),
            remedy=f"the free axes are 1 to {ndim - 1}",
        )
    axes = tuple(sorted({a % ndim for a in numbers}))
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
            remedy="index the tile so that the axes to reduce come last",
        )
    return axes


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Shape of a reduction's result; at least two axes."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    kept = tuple(n for k, n in enumerate(shape) if k not in axes)
    return kept if len(kept) >= 2 else (*kept, 1)


def unsupported_on_target(what: str, generation: int, remedy: str) -> None:
    """Refuse what the target's NeuronCore does not have.

    Raises:
        NKIError: if the target is older than `generation`.
    """
    session = current()
    machine = session.machine
    if machine.generation < generation:
        raise NKIError(
            "unsupported_on_target",
            f"{what} needs NeuronCore-v{generation} (trn{generation - 1}), and {machine.name} has v{machine.generation}",
            line=session.line(),
            remedy=remedy,
        )


def is_integer_tile(value: Any) -> bool:
    """Whether a value is a tile of integers."""
    return isinstance(value, Tile) and is_integer(value.dtype)
