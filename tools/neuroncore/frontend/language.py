"""`neuronxcc.nki.language` (Beta 1): tensors, loads and stores, NumPy-like tile functions, loops, the grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, FLOAT32, Dtype, as_dtype, promote
from ..errors import NKIError
from ..ir import Access, Buffer, Operand, Tensor, TensorKind
from . import emit
from .emit import HBM_BUFFERS, ON_CHIP, elementwise_operands, emit_into, result, scalar_operand
from .index import IndexExpr
from .isa import _tile, check_matmul, reduced_shape, reduction_axes
from .opnames import alu_op
from .registry import api
from .session import current
from .tile import Tile, as_extent, broadcast_access, check_capacity, operand

BUFFERS = {
    "sbuf": Buffer.SBUF,
    "psum": Buffer.PSUM,
    "hbm": Buffer.HBM,
    "private_hbm": Buffer.HBM,
    "shared_hbm": Buffer.SHARED_HBM,
}


class ParDim(int):
    """``nl.par_dim(n)``: marks the partition dimension in a shape."""

    def __new__(cls, value: Any) -> ParDim:
        """The extent."""
        return super().__new__(cls, as_extent(value))


def as_buffer(value: Any) -> Buffer:
    """The buffer that a ``buffer=`` argument names; SBUF by default.

    Raises:
        NKIError: for an unknown one.
    """
    if value is None:
        return Buffer.SBUF
    if isinstance(value, Buffer):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name in BUFFERS:
        return BUFFERS[name]
    raise NKIError(
        "unknown_buffer",
        f"{value!r} is not a buffer",
        line=current().line(),
        remedy=f"use nl.{', nl.'.join(BUFFERS)}",
    )


def declare(shape: Any, dtype: Any, buffer: Any, *, declared: bool, hint: str) -> Tensor:
    """A new tensor in the current scope.

    Raises:
        NKIError: if its shape, type or place is not possible.
    """
    session = current()
    raw = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    where = as_buffer(buffer)
    dims = tuple(as_extent(d) for d in raw)
    marked = [k for k, d in enumerate(raw) if isinstance(d, ParDim)]
    if len(marked) > 1:
        raise NKIError("invalid_shape", "a shape has more than one nl.par_dim", line=session.line())
    par_dim = marked[0] if marked else 0
    if where.on_chip:
        if len(dims) - par_dim < 2:
            dims = (*dims, *(1,) * (2 - len(dims) + par_dim))
    elif where is Buffer.SHARED_HBM and session.scope is not None and session.scope.kind != "spmd":
        raise NKIError(
            "err_shared_hbm_must_in_kernel_level",
            "a shared_hbm tensor is created in a loop",
            line=session.line(),
        )
    else:
        par_dim = 0
    tensor = Tensor(
        session.unique(session.hint() or hint),
        dims,
        as_dtype(dtype, session.line()),
        where,
        par_dim=par_dim,
        kind=TensorKind.LOCAL,
        scope=session.scope
        if where.on_chip or session.scope is None or session.scope.kind != "spmd"
        else None,
        declared=declared,
        line=session.line(),
    )
    check_capacity(tensor)
    return tensor


def hint_or(name: str, fallback: str) -> str:
    """A Python identifier from a ``name=`` argument, or the fallback."""
    cleaned = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return cleaned if cleaned.isidentifier() else fallback


@api("nl.ndarray", engine="none")
def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """A new tensor with undefined contents; buffer nl.sbuf (default), nl.psum, nl.hbm, nl.shared_hbm (for outputs).

    nl.par_dim(P) marks the partition dimension; dimensions before it are block dimensions.
    """
    return Tile(declare(shape, dtype, buffer, declared=True, hint=hint_or(name, "tensor")).whole())


def _filled(op: str, shape: Any, value: Any, dtype: Any, buffer: Any, name: str) -> Tile:
    session = current()
    where = as_buffer(buffer)
    if not where.on_chip:
        raise NKIError(
            "err_hbm_tensor_with_init_value_not_supported",
            f"{op} cannot create a tensor in {where}",
            line=session.line(),
        )
    tensor = declare(shape, dtype, where, declared=False, hint=hint_or(name, op.rsplit(".", 1)[-1]))
    access = tensor.whole()
    emit_into(op, (access,), {}, {"value": scalar_operand(value, "value", op)})
    return Tile(access)


@api("nl.zeros", engine="vector or gpsimd (free in PSUM when matmuls accumulate)")
def zeros(
    shape: Any,
    dtype: Any,
    *,
    buffer: Any = None,
    name: str = "",
    lazy_initialization: bool = False,
    **kwargs: Any,
) -> Tile:
    """A new on-chip tensor filled with zeros; in PSUM it starts an accumulation group."""
    return _filled("nl.zeros", shape, 0.0, dtype, buffer, name)


@api("nl.ones", engine="vector or gpsimd")
def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """A new on-chip tensor filled with ones."""
    return _filled("nl.ones", shape, 1.0, dtype, buffer, name)


@api("nl.full", engine="vector or gpsimd")
def full(
    shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any
) -> Tile:
    """A new on-chip tensor filled with a constant."""
    return _filled("nl.full", shape, fill_value, dtype, buffer, name)


def _like(x: Tile) -> tuple[Any, ...]:
    par = x.access.tensor.par_dim if x.access == x.access.tensor.whole() else 0
    return tuple(ParDim(d) if k == par else d for k, d in enumerate(x.shape))


@api("nl.zeros_like", engine="vector or gpsimd")
def zeros_like(x: Any, *, dtype: Any = None, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """Zeros with the shape and element type of another tensor."""
    return _filled("nl.zeros", _like(x), 0.0, dtype or x.dtype, buffer, name)


@api("nl.empty_like", engine="none")
def empty_like(x: Any, *, dtype: Any = None, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """An undefined tensor with the shape and element type of another."""
    return Tile(
        declare(_like(x), dtype or x.dtype, buffer, declared=True, hint=hint_or(name, "tensor")).whole()
    )


@api("nl.rand", engine="gpsimd or vector")
def rand(shape: Any, dtype: Any = FLOAT32, **kwargs: Any) -> Tile:
    """Uniform random values in [0, 1)."""
    dims = tuple(as_extent(d) for d in shape)
    return result("nl.rand", shape=dims, dtype=as_dtype(dtype, current().line()), args={})


@api("nl.random_seed", engine="gpsimd")
def random_seed(seed: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Accepted; the simulator's random values come from a fixed seed."""


@api("nl.shared_constant", engine="none")
def shared_constant(constant: Any, dtype: Any = None, **kwargs: Any) -> Tile:
    """A NumPy array as a constant in HBM; load it with nl.load."""
    session = current()
    if not isinstance(constant, np.ndarray):
        raise NKIError("invalid_operand", "nl.shared_constant takes a NumPy array", line=session.line())
    value = constant.astype(as_dtype(dtype if dtype is not None else constant.dtype, session.line()))
    tensor = Tensor(
        session.unique(session.hint() or "constant"),
        value.shape,
        value.dtype,
        Buffer.HBM,
        kind=TensorKind.CONSTANT,
        value=value,
        declared=True,
        line=session.line(),
    )
    check_capacity(tensor)
    return Tile(tensor.whole())


@api("nl.shared_identity_matrix", engine="none")
def shared_identity_matrix(n: int, dtype: Any = np.uint8, **kwargs: Any) -> Tile:
    """The n x n identity as a constant in HBM."""
    return shared_constant(np.identity(as_extent(n)), dtype)


# -- memory --------------------------------------------------------------------------------------------------------------
@api("nl.load", engine="dma")
def load(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """HBM to SBUF: at most 128 partitions (first axis of the index). One contiguous piece per partition is fastest."""
    access = _hbm_tile(src, "load")
    out = as_dtype(dtype, current().line()) if dtype is not None else src.dtype
    return result("nl.load", shape=access.shape, dtype=out, args={"src": access}, mask=mask, hint="loaded")


def _hbm_tile(src: Any, op: str) -> Access:
    session = current()
    if not isinstance(src, Tile):
        raise NKIError(
            "invalid_operand", f"'{op}' takes a tensor, got {type(src).__name__}", line=session.line()
        )
    access = operand(src, name="src", op=op, buffers=HBM_BUFFERS)
    if len(access.shape) < 2:
        access = Access(access.tensor, access.index, (*access.shape, *(1,) * (2 - len(access.shape))))
    if access.shape[0] > session.machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {access.shape[0]} exceeds architecture limitation of {session.machine.partitions}.",
            line=session.line(),
            remedy="index the first axis in tiles of at most 128 rows",
        )
    return access


@api("nl.store", engine="dma")
def store(dst: Any, value: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """SBUF (or PSUM, through a copy) to HBM."""
    if not isinstance(dst, Tile):
        raise NKIError(
            "invalid_operand", f"'store' takes a tensor, got {type(dst).__name__}", line=current().line()
        )
    emit.store(dst, value, mask)


@api("nl.load_transpose2d", engine="dma (slow on trn1)")
def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """Load a [R, C] region as [C, R]."""
    if not isinstance(src, Tile):
        raise NKIError("invalid_operand", "'load_transpose2d' takes a tensor", line=current().line())
    access = operand(src, name="src", op="load_transpose2d", buffers=HBM_BUFFERS)
    if len(access.shape) != 2:
        raise NKIError(
            "err_exceed_max_supported_dimension", "load_transpose2d takes two axes", line=current().line()
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
def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Read-modify-write of HBM; op is np.add."""
    target = operand(dst, name="dst", op="atomic_rmw", buffers=HBM_BUFFERS)
    source = operand(value, name="value", op="atomic_rmw", buffers=ON_CHIP)
    emit_into(
        "nl.atomic_rmw",
        (target,),
        {"value": emit._fit(source, target.shape, target.tensor.name)},
        {"op": alu_op(op, "atomic_rmw")},
        mask=mask,
    )


@api("nl.copy", engine="scalar (chosen by the compiler)")
def copy(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """A copy in SBUF, cast to dtype; the usual way out of PSUM."""
    if not isinstance(src, Tile):
        raise NKIError("invalid_operand", "'copy' takes a tile", line=current().line())
    return emit.copy(src, dtype, mask)


# -- TensorE -------------------------------------------------------------------------------------------------------------
@api("nl.matmul", engine="tensor")
def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **kwargs: Any) -> Tile:
    """X @ y into PSUM: [M, K] x [K, N], M and K <= 128, N <= 512; without transpose_x a transpose of x is inserted.

    With transpose_x=True x is given as [K, M].
    """
    a, b = _tile(x, "x", "matmul", (Buffer.SBUF,)), _tile(y, "y", "matmul", (Buffer.SBUF,))
    machine = current().machine
    if transpose_x:
        check_matmul(a, b, "matmul")
        m = a.free_size
    else:
        if a.free_size != b.shape[0]:
            raise NKIError(
                "shape_mismatch",
                f"matmul of [{a.shape[0]}, {a.free_size}] and {list(b.shape)}: inner sizes differ",
                line=current().line(),
            )
        for name, n, limit in (
            ("K", a.free_size, machine.partitions),
            ("N", b.free_size, machine.gemm_moving_fmax),
        ):
            if n > limit:
                raise NKIError(
                    "err_size_of_dimension_exceed_arch_limit",
                    f"matmul has {name} = {n}, the limit is {limit}",
                    line=current().line(),
                )
        if (a.dtype == FLOAT32) != (b.dtype == FLOAT32):
            raise NKIError(
                "invalid_operand_dtype", f"'matmul' mixes {a.dtype} and {b.dtype}", line=current().line()
            )
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
def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """[P, F] -> [F, P], both at most 128."""
    access = _tile(x, "x", "transpose")
    if len([n for n in access.shape if n > 1]) > 2:
        raise NKIError(
            "err_exceed_max_supported_dimension", "transpose takes two axes", line=current().line()
        )
    if access.free_size > current().machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {access.free_size} exceeds architecture limitation of "
            f"{current().machine.partitions}.",
            line=current().line(),
        )
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    return result(
        "nl.transpose",
        shape=(access.free_size, access.shape[0]),
        dtype=out,
        args={"x": access},
        mask=mask,
        buffer=Buffer.PSUM,
        hint="transposed",
    )


# -- element-wise ----------------------------------------------------------------------------------------------------------
def _make_binary(name: str, engine: str, doc: str) -> Any:
    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        if isinstance(x, Tile) or isinstance(y, Tile):
            return emit.binary(name, x, y, dtype, mask)
        return _on_host(name, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.nki_op = name  # type: ignore[attr-defined]
    return api(f"nl.{name}", engine=engine)(function)


def _on_host(name: str, *values: Any) -> Any:
    """NKI's functions on plain numbers and index expressions."""
    if name == "add" and any(isinstance(v, IndexExpr) for v in values):
        return values[0] + values[1]
    if name == "subtract" and any(isinstance(v, IndexExpr) for v in values):
        return values[0] - values[1]
    if name == "multiply" and any(isinstance(v, IndexExpr) for v in values):
        return values[0] * values[1]
    if all(isinstance(v, int | float | np.generic) for v in values) and hasattr(np, name):
        return getattr(np, name)(*values).item()
    kinds = ", ".join(type(v).__name__ for v in values)
    raise NKIError("invalid_operand", f"'{name}' needs a tile, got {kinds}", line=current().line())


_TT = "vector for two tiles; vector or scalar for a tile and a number or [P, 1] tile"
BINARY = {
    name: _make_binary(name, engine, doc)
    for name, engine, doc in (
        ("add", _TT, "x + y, broadcasting."),
        ("subtract", _TT, "x - y, broadcasting."),
        ("multiply", _TT, "x * y, broadcasting."),
        ("divide", _TT, "x / y, broadcasting; for two tiles a reciprocal and a product."),
        ("maximum", _TT, "The larger of x and y."),
        ("minimum", _TT, "The smaller of x and y."),
        ("power", "gpsimd", "x to the power y."),
        ("mod", "vector", "Remainder with the sign of y."),
        ("fmod", "vector", "Remainder with the sign of x."),
        ("bitwise_and", "vector", "Bitwise and of integers."),
        ("bitwise_or", "vector", "Bitwise or of integers."),
        ("bitwise_xor", "vector", "Bitwise exclusive or of integers."),
        ("left_shift", "vector", "x << y."),
        ("right_shift", "vector", "x >> y, logical."),
        ("equal", "vector", "x == y, as uint8 unless dtype says otherwise."),
        ("not_equal", "vector", "x != y."),
        ("greater", "vector", "x > y."),
        ("greater_equal", "vector", "x >= y."),
        ("less", "vector", "x < y."),
        ("less_equal", "vector", "x <= y."),
        ("logical_and", "vector", "Both non-zero."),
        ("logical_or", "vector", "Either non-zero."),
        ("logical_xor", "vector", "Exactly one non-zero."),
    )
}


def _make_unary(name: str, engine: str, doc: str) -> Any:
    def function(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        if isinstance(x, Tile):
            return emit.unary(name, x, dtype, mask)
        return _on_host(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.nki_op = name  # type: ignore[attr-defined]
    return api(f"nl.{name}", engine=engine)(function)


UNARY = {
    name: _make_unary(name, engine, doc)
    for name, engine, doc in (
        ("exp", "scalar", "e to the x."),
        ("log", "scalar", "Natural logarithm; x in [2^-64, 2^64]."),
        ("sin", "scalar", "Sine; x in [-pi, pi]."),
        ("cos", "scalar", "Cosine."),
        ("tan", "scalar", "Tangent."),
        ("tanh", "scalar", "Hyperbolic tangent."),
        ("arctan", "scalar", "Arc tangent; x in [-pi/2, pi/2]."),
        ("sqrt", "scalar", "Square root; x in [2^-116, 2^118]."),
        ("rsqrt", "scalar", "1 / sqrt(x); x in [2^-87, 2^97]."),
        ("sigmoid", "scalar", "1 / (1 + exp(-x))."),
        ("relu", "scalar", "max(x, 0)."),
        ("silu", "scalar", "x * sigmoid(x)."),
        ("silu_dx", "scalar", "Derivative of silu."),
        ("gelu", "scalar", "x * Phi(x)."),
        ("gelu_dx", "scalar", "Derivative of gelu."),
        ("gelu_apprx_tanh", "scalar", "gelu by its tanh approximation."),
        ("gelu_apprx_sigmoid", "scalar", "gelu by its sigmoid approximation."),
        ("erf", "scalar", "Error function."),
        ("erf_dx", "scalar", "Derivative of erf."),
        ("mish", "scalar", "x * tanh(softplus(x))."),
        ("softplus", "scalar", "log(1 + exp(x))."),
        ("square", "scalar", "x * x."),
        ("sign", "scalar", "-1, 0 or 1."),
        ("abs", "scalar or vector", "Absolute value."),
        ("ceil", "vector", "Round up."),
        ("floor", "vector", "Round down."),
        ("trunc", "vector", "Round towards zero."),
        ("negative", "scalar or vector", "-x."),
        ("reciprocal", "vector or scalar", "1 / x."),
        ("invert", "vector", "Bitwise not of integers."),
        ("logical_not", "vector", "1 where x is zero, else 0."),
    )
}


# -- reductions and composites -----------------------------------------------------------------------------------------------
def _make_reduction(name: str, engine: str, doc: str, alias: str | None = None) -> Any:
    def function(
        x: Any,
        axis: Any = None,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
        **kwargs: Any,
    ) -> Tile:
        access = _tile(x, "x", name)
        axes = reduction_axes(
            axis if axis is not None else tuple(range(1, len(access.shape))), len(access.shape), name
        )
        out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
        return result(
            f"nl.{name}",
            shape=reduced_shape(access.shape, axes, keepdims),
            dtype=out,
            args={"x": access},
            attrs={"axis": axes, "keepdims": bool(keepdims)},
            mask=mask,
            mask_ndim=len(access.shape),
            hint=name,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.nki_op = alias or name  # type: ignore[attr-defined]
    return api(f"nl.{name}", engine=engine)(function)


REDUCTIONS = {
    name: _make_reduction(name, engine, doc, alias)
    for name, engine, doc, alias in (
        ("sum", "vector", "Sum over trailing free axes.", "add"),
        ("max", "vector", "Maximum over trailing free axes.", "maximum"),
        ("min", "vector", "Minimum over trailing free axes.", "minimum"),
        ("mean", "vector", "Mean over trailing free axes.", None),
        ("var", "scalar and vector", "Population variance over trailing free axes.", None),
        ("prod", "vector", "Product over trailing free axes.", "multiply"),
        ("all", "vector", "1 where all elements along trailing free axes are non-zero.", "logical_and"),
    )
}


@api("nl.softmax", engine="scalar and vector")
def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **kwargs: Any
) -> Tile:
    """exp(x - max) / sum over trailing free axes."""
    access = _tile(x, "x", "softmax")
    axes = reduction_axes(axis, len(access.shape), "softmax")
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    return result(
        "nl.softmax", shape=access.shape, dtype=out, args={"x": access}, attrs={"axis": axes}, mask=mask
    )


@api("nl.rms_norm", engine="scalar and vector")
def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: Any = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tile:
    """X * w / sqrt(sum(x^2) / n + epsilon) over trailing free axes; w broadcasts (or is None)."""
    access = _tile(x, "x", "rms_norm")
    axes = reduction_axes(axis, len(access.shape), "rms_norm")
    args: dict[str, Operand] = {"x": access}
    if isinstance(w, Tile):
        args["w"] = broadcast_access(_tile(w, "w", "rms_norm"), access.shape)
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    attrs = {"axis": axes, "n": float(n), "epsilon": float(epsilon)}
    return result("nl.rms_norm", shape=access.shape, dtype=out, args=args, attrs=attrs, mask=mask)


@api("nl.dropout", engine="vector")
def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """Each element becomes zero with probability rate."""
    access = _tile(x, "x", "dropout")
    prob = (
        _tile(rate, "rate", "dropout") if isinstance(rate, Tile) else scalar_operand(rate, "rate", "dropout")
    )
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    return result(
        "nisa.dropout", shape=access.shape, dtype=out, args={"data": access, "prob": prob}, mask=mask
    )


@api("nl.where", engine="vector")
def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """X where condition is non-zero, else y."""
    args, shape, _ = elementwise_operands("where", {"cond": condition, "x": x, "y": y})
    if dtype is not None:
        out = as_dtype(dtype, current().line())
    else:
        out = _where_dtype(x, y)
    return result("nl.where", shape=shape, dtype=out, args=args, mask=mask, hint="selected")


def _where_dtype(x: Any, y: Any) -> Dtype:
    types = [v.dtype for v in (x, y) if isinstance(v, Tile)]
    if not types:
        return FLOAT32
    return promote(types[0], types[1]) if len(types) == 2 else types[0]


@api("nl.gather_flattened", engine="gpsimd")
def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """Per partition, the elements of data's flattened free axes at the given indices."""
    access, idx = _tile(data, "data", "gather_flattened"), _tile(indices, "indices", "gather_flattened")
    out = as_dtype(dtype, current().line()) if dtype is not None else data.dtype
    return result(
        "nl.gather_flattened",
        shape=idx.shape,
        dtype=out,
        args={"data": access, "indices": idx},
        mask=mask,
        hint="gathered",
    )


@api("nl.loop_reduce", engine="vector")
def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any
) -> Tile:
    """Reduce x over the iterations of loops: assign the result to a tensor created outside of them."""
    access = _tile(x, "x", "loop_reduce")
    loops = []
    for index in loop_indices if isinstance(loop_indices, list | tuple) else [loop_indices]:
        if not isinstance(index, IndexExpr) or len(index.affine.loops()) != 1:
            raise NKIError(
                "invalid_operand",
                "loop_indices must be loop variables",
                line=current().line(),
                remedy="pass the variables of the nl.affine_range loops to reduce over",
            )
        loops.append(index.affine.loops()[0])
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    name = alu_op(op, "loop_reduce")
    return result(
        "nl.loop_reduce",
        shape=access.shape,
        dtype=out,
        args={"x": access},
        attrs={"op": name, "loops": tuple(loops)},
        mask=mask,
        hint="reduced",
    )


@api("nl.all_reduce", engine="vector")
def all_reduce(x: Any, op: Any, program_axes: Any, **kwargs: Any) -> Tile:
    """Reduction over the launch grid; not available on a single core that runs the grid serially."""
    raise NKIError(
        "unsupported_api",
        "nl.all_reduce over the launch grid is not simulated",
        line=current().line(),
        remedy="reduce inside one program instance",
    )


# -- views -----------------------------------------------------------------------------------------------------------------
@api("nl.broadcast_to", engine="none (a matmul along the partition axis)")
def broadcast_to(src: Any, *, shape: Any, **kwargs: Any) -> Tile:
    """A view that repeats axes of extent 1."""
    return src.broadcast_to(shape)


@api("nl.expand_dims", engine="none")
def expand_dims(data: Any, axis: Any, **kwargs: Any) -> Any:
    """A view with axes of extent 1 inserted."""
    return data.expand_dims(axis)


@api("nl.static_cast", engine="vector")
def static_cast(x: Any, dtype: Any, *, mask: Any = None, **kwargs: Any) -> Tile:
    """A copy in another element type."""
    return emit.copy(x, dtype, mask)


# -- the grid and miscellany -------------------------------------------------------------------------------------------------
@api("nl.program_id", engine="none")
def program_id(axis: Any) -> Any:
    """This instance's index along a grid axis."""
    grid = current().grid
    k = int(axis)
    if not 0 <= k < len(grid):
        raise NKIError(
            "invalid_grid_axis",
            f"program_id({k}) in a kernel launched with a {len(grid)}-axis grid",
            line=current().line(),
            remedy="launch the kernel with a grid: kernel[n](...)",
        )
    return grid[k][0]


@api("nl.num_programs", engine="none")
def num_programs(axes: Any = None) -> Any:
    """Number of instances along one grid axis, several, or all."""
    sizes = [n for _, n in current().grid]
    if axes is None:
        return math.prod(sizes)
    if isinstance(axes, tuple | list):
        return tuple(sizes[int(a)] for a in axes)
    return sizes[int(axes)] if int(axes) < len(sizes) else 1


@api("nl.program_ndim", engine="none")
def program_ndim() -> int:
    """Number of grid axes."""
    return len(current().grid)


@api("nl.device_print", engine="none")
def device_print(prefix: Any, x: Any = None, *, mask: Any = None, **kwargs: Any) -> None:
    """Accepted and ignored."""


def nc(n: Any) -> int:
    """``nl.nc(n)`` in a grid: n physical cores; run one after the other here."""
    return int(n)


class TileSize:
    """``nl.tile_size``: limits of the target."""

    @property
    def pmax(self) -> int:
        """Partitions."""
        return current().machine.partitions

    @property
    def psum_fmax(self) -> int:
        """fp32 elements of a PSUM bank per partition."""
        return current().machine.psum_bank_bytes // 4

    @property
    def gemm_stationary_fmax(self) -> int:
        """Largest free size of a matmul's stationary operand."""
        return current().machine.gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Largest free size of a matmul's moving operand."""
        return current().machine.gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Largest free size of bn_stats."""
        return 512

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses in bytes."""
        return 4

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses in bytes."""
        return 1

    @property
    def total_available_sbuf_size(self) -> int:
        """SBUF bytes per partition that kernels may use."""
        return current().machine.sbuf_usable_bytes_per_partition


class _FloatInfo:
    """``nl.finfo``."""

    def __init__(self, dtype: Any) -> None:
        import ml_dtypes

        info = ml_dtypes.finfo(as_dtype(dtype))
        self.max, self.min, self.eps, self.tiny = (
            float(info.max),
            float(info.min),
            float(info.eps),
            float(info.tiny),
        )


class _Fp32:
    """``nl.fp32``: limits of float32."""

    min = -3.4028234663852886e38
    max = 3.4028234663852886e38


class _Bf16:
    """``nl.bfp16``: limits of bfloat16."""

    min = -3.3895313892515355e38
    max = 3.3895313892515355e38


def contents() -> dict[str, Any]:
    """The attributes of the module `neuronxcc.nki.language`."""
    from . import index, loops

    functions: dict[str, Any] = {
        f.__name__: f
        for f in (
            ndarray,
            zeros,
            ones,
            full,
            zeros_like,
            empty_like,
            rand,
            random_seed,
            shared_constant,
            shared_identity_matrix,
            load,
            store,
            load_transpose2d,
            atomic_rmw,
            copy,
            matmul,
            transpose,
            softmax,
            rms_norm,
            dropout,
            where,
            gather_flattened,
            loop_reduce,
            all_reduce,
            broadcast_to,
            expand_dims,
            static_cast,
            program_id,
            num_programs,
            program_ndim,
            device_print,
            nc,
        )
    }
    return {
        **functions,
        **BINARY,
        **UNARY,
        **REDUCTIONS,
        **{name: dtype for name, dtype in BY_NAME.items()},
        "sbuf": Buffer.SBUF,
        "psum": Buffer.PSUM,
        "hbm": Buffer.HBM,
        "private_hbm": Buffer.HBM,
        "shared_hbm": Buffer.SHARED_HBM,
        "par_dim": ParDim,
        "arange": index.arange,
        "mgrid": index.mgrid,
        "ds": index.DynamicSlice,
        "affine_range": loops.affine_range,
        "sequential_range": loops.sequential_range,
        "static_range": loops.static_range,
        "spmd_dim": lambda n, *_: int(n),
        "tile_size": TileSize(),
        "finfo": _FloatInfo,
        "fp32": _Fp32,
        "bfp16": _Bf16,
        "invert": UNARY["invert"],
        "bitwise_not": UNARY["invert"],
    }


def isa_contents() -> dict[str, Any]:
    """The attributes of the module `neuronxcc.nki.isa`."""
    from . import isa

    names = [n for n in vars(isa) if not n.startswith("_")]
    public = {
        n: getattr(isa, n)
        for n in names
        if n in ("engine", "nc_version", "reduce_cmd", "dge_mode", "oob_mode")
        or n.endswith("_engine")
        or (callable(getattr(isa, n)) and getattr(getattr(isa, n), "__module__", "") == isa.__name__)
    }
    hidden = {
        "check_matmul",
        "reduction_axes",
        "reduced_shape",
        "copy_over_dma",
    }
    return {n: v for n, v in public.items() if n not in hidden}
