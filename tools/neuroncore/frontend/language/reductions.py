"""Reductions along free axes, over loops, and what is made of them: softmax and RMS normalisation."""

from __future__ import annotations

from typing import Any

from ...dtypes import BY_NAME, FLOAT32, Dtype, as_dtype, is_integer
from ...errors import NKIError
from ...ir import LoopVar, Operand
from ..allocation import needs_own_tensor
from ..emit import assign, result
from ..index import IndexExpr, as_integer
from ..isa.checks import reduced_shape, reduction_axes, tile_operand
from ..opnames import alu_op
from ..registry import api
from ..session import current
from ..tile import Tile
from ..views import broadcast_access


def free_axes(axis: Any, ndim: int, op: str) -> tuple[int, ...]:
    """The free axes that a reduction names, in any order and place: the compiler brings them together."""
    return reduction_axes(axis, ndim, op, trailing=False)


def _make_reduction(name: str, engine: str, doc: str, alias: str | None = None) -> Any:
    def function(
        x: Any,
        axis: Any,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
    ) -> Tile:
        access = tile_operand(x, "x", name)
        axes = free_axes(axis, len(access.shape), name)
        if dtype is not None:
            out = as_dtype(dtype, current().line())
        elif name == "all":
            out = BY_NAME["bool_"]
        else:
            out = FLOAT32 if name in ("mean", "var") and is_integer(x.dtype) else x.dtype
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
        ("sum", "vector", "Sum over free axes.", "add"),
        ("max", "vector", "Maximum over free axes.", "maximum"),
        ("min", "vector", "Minimum over free axes.", "minimum"),
        ("mean", "vector", "Mean over free axes.", None),
        ("var", "scalar and vector", "Population variance over free axes.", None),
        ("prod", "vector", "Product over free axes.", "multiply"),
        ("all", "vector", "1 where all elements along free axes are non-zero.", "logical_and"),
    )
}


def _computed_type(dtype: Any, compute_dtype: Any, x: Tile) -> Dtype:
    """`dtype` and `compute_dtype` mean the same: what the function computes in and returns."""
    chosen = dtype if dtype is not None else compute_dtype
    return as_dtype(chosen, current().line()) if chosen is not None else x.dtype


@api("nl.softmax", engine="scalar and vector")
def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tile:
    """exp(x - max) / sum over free axes."""
    access = tile_operand(x, "x", "softmax")
    axes = free_axes(axis, len(access.shape), "softmax")
    out = _computed_type(dtype, compute_dtype, x)
    needs_own_tensor(
        "err_bias_tensor_must_be_specified_in_allocation",
        "nl.softmax computes tiles in between that have no address",
    )
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
) -> Tile:
    """X * w / sqrt(sum(x^2) / n + epsilon) over free axes; w broadcasts (or is None)."""
    access = tile_operand(x, "x", "rms_norm")
    axes = free_axes(axis, len(access.shape), "rms_norm")
    needs_own_tensor(
        "err_bias_tensor_must_be_specified_in_allocation",
        "nl.rms_norm computes tiles in between that have no address",
    )
    args: dict[str, Operand] = {"x": access}
    if isinstance(w, Tile):
        args["w"] = broadcast_access(tile_operand(w, "w", "rms_norm"), access.shape)
    out = _computed_type(dtype, compute_dtype, x)
    attrs = {"axis": axes, "n": float(n), "epsilon": float(epsilon)}
    return result("nl.rms_norm", shape=access.shape, dtype=out, args=args, attrs=attrs, mask=mask)


@api("nl.loop_reduce", engine="vector")
def loop_reduce(x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """Reduce x over the iterations of loops: assign the result to a tensor created outside of them."""
    access = tile_operand(x, "x", "loop_reduce")
    name = alu_op(op, "loop_reduce")
    loops: list[LoopVar] = []
    later = False
    for index in loop_indices if isinstance(loop_indices, list | tuple) else [loop_indices]:
        number = as_integer(index)
        if number is not None:
            later = later or number != 0  # an unrolled loop: the first iteration is the one with index 0
        elif isinstance(index, IndexExpr) and len(index.affine.loops()) == 1:
            loops.append(index.affine.loops()[0])
        else:
            raise NKIError(
                "invalid_operand",
                f"loop_indices of loop_reduce holds {index!r}, which is no loop index",
                line=current().line(),
                remedy="pass the variables of the nl.affine_range loops to reduce over",
            )
    out = as_dtype(dtype, current().line()) if dtype is not None else x.dtype
    target = _rebound(access.shape, loops)
    if later:
        attrs: dict[str, Any] = {"op": name, "loops": (), "later": True}
    else:
        attrs = {"op": name, "loops": tuple(loops)}
    reduced = result(
        "nl.loop_reduce",
        shape=access.shape,
        dtype=out,
        args={"x": access},
        attrs=attrs,
        mask=mask,
        hint="reduced",
    )
    if target is None:
        return reduced
    assign(target.access, reduced)
    return target


def _rebound(shape: tuple[int, ...], loops: list[LoopVar]) -> Tile | None:
    """The tensor of before the loops that ``b = nl.loop_reduce(...)`` goes into, as the documentation writes it."""
    session = current()
    frame, name = session.frame(), session.hint()
    known = frame.f_locals.get(name) if frame is not None and name is not None else None
    if not isinstance(known, Tile) or known.shape != shape or not known.buffer.on_chip:
        return None
    scope = known.access.tensor.scope
    inside = scope is not None and (scope not in session.loops or scope.var in loops)
    return None if inside else known


@api("nl.all_reduce", engine="vector")
def all_reduce(x: Any, op: Any, program_axes: Any) -> Tile:
    """Reduction over the launch grid; not available on a single core that runs the grid serially."""
    raise NKIError(
        "unsupported_api",
        "nl.all_reduce over the launch grid is not simulated",
        line=current().line(),
        remedy="reduce inside one program instance",
    )
