"""Index expressions as kernels write them: loop variables, `nl.arange`, and affine arithmetic on both.

An `IndexExpr` is an affine expression seen as a NumPy array of integers: its `shape` holds the extents of the tile
axes that it runs over, so that two of them broadcast as NumPy arrays do. Comparisons give `Condition`s, which masks are
made of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import NKIError
from ..ir import Affine, LoopVar
from .session import NeedsInteger, current


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcast of two shapes.

    Raises:
        NKIError: if they do not broadcast.
    """
    if a == b:
        return a
    n = max(len(a), len(b))
    padded_a, padded_b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    out = []
    for x, y in zip(padded_a, padded_b, strict=True):
        if x != y and x != 1 and y != 1:
            raise NKIError(
                "shape_mismatch", f"shapes {list(a)} and {list(b)} do not broadcast", line=current().line()
            )
        out.append(max(x, y))
    return tuple(out)


def shift_axes(affine: Affine, by: int) -> Affine:
    """Renumber the axes, for an expression that gains leading axes."""
    if by == 0 or not affine.axes():
        return affine
    return Affine(affine.const, {(s + by if isinstance(s, int) else s): c for s, c in affine.terms.items()})


_LARGEST = 1 << 48
"""Sums of several such indices still fit the 64 bits of the interpreter's."""
_LARGE = 1 << 32
"""Numbers below it are added unseen: who adds enough of them to matter has other worries."""


class IndexExpr:
    """An affine integer expression over loop variables and tile axes."""

    __slots__ = ("affine", "shape")
    __array_ufunc__ = None

    def __init__(self, affine: Affine, shape: tuple[int, ...] = ()) -> None:
        """`shape` has one extent for every axis."""
        self.affine = affine
        self.shape = shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        """For messages and f-strings in kernels."""
        return repr(self.affine)

    # -- arithmetic ------------------------------------------------------------------------------------------------
    def _combine(self, other: Any, sign: int) -> IndexExpr:
        if type(other) is int:
            moved = IndexExpr(self.affine + other * sign, self.shape)
            return moved if -_LARGE < other < _LARGE else moved._sound()
        if isinstance(other, IndexExpr):
            if self.shape == other.shape or not self.shape or not other.shape:
                return IndexExpr(self.affine + other.affine * sign, self.shape or other.shape)
            shape = broadcast_shapes(self.shape, other.shape)
            mine = shift_axes(self.affine, len(shape) - len(self.shape))
            theirs = shift_axes(other.affine, len(shape) - len(other.shape))
            return IndexExpr(mine + theirs * sign, shape)
        value = as_integer(other)
        if value is None:
            return NotImplemented
        return IndexExpr(self.affine + value * sign, self.shape)._sound()

    def __add__(self, other: Any) -> IndexExpr:
        """Sum with an integer or another expression."""
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> IndexExpr:
        """Difference."""
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> IndexExpr:
        """Difference, reversed."""
        return (-self) + other

    def __neg__(self) -> IndexExpr:
        """Negation."""
        return IndexExpr(-self.affine, self.shape)

    def __pos__(self) -> IndexExpr:
        """Itself."""
        return self

    def __mul__(self, other: Any) -> IndexExpr:
        """Product with an integer."""
        if type(other) is int:
            return IndexExpr(self.affine * other, self.shape)._sound()
        if isinstance(other, IndexExpr):
            if other.affine.is_const and not other.shape:
                return self * other.affine.const
            if self.affine.is_const and not self.shape:
                return other * self.affine.const
            return self._non_affine("product of two indices", other)
        value = as_integer(other)
        if value is None:
            return NotImplemented
        return IndexExpr(self.affine * value, self.shape)._sound()

    def _sound(self) -> IndexExpr:
        """Itself, if it is a number that hardware could hold; masks would else let any through."""
        low, high = self.bounds()
        if low < -_LARGEST or high > _LARGEST:
            raise NKIError(
                "unsupported_index_expression",
                f"an index from {low:.3g} to {high:.3g} is beyond what addresses can be",
                line=current().line(),
            )
        return self

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> IndexExpr:
        """Quotient by an integer that divides every coefficient; otherwise the loop is unrolled."""
        value = as_integer(other)
        if value is None:
            return NotImplemented
        e = self.affine
        if value > 0 and all(c % value == 0 for c in e.terms.values()):
            return IndexExpr(
                Affine(e.const // value, {s: c // value for s, c in e.terms.items()}), self.shape
            )
        low, high = self.bounds()
        if value > 0 and low // value == high // value:
            return IndexExpr(Affine(low // value), self.shape)
        return self._non_affine("quotient of an index")

    def __mod__(self, other: Any) -> IndexExpr:
        """Remainder, where it is affine; otherwise the loop is unrolled."""
        value = as_integer(other)
        if value is None:
            return NotImplemented
        e = self.affine
        if value > 0 and all(c % value == 0 for c in e.terms.values()):
            return IndexExpr(Affine(e.const % value), self.shape)
        low, high = self.bounds()
        if value > 0 and low // value == high // value:
            return IndexExpr(e - value * (low // value), self.shape)
        return self._non_affine("remainder of an index")

    def _non_affine(self, what: str, other: IndexExpr | None = None) -> IndexExpr:
        loops = [*self.affine.loops(), *(other.affine.loops() if other is not None else ())]
        return NonAffine(loops, f"{what} is not affine")

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return self.affine.bounds(lambda s: self.shape[s] if isinstance(s, int) else s.trips)

    # -- NumPy-like indexing: arange(n)[:, None] --------------------------------------------------------------------
    def __getitem__(self, key: Any) -> IndexExpr:
        """Insert axes (`None`) or keep them (`:`); other indexing of an index is not supported."""
        keys = key if isinstance(key, tuple) else (key,)
        if Ellipsis in [k for k in keys if k is None or k is Ellipsis or isinstance(k, slice)]:
            position = next(i for i, k in enumerate(keys) if k is Ellipsis)
            fill = self.ndim - sum(1 for k in keys if isinstance(k, slice))
            keys = keys[:position] + (slice(None),) * fill + keys[position + 1 :]
        shape: list[int] = []
        mapping: dict[LoopVar | int, Affine | int] = {}
        axis = 0
        for k in keys:
            if k is None:
                shape.append(1)
            elif isinstance(k, slice) and k == slice(None) and axis < self.ndim:
                mapping[axis] = Affine.of(len(shape))
                shape.append(self.shape[axis])
                axis += 1
            else:
                raise NKIError(
                    "unsupported_index_expression",
                    f"an index cannot be indexed with {k!r}",
                    line=current().line(),
                )
        for rest in range(axis, self.ndim):
            mapping[rest] = Affine.of(len(shape))
            shape.append(self.shape[rest])
        return IndexExpr(self.affine.substitute(mapping), tuple(shape))

    # -- comparisons ------------------------------------------------------------------------------------------------
    def _difference(self, other: Any) -> IndexExpr:
        difference = self._combine(other, -1)
        if difference is NotImplemented:
            raise NKIError(
                "err_unsupported_expression_in_mask",
                f"an index is compared with {other!r}",
                line=current().line(),
            )
        return difference

    def __ge__(self, other: Any) -> Condition:
        """Mask condition."""
        return Condition([self._difference(other)])

    def __gt__(self, other: Any) -> Condition:
        """Mask condition."""
        return Condition([self._difference(other) - 1])

    def __le__(self, other: Any) -> Condition:
        """Mask condition."""
        return Condition([-self._difference(other)])

    def __lt__(self, other: Any) -> Condition:
        """Mask condition."""
        return Condition([-self._difference(other) - 1])

    def __eq__(self, other: object) -> Any:
        """Mask condition (two inequalities)."""
        if other is None:
            return False
        d = self._difference(other)
        return Condition([d, -d])

    def __ne__(self, other: object) -> Any:
        """Only decidable with integers: the loop is unrolled."""
        if other is None:
            return True
        d = self._difference(other)
        return Condition([d, -d], negated=True)

    __hash__ = None  # type: ignore[assignment]

    # -- where Python wants an integer --------------------------------------------------------------------------------
    def _integer(self, what: str) -> int:
        if self.affine.is_const and math.prod(self.shape) == 1:
            return self.affine.const
        if self.affine.axes() or not self.affine.loops():
            raise NKIError(
                "err_control_flow_condition_depending_on_arange",
                f"{what} of an nl.arange expression is needed while tracing",
                line=current().line(),
            )
        raise NeedsInteger(list(self.affine.loops()), f"{what} of a loop index")

    def __index__(self) -> int:
        """The integer, if it is one; otherwise the loop is unrolled."""
        return self._integer("the integer value")

    __int__ = __index__

    def __float__(self) -> float:
        """The value as a float; unrolls the loop."""
        return float(self._integer("the value"))

    def __bool__(self) -> bool:
        """Truth value; unrolls the loop."""
        return bool(self._integer("the truth value"))

    def __truediv__(self, other: Any) -> Any:
        """True division needs the value."""
        return self._integer("the value") / other

    def __rtruediv__(self, other: Any) -> Any:
        """True division needs the value."""
        return other / self._integer("the value")

    def __rfloordiv__(self, other: Any) -> int:
        """Division by an index needs the value."""
        return int(other // self._integer("the value"))

    def __rmod__(self, other: Any) -> int:
        """Remainder by an index needs the value."""
        return int(other % self._integer("the value"))

    def __pow__(self, other: Any) -> Any:
        """Powers need the value."""
        return self._integer("the value") ** other

    def __rpow__(self, other: Any) -> Any:
        """Powers need the value."""
        return other ** self._integer("the value")

    def __and__(self, other: Any) -> Any:
        """Bit operations need the value."""
        return self._integer("the value") & int(other)

    def __lshift__(self, other: Any) -> IndexExpr:
        """A shift by a constant is a product."""
        return self * (1 << int(other))

    def __rshift__(self, other: Any) -> IndexExpr:
        """A shift by a constant is a quotient."""
        return self // (1 << int(other))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refused."""
        raise NKIError(
            "err_cannot_assign_to_index", "an index expression cannot be assigned to", line=current().line()
        )


class NonAffine(IndexExpr):
    """A value computed from loop indices that is not affine in them: ``i % 2``.

    Using it unrolls the loops; only as part of a mask it is refused, as NKI does.
    """

    __slots__ = ("loops", "why")

    def __init__(self, loops: list[LoopVar], why: str) -> None:
        """`loops`: what must be unrolled to know the value."""
        self.loops = loops
        self.why = why

    @property
    def affine(self) -> Affine:  # type: ignore[override]
        """Not to be had: the loops are unrolled.

        Raises:
            NeedsInteger: always, but for expressions of nl.arange alone, of which no loop is to blame.
        """
        raise self.refused()

    def refused(self) -> Exception:
        """What is raised where the value is needed."""
        if self.loops:
            return NeedsInteger(self.loops, self.why)
        return NKIError("unsupported_index_expression", f"{self.why} in nl.arange", line=current().line())

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """No axes."""
        return ()

    def _combine(self, other: Any, sign: int) -> IndexExpr:
        return self

    def __neg__(self) -> IndexExpr:
        """Itself: just as unknown."""
        return self

    def __mul__(self, other: Any) -> IndexExpr:
        """Itself: just as unknown."""
        return self

    __rmul__ = __mul__
    __floordiv__ = __mod__ = __mul__

    def _integer(self, what: str) -> int:
        raise self.refused()

    def __repr__(self) -> str:
        """For messages."""
        return self.why


class Condition:
    """A conjunction of ``expression >= 0``."""

    __slots__ = ("parts", "negated", "joined")

    def __init__(self, parts: list[IndexExpr], negated: bool = False, joined: bool = False) -> None:
        """`negated` conditions (from ``!=``) can be decided with integers only; `joined` ones come of several."""
        self.parts = parts
        self.negated = negated
        self.joined = joined

    @property
    def is_affine(self) -> bool:
        """Whether both sides of every comparison are affine expressions."""
        return not any(isinstance(part, NonAffine) for part in self.parts)

    def __and__(self, other: Any) -> Condition:
        """Conjunction."""
        if other is True or other is None:
            return self
        if not isinstance(other, Condition) or other.negated or self.negated:
            raise NKIError(
                "err_unsupported_expression_in_mask",
                "only affine comparisons can be joined",
                line=current().line(),
            )
        return Condition([*self.parts, *other.parts], joined=True)

    __rand__ = __and__
    __mul__ = __and__

    def _unsupported(self, what: str) -> Any:
        raise NKIError(
            "err_unsupported_expression_in_mask", f"{what} is not supported in a mask", line=current().line()
        )

    def __or__(self, other: Any) -> Condition:
        """Disjunctions are not masks."""
        return self._unsupported("| of comparisons")

    __ror__ = __or__

    def __invert__(self) -> Condition:
        """The negation of a single comparison; others are not masks."""
        if len(self.parts) == 1 and not self.negated:
            return Condition([-self.parts[0] - 1])
        return self._unsupported("~ of a conjunction")

    def __bool__(self) -> bool:
        """Truth value while tracing: known from the bounds, or by unrolling the loops."""
        results = []
        if not self.is_affine:
            raise next(p.refused() for p in self.parts if isinstance(p, NonAffine))
        for part in self.parts:
            low, high = part.bounds()
            results.append(True if low >= 0 else False if high < 0 else None)
        if False in results:
            return self.negated
        if None not in results:
            return not self.negated
        loops: list[LoopVar] = []
        for part, result in zip(self.parts, results, strict=True):
            if result is None:
                if part.affine.axes():
                    raise NKIError(
                        "err_control_flow_condition_depending_on_arange",
                        "the truth value of a comparison of nl.arange is needed while tracing",
                        line=current().line(),
                        remedy="use mask= on the operation instead of an if, and & instead of and between masks",
                    )
                loops += part.affine.loops()
        raise NeedsInteger(loops, "an if statement depends on a loop index")


def as_integer(value: Any) -> int | None:
    """The Python int of an integer-like value, or None."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def arange(*args: Any) -> IndexExpr:
    """``nl.arange(stop)`` or ``nl.arange(start, stop, step)``: a one-axis index.

    Start and stop may be loop indices, as long as their distance is a number.
    """
    values = [a if isinstance(a, IndexExpr) else as_integer(a) for a in args]
    if not 1 <= len(values) <= 3 or any(v is None for v in values):
        kinds = ", ".join(type(a).__name__ for a in args)
        raise NKIError("invalid_operand", f"nl.arange takes integers, got {kinds}", line=current().line())
    start, stop = (0, values[0]) if len(values) == 1 else (values[0], values[1])
    step = int(values[2].__index__()) if len(values) == 3 else 1  # type: ignore[union-attr]
    distance = stop - start  # type: ignore[operator]
    length = distance.affine if isinstance(distance, IndexExpr) else Affine(distance)
    first = start.affine if isinstance(start, IndexExpr) else Affine(start)  # type: ignore[arg-type]
    if not length.is_const:
        raise NKIError(
            "unsupported_index_expression",
            "the length of nl.arange depends on a loop index",
            line=current().line(),
            remedy="give it a constant length, and use mask= at the edge",
        )
    n = len(range(0, length.const, step)) if step else 0
    if n == 0:
        raise NKIError("empty_index", f"nl.arange{tuple(args)} is empty", line=current().line())
    return IndexExpr(first + Affine(0, {0: step} if n > 1 else {}), (n,))


class MGrid:
    """``nl.mgrid[0:128, 0:512]``: unpacks into index arrays; ``.p`` is the first, ``.x``, ``.y``, ``.z`` the next."""

    def __init__(self, parts: tuple[IndexExpr, ...]) -> None:
        """One index array per axis, all of the grid's dimensionality."""
        self.parts = parts

    def __iter__(self) -> Any:
        """Unpack."""
        return iter(self.parts)

    def __len__(self) -> int:
        """Number of axes."""
        return len(self.parts)

    def __getitem__(self, k: int) -> IndexExpr:
        """The index array of one axis."""
        return self.parts[k]

    def __getattr__(self, name: str) -> IndexExpr:
        """`p`, `x`, `y`, `z`: the axes from the last free one inward, as the documentation names them."""
        order = {"p": 0, "x": 1, "y": 2, "z": 3, "w": 4}
        if name in order and order[name] < len(self.parts):
            return self.parts[order[name]]
        raise AttributeError(name)


class MGridMaker:
    """The object `nl.mgrid`."""

    def __getitem__(self, key: Any) -> MGrid:
        """Slices of constant length, one per axis. Every index array has the shape of the whole grid, as in NumPy."""
        keys = key if isinstance(key, tuple) else (key,)
        parts: list[IndexExpr] = []
        for k, s in enumerate(keys):
            if not isinstance(s, slice):
                raise NKIError("unsupported_index_expression", "nl.mgrid takes slices", line=current().line())
            base = arange(0 if s.start is None else s.start, s.stop, s.step or 1)
            expander = tuple(slice(None) if j == k else None for j in range(len(keys)))
            parts.append(base[expander])
        shape = tuple(part.shape[k] for k, part in enumerate(parts))
        return MGrid(tuple(IndexExpr(part.affine, shape) for part in parts))


mgrid = MGridMaker()


class DynamicSlice:
    """``nl.ds(start, size)``: `size` consecutive elements from `start`, which may be a loop expression."""

    __slots__ = ("start", "size")

    def __init__(self, start: Any, size: int) -> None:
        """See the class."""
        self.start = start
        self.size = int(size)
        if self.size <= 0:
            raise NKIError("empty_slice", f"nl.ds has size {self.size}", line=current().line())
