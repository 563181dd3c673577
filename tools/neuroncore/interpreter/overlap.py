"""Whether two accesses can touch the same element: integer solutions of one bounded linear equation.

Every direct access is an affine function from loop variables and tile axes to an element's offset in its storage. Two
accesses meet where the difference of their functions is zero within the ranges of their variables. The search walks the
coefficients from the largest down, which decides the mixed-radix indices of tiled kernels at once; where it would take
too long it answers "perhaps".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from ..ir import Access, Affine, LoopVar

SEARCH_STEPS = 500
"""Candidates looked at before giving up and calling two accesses overlapping."""


@dataclasses.dataclass(frozen=True, slots=True)
class Linear:
    """An affine map to element offsets.

    Attributes:
        const: offset with every variable at zero.
        loops: coefficient of each loop variable (none of them zero).
        axes: stride and extent of each tile axis.
    """

    const: int
    loops: dict[LoopVar, int]
    axes: tuple[tuple[int, int], ...]

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest offset."""
        low = high = self.const
        spans = [c * (v.trips - 1) for v, c in self.loops.items()] + [s * (n - 1) for s, n in self.axes]
        for span in spans:
            low += min(span, 0)
            high += max(span, 0)
        return low, high


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)


def linear(access: Access, strides: tuple[int, ...], offset: Affine | None = None) -> Linear:
    """The map of a direct access to a tensor whose dimensions have the given strides.

    Args:
        access: without indirect indices.
        strides: one per dimension of the tensor.
        offset: of the tensor in its storage.
    """
    const = 0
    loops: dict[LoopVar, int] = {}
    axes = [0] * len(access.shape)
    expressions: list[tuple[Affine, int]] = [(e, s) for e, s in zip(access.affine, strides, strict=True) if s]
    if offset is not None:
        expressions.append((offset, 1))
    for expression, stride in expressions:
        const += expression.const * stride
        for symbol, c in expression.terms.items():
            if isinstance(symbol, int):
                axes[symbol] += c * stride
            else:
                loops[symbol] = loops.get(symbol, 0) + c * stride
    return Linear(
        const, {v: c for v, c in loops.items() if c}, tuple(zip(axes, access.shape, strict=True))
    )  # fmt: skip


def meet(
    a: Linear, b: Linear, equal: Collection[LoopVar], apart: LoopVar | None = None, direction: int = 0
) -> bool:
    """Whether `a` and `b` may touch a common element.

    Args:
        a: one access.
        b: the other access to the same storage.
        equal: loops that both are in the same iteration of.
        apart: a loop that they are in different iterations of.
        direction: +1 if `b`'s iteration of `apart` is later than `a`'s, -1 if it is earlier.
    """
    terms: list[tuple[int, int, int]] = []
    for v in {*a.loops, *b.loops}:
        ca, cb, last = a.loops.get(v, 0), b.loops.get(v, 0), v.trips - 1
        if v is apart and ca == cb:
            # a - b = ca * (i_a - i_b)
            terms.append((ca, -last, -1) if direction > 0 else (ca, 1, last))
        elif v in equal:
            terms.append((ca - cb, 0, last))
        else:
            terms.append((ca, 0, last))
            terms.append((-cb, 0, last))
    terms.extend((s, 0, n - 1) for s, n in a.axes)
    terms.extend((-s, 0, n - 1) for s, n in b.axes)
    return solvable(terms, b.const - a.const)


def solvable(terms: list[tuple[int, int, int]], target: int) -> bool:
    """Whether ``Σ c·x = target`` has a solution with integers ``low <= x <= high`` for terms ``(c, low, high)``.

    Answers True where the search would take too long.
    """
    merged: dict[int, tuple[int, int]] = {}
    for c, low, high in terms:
        if high < low:
            return False
        if c < 0:
            c, low, high = -c, -high, -low
        if c and (low, high) != (0, 0):
            known = merged.get(c, (0, 0))
            merged[c] = known[0] + low, known[1] + high
    order = sorted(merged, reverse=True)
    lows, highs, gcds = [0], [0], [0]
    for c in reversed(order):
        low, high = merged[c]
        lows.append(lows[-1] + c * low)
        highs.append(highs[-1] + c * high)
        gcds.append(math.gcd(gcds[-1], c))
    lows.reverse()
    highs.reverse()
    gcds.reverse()
    budget = SEARCH_STEPS

    def search(k: int, goal: int) -> bool:
        nonlocal budget
        if not lows[k] <= goal <= highs[k]:
            return False
        if k == len(order):
            return goal == 0
        if goal % gcds[k]:
            return False
        c = order[k]
        low, high = merged[c]
        first = max(low, -((highs[k + 1] - goal) // c))
        last = min(high, (goal - lows[k + 1]) // c)
        for x in range(first, last + 1):
            budget -= 1
            if budget < 0 or search(k + 1, goal - c * x):
                return True
        return False

    return search(0, target)
