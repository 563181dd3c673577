"""Tensors: their shapes, memories and initial values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import FLOAT32, as_dtype
from ...errors import NKIError
from ...ir import Access, Buffer, LoopKind, Tensor, TensorKind, identity_index
from ..accumulation import start_group
from ..allocation import Placement, place
from ..emit import emit_into, result, scalar_operand
from ..operand import check_capacity, laid_out
from ..registry import api
from ..session import in_kernel
from ..tile import Tile, as_extent

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
        line=in_kernel().line(),
        remedy=f"use nl.{', nl.'.join(BUFFERS)}",
    )


def declare(shape: Any, dtype: Any, buffer: Any, *, declared: bool, hint: str) -> Access:
    """A new tensor in the current scope, all of it.

    Raises:
        NKIError: if its shape, type or place is not possible.
    """
    session = in_kernel()
    raw = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    where = as_buffer(buffer)
    dims = tuple(as_extent(d) for d in raw)
    par_dim = _partition_dimension(raw, dims, where)
    if where is Buffer.SHARED_HBM:
        _check_level()
        known = session.shared.take(dims)
        if known is not None:
            return known.whole()
    scope = session.scope
    if where is Buffer.SHARED_HBM and (scope is None or scope.kind is LoopKind.SPMD):
        scope = None
    tensor = Tensor(
        session.unique(session.hint() or hint),
        dims,
        as_dtype(dtype, session.line()),
        where,
        par_dim=par_dim,
        kind=TensorKind.LOCAL,
        scope=scope,
        declared=declared,
        line=session.line(),
    )
    check_capacity(tensor)
    if where is Buffer.SHARED_HBM:
        session.shared.add(tensor)
    if isinstance(buffer, Placement) and not session.allocation.forced_auto:
        place(tensor, buffer)
    return laid_out(tensor) if where.on_chip and len(dims) - par_dim > 2 else tensor.whole()


def _partition_dimension(raw: tuple[Any, ...], dims: tuple[int, ...], where: Buffer) -> int:
    """Position of the partition dimension in a shape; 0 in HBM, which has none."""
    marked = [k for k, d in enumerate(raw) if isinstance(d, ParDim)]
    if len(marked) > 1:
        raise NKIError(
            "invalid_shape",
            "a shape has more than one nl.par_dim",
            line=in_kernel().line(),
            remedy="mark one dimension; those before it are block dimensions",
        )
    if not where.on_chip:
        return 0
    par_dim = marked[0] if marked else 0
    if len(dims) - par_dim < 2:
        raise NKIError(
            "insufficient_rank",
            f"a tile of shape {list(dims[par_dim:])} has no free dimension",
            line=in_kernel().line(),
            remedy=f"give it one of extent 1: {(*dims, 1)}",
        )
    return par_dim


def _check_level() -> None:
    """Shared HBM is created at the top level of the kernel itself, where every instance of the grid passes by.

    The later package, whose loops run while its kernels are traced, has it anywhere: a scratch tensor for each iteration.
    """
    session = in_kernel()
    if session.dialect != "neuronxcc.nki":
        return
    inside = session.scope is not None and session.scope.kind != "spmd"
    frame = session.frame()
    elsewhere = frame is not None and frame.f_code is not session.entry
    if "skip-non-top-level-shared-hbm-check" in session.flags:
        elsewhere = False
    if inside or elsewhere:
        raise NKIError(
            "err_shared_hbm_must_in_kernel_level",
            "a shared_hbm tensor is created "
            + ("in a loop" if inside else "in a function that the kernel calls, not in the kernel itself"),
            line=session.line(),
        )


def hint_or(name: str, fallback: str) -> str:
    """A Python identifier from a ``name=`` argument, or the fallback."""
    cleaned = "".join(c if c.isalnum() else "_" for c in name or "").strip("_")
    return cleaned if cleaned.isidentifier() else fallback


@api("nl.ndarray", engine="none")
def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tile:
    """A new tensor with undefined contents; buffer nl.sbuf (default), nl.psum, nl.hbm, nl.shared_hbm (for outputs).

    nl.par_dim(P) marks the partition dimension; dimensions before it are block dimensions.
    """
    access = declare(shape, dtype, buffer, declared=True, hint=hint_or(name, "tensor"))
    start_group(in_kernel(), access.tensor)
    return Tile(access)


def filled(op: str, shape: Any, value: Any, dtype: Any, buffer: Any, name: str) -> Tile:
    """A new tensor filled with a constant.

    Raises:
        NKIError: in HBM, and at an address of the kernel's own choosing.
    """
    session = in_kernel()
    where = as_buffer(buffer)
    if not where.on_chip:
        raise NKIError(
            "err_hbm_tensor_with_init_value_not_supported",
            f"{op} cannot create a tensor in {where}",
            line=session.line(),
        )
    if isinstance(buffer, Placement) and not session.allocation.forced_auto:
        raise NKIError(
            "err_tensor_creation_on_scratchpad_with_init_value_not_supported",
            f"{op} cannot create a tensor at an address of the kernel's choosing",
            line=session.line(),
        )
    access = declare(shape, dtype, where, declared=False, hint=hint_or(name, op.rsplit(".", 1)[-1]))
    emit_into(op, (access,), {}, {"value": scalar_operand(value, "value", op)})
    return Tile(access)


@api("nl.zeros", engine="vector or gpsimd (free in PSUM when matmuls accumulate)")
def zeros(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", lazy_initialization: bool = False
) -> Tile:
    """A new on-chip tensor filled with zeros; in PSUM it starts an accumulation group."""
    return filled("nl.zeros", shape, 0.0, dtype, buffer, name)


@api("nl.ones", engine="vector or gpsimd")
def ones(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", lazy_initialization: bool = False
) -> Tile:
    """A new on-chip tensor filled with ones."""
    return filled("nl.ones", shape, 1.0, dtype, buffer, name)


@api("nl.full", engine="vector or gpsimd")
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any,
    *,
    buffer: Any = None,
    name: str = "",
    lazy_initialization: bool = False,
) -> Tile:
    """A new on-chip tensor filled with a constant."""
    return filled("nl.full", shape, fill_value, dtype, buffer, name)


def _like(a: Tile) -> tuple[Any, ...]:
    par = a.access.tensor.par_dim
    if a.access.index[:par] != identity_index(a.shape)[:par]:
        par = 0  # a part of it, its blocks chosen
    return tuple(ParDim(d) if k == par else d for k, d in enumerate(a.shape))


@api("nl.zeros_like", engine="vector or gpsimd")
def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tile:
    """Zeros with the shape and element type of another tensor."""
    return filled("nl.zeros", _like(a), 0.0, a.dtype if dtype is None else dtype, buffer, name)


@api("nl.empty_like", engine="none")
def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tile:
    """An undefined tensor with the shape and element type of another."""
    kind = a.dtype if dtype is None else dtype
    return Tile(declare(_like(a), kind, buffer, declared=True, hint=hint_or(name, "tensor")))


@api("nl.rand", engine="gpsimd or vector")
def rand(shape: Any, dtype: Any = FLOAT32) -> Tile:
    """Uniform random values in [0, 1)."""
    session = in_kernel()
    dims = tuple(as_extent(d) for d in shape)
    return result("nl.rand", shape=dims, dtype=as_dtype(dtype, session.line()), args={})


@api("nl.random_seed", engine="gpsimd")
def random_seed(seed: Any, *, mask: Any = None) -> None:
    """Accepted; the simulator's random values come from a fixed seed."""


@api("nl.shared_constant", engine="none")
def shared_constant(constant: Any, dtype: Any = None) -> Tile:
    """A NumPy array as a constant in HBM; load it with nl.load."""
    session = in_kernel()
    if not isinstance(constant, np.ndarray):
        raise NKIError(
            "invalid_operand",
            f"nl.shared_constant takes a NumPy array, got {type(constant).__name__}",
            line=session.line(),
            remedy="make one with np.array, np.identity or np.arange",
        )
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
def shared_identity_matrix(n: int, dtype: Any = np.uint8) -> Tile:
    """The n x n identity as a constant in HBM."""
    return shared_constant(np.identity(as_extent(n)), dtype)
