"""How much of a tile a mask leaves, for given loop values and on average over all iterations.

A mask shrinks the instruction at compile time; it costs nothing at run time (`nki.api.shared`, masks). Conditions on
one axis cut that axis. A condition over several axes (a triangle) leaves its share of the tile's area to be moved by DMA,
row by row, but an engine walks one access pattern on all partitions: all of the smallest box around what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..ir import Affine, LoopVar

_MAX_COMBINATIONS = 200_000
_POINTS = 32
"""Points of a grid along an axis, by which areas are taken."""

_MAX_POINTS = 1024
"""Points of a grid in all."""


class Left(NamedTuple):
    """What is left of a tile, as shares.

    Attributes:
        rows: of the partitions.
        free: of the elements per partition.
        walked: of the elements per partition that an engine walks over.
        inner: of the innermost axis: what remains of a contiguous run along it.
    """

    rows: float
    free: float
    walked: float
    inner: float


class Mask:
    """A conjunction of affine conditions over a tile."""

    __slots__ = ("conditions", "shape", "variables", "slots", "cache")

    def __init__(
        self,
        conditions: Sequence[Affine],
        shape: tuple[int, ...],
        slot: Callable[[LoopVar], int] | None = None,
    ) -> None:
        """Conditions are ``expression >= 0`` over loop variables and the axes of a tile of this shape."""
        self.conditions = tuple(conditions)
        self.shape = shape
        seen: dict[LoopVar, None] = {}
        for condition in self.conditions:
            seen.update(dict.fromkeys(condition.loops()))
        self.variables = tuple(seen)
        self.slots = tuple(slot(v) for v in self.variables) if slot is not None else ()
        self.cache: dict[tuple[int, ...], Left] = {}

    def left(self, values: list[int]) -> Left:
        """What remains, by slot values."""
        key = tuple(values[s] for s in self.slots)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = self._left(key)
        return found

    def shares(self, values: list[int]) -> tuple[float, float]:
        """Share of the partitions and of the elements per partition that remain, by slot values."""
        return self.left(values)[:2]

    def _left(self, values: tuple[int, ...]) -> Left:
        return Left(*(float(share[0]) for share in self.grids([np.array([v]) for v in values])))

    def grids(self, values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The same for many combinations of loop values at once (arrays of equal length)."""
        count = len(values[0]) if values else 1
        low = np.zeros((len(self.shape), count))
        high = np.repeat(np.array(self.shape, dtype=float)[:, None], count, axis=1)
        rest = np.ones(count)
        joint: list[tuple[Affine, np.ndarray]] = []
        by_variable = dict(zip(self.variables, values, strict=True))
        for condition in self.conditions:
            base = np.full(count, float(condition.const))
            for var in condition.loops():
                base = base + condition.coefficient(var) * by_variable[var]
            axes = condition.axes()
            if not axes:
                rest = np.where(base >= 0, rest, 0.0)
            elif len(axes) == 1:
                axis, step = axes[0], condition.coefficient(axes[0])
                if step < 0:
                    high[axis] = np.minimum(high[axis], np.floor(base / -step) + 1)
                else:
                    low[axis] = np.maximum(low[axis], np.ceil(-base / step))
            else:
                joint.append((condition, base))
        extents = np.clip(high - low, 0, None)
        full = np.maximum(np.array(self.shape, dtype=float)[:, None], 1.0)
        shares = extents / full
        rows = shares[0] if len(self.shape) else np.ones(count)
        free = rest * self._area(joint, low, high) if joint else rest
        walked = np.where(free > 0, rest, 0.0)
        _tighten(joint, low, high)
        box = np.clip(high - low, 0, None) / full
        inner = np.ones(count)
        for axis in range(1, len(self.shape)):
            free = free * shares[axis]
            walked = walked * box[axis]
            inner = box[axis] if self.shape[axis] > 1 else inner
        # A box is no smaller than what it holds, whose area is taken by a coarse grid.
        return rows, free, np.where(free > 0, np.maximum(walked, free), 0.0), inner

    def changing(
        self, slot: int, trips: int, inner: Mapping[int, int], values: list[int]
    ) -> Iterator[tuple[int, int]]:
        """Where what the mask leaves may differ from one iteration of a loop to the next.

        A condition is monotone in the loop's value: it holds nowhere, then in part, then everywhere (or the other way
        round), and only from its first part to its last is an iteration unlike the one before.

        Args:
            slot: of the loop.
            trips: its iterations.
            inner: iterations of the loops inside it, by slot.
            values: current values of all slots, for the loops outside.

        Yields:
            first and last iteration of each such stretch.
        """
        for condition in self.conditions:
            low = high = condition.const
            coefficient = 0
            for var, place in zip(self.variables, self.slots, strict=True):
                step = condition.coefficient(var)
                if place == slot:
                    coefficient = step
                    continue
                span = step * (inner[place] - 1) if place in inner else step * values[place]
                low += span if place not in inner else min(span, 0)
                high += span if place not in inner else max(span, 0)
            for axis in condition.axes():
                span = condition.coefficient(axis) * (self.shape[axis] - 1)
                low, high = low + min(span, 0), high + max(span, 0)
            if not coefficient:
                continue
            if coefficient > 0:
                first, last = -(high // coefficient), -(low // coefficient)
            else:
                first, last = low // -coefficient + 1, high // -coefficient + 1
            if last >= 1 and first < trips:
                yield max(first, 1), last

    def _area(
        self, conditions: list[tuple[Affine, np.ndarray]], low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """Share of what is left of a tile between `low` and `high` on which conditions over several axes hold together.

        Taken by a coarse grid. Nothing that might hold for an element is ever taken for empty, so that no piece of a
        tile is too thin to be paid for.
        """
        axes = sorted({axis for condition, _ in conditions for axis in condition.axes()})
        points = max(2, min(_POINTS, int(_MAX_POINTS ** (1 / len(axes)))))
        holds: np.ndarray = np.ones((len(low[0]), *(points for _ in axes)), dtype=bool)
        possible: np.ndarray = np.ones(len(low[0]), dtype=bool)
        for condition, base in conditions:
            value = base.reshape(-1, *(1 for _ in axes))
            most = base
            for k, axis in enumerate(axes):
                step = condition.coefficient(axis)
                first, last = low[axis], np.maximum(high[axis] - 1, low[axis])
                most = most + np.maximum(step * first, step * last)
                width = (last - first + 1)[:, None] / points
                places = first[:, None] + (np.arange(points) + 0.5)[None, :] * width - 0.5
                value = value + step * places.reshape(
                    -1, *(points if j == k else 1 for j in range(len(axes)))
                )
            holds &= value >= 0
            possible &= most >= 0
        elements = np.prod(np.clip(high - low, 1, None), axis=0)
        share = holds.reshape(len(holds), -1).mean(axis=1)
        return np.where(possible, np.maximum(share, 1 / elements), 0.0)

    def average(self) -> tuple[float, float, float]:
        """Means over all iterations: share of elements, of partitions, and of iterations where anything remains."""
        return self.means()[:3]

    def means(self) -> tuple[float, float, float, float, float]:
        """The same, with the shares of elements per partition that are walked over, and of the innermost axis.

        The last is the mean over those iterations where anything remains.
        """
        trips = [v.trips for v in self.variables]
        if not trips:
            rows, free, walked, inner = self._left(())
            return rows * free, rows, float(rows * free > 0), walked, inner
        most = max(trips)
        combinations = _MAX_COMBINATIONS
        if any(len(condition.axes()) > 1 for condition in self.conditions):
            combinations //= _MAX_POINTS // 16
        if math.prod(trips) > combinations:
            most = max(2, int(combinations ** (1 / len(trips))))
        grids = np.meshgrid(*[_spread(t, most) for t in trips], indexing="ij")
        rows_, free_, walked_, inner_ = self.grids([g.ravel() for g in grids])
        some = (rows_ * free_) > 0
        return (
            float((rows_ * free_).mean()),
            float(rows_.mean()),
            float(some.mean()),
            float((walked_ * some).mean()),
            float(inner_[some].mean()) if some.any() else 1.0,
        )


def _tighten(conditions: list[tuple[Affine, np.ndarray]], low: np.ndarray, high: np.ndarray) -> None:
    """Cut a box of index ranges, in place, down to what conditions over several axes can leave of it."""
    for condition, base in conditions:
        axes = sorted(condition.axes())
        most = {}
        for axis in axes:
            step = condition.coefficient(axis)
            most[axis] = np.maximum(step * low[axis], step * np.maximum(high[axis] - 1, low[axis]))
        for axis in axes:
            step = condition.coefficient(axis)
            others = base + sum(most[other] for other in axes if other != axis)
            if step > 0:
                low[axis] = np.maximum(low[axis], np.ceil(-others / step))
            else:
                high[axis] = np.minimum(high[axis], np.floor(others / -step) + 1)


def _spread(trips: int, most: int) -> np.ndarray:
    """Values of a loop, all or evenly spread ones: its first alone may be unlike the others."""
    return np.arange(trips) if trips <= most else np.linspace(0, trips - 1, most).round().astype(int)
