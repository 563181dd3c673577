"""Element-wise functions of one and two tiles, as NumPy names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import FLOAT32, Dtype, as_dtype, promote
from ...errors import NKIError
from .. import emit
from ..allocation import needs_own_tensor
from ..emit import elementwise_operands, result
from ..index import IndexExpr
from ..isa.vector import dropout as nisa_dropout
from ..registry import api
from ..session import current
from ..tile import MaskedTile, Tile


def _make_binary(name: str, engine: str, doc: str) -> Any:
    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Any:
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
    for value in values:
        if isinstance(value, MaskedTile):
            raise value.refusal()
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
    def function(x: Any, *, dtype: Any = None, mask: Any = None) -> Any:
        if isinstance(x, Tile):
            if engine == "scalar":
                needs_own_tensor(
                    "err_bias_tensor_must_be_specified_in_allocation",
                    f"nl.{name} is an activation without a bias, and needs a tile of zeros for it",
                )
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


@api("nl.where", engine="vector")
def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
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


@api("nl.static_cast", engine="vector")
def static_cast(input_data: Any, dtype: Any, *, mask: Any = None) -> Any:
    """A tile, a number or a NumPy array in another element type."""
    if isinstance(input_data, Tile):
        return emit.copy(input_data, dtype, mask)
    kind = as_dtype(dtype, current().line())
    return input_data.astype(kind) if isinstance(input_data, np.ndarray) else kind.type(input_data)


@api("nl.dropout", engine="vector")
def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """Each element becomes zero with probability rate (a number or a tile of one element)."""
    return nisa_dropout(x, rate, dtype=dtype, mask=mask)
