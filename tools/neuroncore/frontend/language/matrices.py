"""Matrix products and transposes as `nki.language` has them."""

from __future__ import annotations

from typing import Any

from ...dtypes import FLOAT32, as_dtype
from ...errors import NKIError
from ...ir import Buffer
from ..allocation import needs_own_tensor
from ..emit import result
from ..isa.checks import free_limit, matmul_operand, tile_operand
from ..isa.tensor import check_matmul, check_matmul_types
from ..operand_mask import unmasked
from ..registry import api
from ..session import current
from ..tile import Tile


@api("nl.matmul", engine="tensor")
def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> Tile:
    """X @ y into PSUM: [M, K] x [K, N], M and K <= 128, N <= 512; without transpose_x a transpose of x is inserted.

    With transpose_x=True x is given as [K, M]. Operands may have masks: x[i_m < rows].
    """
    x, y, mask = unmasked(x, y, mask, x_rows=bool(transpose_x))
    a, b = matmul_operand(x, "x", "matmul"), matmul_operand(y, "y", "matmul")
    machine = current().machine
    if transpose_x:
        check_matmul(a, b, "matmul")
        m = a.free_size
    else:
        needs_own_tensor(
            "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
            "matmul without transpose_x needs an identity matrix of its own",
        )
        if a.free_size != b.shape[0]:
            raise NKIError(
                "shape_mismatch",
                f"matmul of [{a.shape[0]}, {a.free_size}] and {list(b.shape)}: inner sizes differ",
                line=current().line(),
                remedy="x is [M, K] and y is [K, N]; with transpose_x=True x is [K, M]",
            )
        free_limit("matmul", machine.partitions, x=a)
        free_limit("matmul", machine.gemm_moving_fmax, y=b)
        check_matmul_types(a, b, "matmul")
        m = a.shape[0]
    return result(
        "nl.matmul",
        shape=(m, *b.shape[1:]),
        dtype=FLOAT32,
        buffer=Buffer.PSUM,
        args={"x": a, "y": b},
        attrs={"transpose_x": bool(transpose_x)},
        mask=mask,
        hint="psum",
    )


@api("nl.transpose", engine="tensor")
def transpose(x: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """[P, F] -> [F, P], both at most 128."""
    access = tile_operand(x, "x", "transpose")
    needs_own_tensor(
        "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
        "transpose needs an identity matrix of its own",
    )
    if len([n for n in access.shape if n > 1]) > 2:
        raise NKIError(
            "err_exceed_max_supported_dimension",
            f"parameter 'x{list(access.shape)}' of 'transpose' exceeds the supported number of dimensions of 2",
            line=current().line(),
        )
    free_limit("transpose", current().machine.partitions, x=access)
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    transposed = result(
        "nl.transpose",
        shape=(access.free_size, access.shape[0]),
        dtype=out,
        args={"x": access},
        mask=mask,
        buffer=Buffer.PSUM,
        hint="transposed",
    )
    current().transposed[transposed.access.tensor] = None
    return transposed
