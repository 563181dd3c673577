"""Instructions of the Tensor engine, and the transposes."""

from __future__ import annotations

from typing import Any

from ...dtypes import FLOAT32, is_float
from ...errors import NKIError
from ...ir import Access, Buffer
from ..allocation import needs_own_tensor
from ..emit import result
from ..index import IndexExpr
from ..operand_mask import unmasked
from ..registry import api
from ..session import current
from ..tile import Tile
from .checks import (
    engine_name,
    free_limit,
    matmul_operand,
    result_type,
    tile_operand,
    unsupported_on_target,
)

DOUBLE_ROW = frozenset(["double_row", "double_row_gen3"])
"""Modes in which the PE array contracts two rows of 8-bit elements at a time."""


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
    perf_mode: Any = None,
    mask: Any = None,
) -> Tile:
    """stationary.T @ moving into PSUM, fp32 accumulation: [K, M] x [K, N] -> [M, N].

    Both operands in SBUF with the same K <= 128 partitions; M <= 128, N <= 512. `psum_tile += nisa.nc_matmul(...)`
    accumulates. With is_transpose=True and an identity as moving, it transposes. perf_mode="double_row_gen3" (trn2)
    contracts [K, 2, M] with [K, 2, N] in fp8. Operands may have masks: stationary[i_m < rows].
    """
    stationary, moving, mask = unmasked(stationary, moving, mask, x_rows=True)
    s = matmul_operand(stationary, "stationary", "nc_matmul")
    m = matmul_operand(moving, "moving", "nc_matmul")
    attrs: dict[str, Any] = {
        "is_stationary_onezero": bool(is_stationary_onezero),
        "is_moving_onezero": bool(is_moving_onezero),
        "is_transpose": bool(is_transpose),
    }
    mode = getattr(perf_mode, "name", perf_mode)
    if mode not in (None, "none"):
        return _double_row(s, m, str(mode), attrs, mask)
    check_matmul(s, m, "nc_matmul")
    _check_pe_tile(s, tile_position, tile_size)
    return result(
        "nisa.nc_matmul",
        shape=(s.free_size, *m.shape[1:]),
        dtype=FLOAT32,
        buffer=Buffer.PSUM,
        args={"stationary": s, "moving": m},
        attrs=attrs,
        mask=mask,
        hint="psum",
    )


def _double_row(s: Access, m: Access, mode: str, attrs: dict[str, Any], mask: Any) -> Tile:
    """Two products of 8-bit elements per row and cycle: both operands carry pairs of rows along their first free axis."""
    line = current().line()
    if mode not in DOUBLE_ROW:
        raise NKIError(
            "unsupported_api",
            f"perf_mode {mode} of 'nc_matmul' is not simulated",
            line=line,
            remedy="leave perf_mode out, or use double_row_gen3",
        )
    unsupported_on_target(f"perf_mode {mode} of 'nc_matmul'", 3, "leave perf_mode out")
    for name, access in (("stationary", s), ("moving", m)):
        if access.dtype.itemsize != 1 or not is_float(access.dtype):
            raise NKIError(
                "invalid_operand_dtype",
                f"perf_mode {mode} takes float8 operands, {name} has {access.dtype}",
                line=line,
                remedy="convert the operands with nl.copy(..., dtype=nl.float8_e4m3), or leave perf_mode out",
            )
        if len(access.shape) != 3 or access.shape[1] != 2:
            raise NKIError(
                "shape_mismatch",
                f"perf_mode {mode} takes operands of shape [K, 2, free], {name} has {list(access.shape)}",
                line=line,
                remedy="put the two rows that belong together along the first free axis",
            )
    _contracted(s, m, "nc_matmul")
    machine = current().machine
    for name, n, limit in (
        ("stationary", s.shape[2], machine.gemm_stationary_fmax),
        ("moving", m.shape[2], machine.gemm_moving_fmax),
    ):
        if n > limit:
            raise _too_wide("nc_matmul", name, n, limit)
    return result(
        "nisa.nc_matmul",
        shape=(s.shape[2], m.shape[2]),
        dtype=FLOAT32,
        buffer=Buffer.PSUM,
        args={"stationary": s, "moving": m},
        attrs={**attrs, "perf_mode": mode},
        mask=mask,
        hint="psum",
    )


def _contracted(s: Access, m: Access, op: str) -> None:
    if s.shape[0] != m.shape[0]:
        raise NKIError(
            "err_num_partition_mismatch",
            f"stationary and moving of '{op}' contract over their partitions, which are {s.shape[0]} and {m.shape[0]}",
            line=current().line(),
        )


def _too_wide(op: str, name: str, n: int, limit: int) -> NKIError:
    return NKIError(
        "err_size_of_dimension_exceed_arch_limit",
        f"operand '{name}' of '{op}' has {n} elements per partition, the limit is {limit}",
        line=current().line(),
    )


def check_matmul(s: Access, m: Access, op: str) -> None:
    """Refuse operands that TensorE cannot take.

    Raises:
        NKIError: partition mismatch, tile limits, integers, or float32 mixed with another type.
    """
    machine = current().machine
    _contracted(s, m, op)
    free_limit(op, machine.gemm_stationary_fmax, stationary=s)
    free_limit(op, machine.gemm_moving_fmax, moving=m)
    check_matmul_types(s, m, op)


def check_matmul_types(a: Access, b: Access, op: str) -> None:
    """Refuse element types that TensorE does not multiply.

    Raises:
        NKIError: for integers, and for float32 mixed with another type.
    """
    for access in (a, b):
        if not is_float(access.dtype):
            raise NKIError(
                "invalid_operand_dtype",
                f"'{op}' multiplies floating-point tiles, `{access.tensor.name}` has {access.dtype}",
                line=current().line(),
                remedy="convert it with nl.copy(..., dtype=nl.bfloat16) or load it with dtype=",
            )
    if (a.dtype == FLOAT32) != (b.dtype == FLOAT32):
        raise NKIError(
            "invalid_operand_dtype",
            f"'{op}' mixes {a.dtype} and {b.dtype}; if one is float32 both must be",
            line=current().line(),
            remedy="convert one of them with nl.copy(..., dtype=...)",
        )


def _check_pe_tile(s: Access, position: Any, size: Any) -> None:
    """PE tiling: where in the array a small matmul runs. Affects time only."""
    if not position and not size:
        return
    fault = None
    if not position or not size:
        fault = "tile_position and tile_size must be given together"
    else:
        rows, columns = (int(n) for n in size)
        fixed = [int(p) for p in position if not isinstance(p, IndexExpr) or p.affine.is_const]
        if any(n % 32 or n <= 0 for n in (rows, columns)) or any(p % 32 for p in fixed):
            fault = "positions and sizes are multiples of 32"
        elif rows < s.shape[0] or columns < s.free_size:
            fault = (
                f"a tile of {rows}x{columns} does not hold a stationary operand of {s.shape[0]}x{s.free_size}"
            )
        elif rows == columns == 32 and current().machine.generation < 3:
            fault = "a tile cannot be 32x32 on NeuronCore-v2"
    if fault:
        raise NKIError(
            "invalid_operand",
            f"PE tiling of 'nc_matmul': {fault}",
            line=current().line(),
            remedy="leave tile_position and tile_size out",
        )


@api("nisa.nc_transpose", engine="tensor or vector", cost="vector max(MIN_II, N); tensor max(P, min(64, F))")
def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> Tile:
    """[P, F] -> [F, P], free dimensions flattened. TensorE: up to 128x128 into PSUM; VectorE: up to 32x32."""
    access = tile_operand(data, "data", "nc_transpose")
    where = engine_name(engine, "nc_transpose", ("tensor", "vector"))
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
        needs_own_tensor(
            "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
            "nc_transpose on the tensor engine needs an identity matrix of its own",
        )
        if access.tensor.buffer is not Buffer.SBUF:
            raise NKIError(
                "err_unsupported_memory",
                "Expected operand 'data' of 'nc_transpose' on the tensor engine to be in address space 'sbuf', but got "
                f"a tile in '{access.tensor.buffer}' instead.",
                line=current().line(),
            )
        free_limit("nc_transpose", current().machine.partitions, data=access)
    transposed = result(
        "nisa.nc_transpose",
        shape=(free, access.shape[0]),
        dtype=result_type(dtype, access.dtype),
        buffer=Buffer.PSUM if where == "tensor" else Buffer.SBUF,
        args={"data": access},
        attrs={"engine": where},
        mask=mask,
        hint="transposed",
    )
    if where == "tensor":
        current().transposed[transposed.access.tensor] = None
    return transposed
