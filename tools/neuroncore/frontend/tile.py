"""What a kernel holds in its hands: tensors, tiles and views of them.

A `Tile` is an `Access` being built: subscripts compose affine index expressions, operators and methods emit
instructions. HBM tensors, on-chip tensors and their slices are all `Tile`s, as they are all tensors in NKI.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ..dtypes import Dtype, as_dtype
from ..errors import NKIError
from ..ir import Access, Buffer
from .index import Condition
from .session import current


class Tile:
    """A tensor or a part of one, as NKI code sees it.

    Attributes:
        access: where it is.
    """

    __slots__ = ("access",)
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, access: Access) -> None:
        """See the class attributes."""
        self.access = access

    # -- facts ---------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.access.shape

    @property
    def dtype(self) -> Dtype:
        """Element type."""
        return self.access.tensor.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.access.shape)

    @property
    def buffer(self) -> Buffer:
        """Memory."""
        return self.access.tensor.buffer

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.access.shape)

    @property
    def par_dim(self) -> int:
        """Position of the partition dimension."""
        return self.access.tensor.par_dim

    def __repr__(self) -> str:
        """For messages and f-strings in kernels."""
        return f"{self.access.tensor.name}{list(self.shape)}"

    def __len__(self) -> int:
        """First extent."""
        return self.access.shape[0]

    def __iter__(self) -> Any:
        """Refused: a tile is not a Python sequence."""
        raise NKIError(
            "unsupported_iteration",
            f"{self!r} cannot be iterated over while tracing",
            line=current().line(),
            remedy="loop over nl.affine_range and index the tensor",
        )

    def __bool__(self) -> bool:
        """Refused: the value is not known while tracing."""
        if self.size == 1:
            raise NKIError(
                "err_dynamic_control_flow_not_supported",
                f"control flow depends on the value of {self!r}, which is only known at run time",
                line=current().line(),
            )
        raise NKIError(
            "err_ambiguous_tensor_truth_value",
            f"the truth value of {self!r}, which has {self.size} elements, is needed",
            line=current().line(),
        )

    def __index__(self) -> int:
        """Refused: the value is not known while tracing."""
        raise NKIError(
            "err_dynamic_control_flow_not_supported",
            f"the value of {self!r} is needed as an integer while tracing",
            line=current().line(),
        )

    __int__ = __index__

    def __float__(self) -> float:
        """Refused, as `__index__`."""
        self.__index__()
        return 0.0

    def __getattr__(self, name: str) -> Any:
        """The view methods that only the later dialect's tensors have."""
        if not name.startswith("_") and current().dialect == "nki":
            from .dialect_nki.views import METHODS

            if name in METHODS:
                return functools.partial(METHODS[name], self)
        raise AttributeError(f"a tensor has no attribute `{name}`")

    # -- views ---------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        """A part: slices, `nl.ds`, integers and loop indices, or `nl.arange` expressions; never both kinds at once.

        A comparison alone makes it an operand with a mask, a `MaskedTile`.
        """
        if isinstance(key, Condition):
            return masks().masked(self.access, key)
        return Tile(subscripts().index_access(self.access, key))

    def reshape(self, shape: Any, *more: Any) -> Tile:
        """The same elements in another shape, where that is a view."""
        return Tile(views().reshape_access(self.access, _extents(shape, more)))

    def broadcast_to(self, shape: Any, *more: Any) -> Tile:
        """A view that repeats axes of extent 1 (along the partition axis the hardware needs a matmul for it)."""
        return Tile(views().broadcast_access(self.access, _extents(shape, more)))

    def expand_dims(self, axis: Any) -> Tile:
        """Insert axes of extent 1."""
        axes = axis if isinstance(axis, tuple | list) else (axis,)
        n = self.ndim + len(axes)
        where = {a % n for a in axes}
        keys = tuple(None if k in where else slice(None) for k in range(n))
        return self[keys]

    def squeeze(self, axis: Any = None) -> Tile:
        """Drop axes of extent 1."""
        axes = range(self.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
        drop = {a % self.ndim for a in axes if self.shape[a] == 1}
        return self[tuple(0 if k in drop else slice(None) for k in range(self.ndim))]

    def view(self, dtype: Any) -> Tile:
        """Itself, if `dtype` is its own element type; bytes cannot be seen as another one in the simulator."""
        new = as_dtype(dtype, current().line())
        if new != self.dtype:
            raise NKIError(
                "unsupported_view",
                f"{self!r} cannot be seen as {new} instead of {self.dtype}: reinterpreting bytes is not simulated",
                line=current().line(),
                remedy="convert with nl.copy(..., dtype=...), or create the tensor with that element type",
            )
        return self

    def assert_shape(self, shape: Any) -> Tile:
        """Itself, if it has that shape."""
        if tuple(as_extent(d) for d in shape) != self.shape:
            raise NKIError(
                "err_annotation_shape_mismatch",
                f"{self!r} is asserted to have shape {list(shape)}",
                line=current().line(),
            )
        return self

    # -- writing -------------------------------------------------------------------------------------------------------
    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a value into a part."""
        calls().assign(subscripts().index_access(self.access, key), value)

    def astype(self, dtype: Any) -> Tile:
        """A copy in another element type."""
        return calls().copy(self, dtype=dtype)


class MaskedTile:
    """A tile with a mask of its own, ``tile[i_f < 64]``: an operand of a matmul, and nothing else.

    Attributes:
        tile: what is masked.
        conditions: comparisons over its axes.
    """

    __slots__ = ("tile", "conditions")
    __array_ufunc__ = None

    def __init__(self, tile: Tile, conditions: tuple[Condition, ...]) -> None:
        """See the class attributes."""
        self.tile = tile
        self.conditions = conditions

    def __getitem__(self, key: Any) -> MaskedTile:
        """One more condition."""
        if isinstance(key, Condition):
            return MaskedTile(self.tile, (*self.conditions, key))
        raise self.refusal()

    def __getattr__(self, name: str) -> Any:
        """Whatever else a tile has."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise self.refusal()

    def refusal(self) -> NKIError:
        """Why it cannot be used as anything but an operand of a matmul."""
        return NKIError(
            "unsupported_index",
            f"{self.tile.access.tensor.name} is indexed with a comparison",
            line=current().line(),
            remedy="only operands of nl.matmul and nisa.nc_matmul take one; pass it as mask= of other operations",
        )


def _binary(name: str, reverse: bool = False) -> Callable[[Tile, Any], Any]:
    def method(self: Tile, other: Any) -> Any:
        if other is None and name in ("equal", "not_equal"):
            # How kernels ask for optional arguments; NKI's own parser has no `is`.
            return name == "not_equal"
        return calls().operator(name, other, self) if reverse else calls().operator(name, self, other)

    method.__doc__ = f"`nl.{name}`."
    return method


def _unary(name: str) -> Callable[[Tile], Any]:
    def method(self: Tile) -> Any:
        return calls().unary(name, self)

    method.__doc__ = f"`nl.{name}`."
    return method


def _inplace(name: str) -> Callable[[Tile, Any], Any]:
    def method(self: Tile, other: Any) -> Any:
        return calls().update(name, self, other)

    method.__doc__ = f"`nl.{name}` into itself."
    return method


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "mod": "mod",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
for _python, _nki in _OPERATORS.items():
    setattr(Tile, f"__{_python}__", _binary(_nki))
    setattr(Tile, f"__r{_python}__", _binary(_nki, reverse=True))
    setattr(Tile, f"__i{_python}__", _inplace(_nki))
for _python, _nki in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}.items():
    setattr(Tile, f"__{_python}__", _binary(_nki))
for _python, _nki in {"neg": "negative", "abs": "abs", "invert": "invert"}.items():
    setattr(Tile, f"__{_python}__", _unary(_nki))


def _refused(self: MaskedTile, *_: Any) -> Any:
    """An operator that a masked operand has not."""
    raise self.refusal()


for _name in [
    n for n in vars(Tile) if n.startswith("__") and n not in vars(MaskedTile) and n not in vars(object)
]:
    setattr(MaskedTile, _name, _refused)


@functools.cache
def calls() -> Any:
    """The emitters behind operators (imported late: they need this module)."""
    from . import emit

    return emit


@functools.cache
def subscripts() -> Any:
    """What subscripts select (imported late, as `calls`)."""
    from . import subscript

    return subscript


@functools.cache
def views() -> Any:
    """Reshapes and broadcasts (imported late, as `calls`)."""
    from . import views as module

    return module


@functools.cache
def masks() -> Any:
    """Masks of operands (imported late, as `calls`)."""
    from . import operand_mask as module

    return module


def _extents(shape: Any, more: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one tuple or as several numbers."""
    dims = shape if isinstance(shape, tuple | list) else (shape, *more)
    return tuple(as_extent(d) for d in dims)


def as_extent(value: Any) -> int:
    """A positive integer extent."""
    try:
        n = int(value.__index__())
    except (AttributeError, TypeError):
        raise NKIError("invalid_shape", f"{value!r} is not an extent", line=current().line()) from None
    if n <= 0 and n != -1:
        raise NKIError("invalid_shape", f"extent {n} is not positive", line=current().line())
    return n
