"""Input distributions beyond the benchmark's own, under which a kernel must still be right.

A kernel that leans on inputs being N(0, 1) (a row maximum taken over the first tile only, a softmax without
its maximum, a result that happens to be nearly constant) passes any number of seeds of the same distribution.
Each regime is a change of the arrays that a reference draws; a problem's `regimes` name those that its
mathematics can stand in fp32.
"""

import itertools
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

_SCALE_DECADES = 2.0
_OFFSET = 100.0
_LATE_MAXIMUM = 8.0
_SCATTERED = 12.0
_STRETCH = 512
_SMALL = 0.01
_UNEVEN = (0.01, 1.0, 100.0)
_DECAYING = (20.0, 20.0, -20.0)


class Regime(StrEnum):
    """How the drawn inputs are changed. The last axis is the one called a row."""

    normal = "normal"
    """As the reference draws them."""
    wide_scale = "wide_scale"
    """Every row multiplied by its own power of ten between 1e-2 and 1e2."""
    large_offset = "large_offset"
    """100 spreads added to every element, so that sums do not cancel and one-pass variances do."""
    late_maximum = "late_maximum"
    """The last element of every row, and the last slice of the longest axis, raised far above all others."""
    sorted = "sorted"
    """Every row in ascending order, so that tiles of it have different statistics."""
    one_hot = "one_hot"
    """Every row zero but for one element, at a different place from row to row."""
    constant = "constant"
    """Every element of an array the same."""
    zeros = "zeros"
    """Nothing but zeros."""
    scattered = "scattered"
    """In every stretch of 512 along the longest axis, one slice at a random place is many times as large, so that no
    part of it tells where the largest sums are."""
    small = "small"
    """Everything divided by 100, so that an epsilon is no longer small against it."""
    uneven = "uneven"
    """Arrays divided by 100, left and multiplied by 100 in turn, so that a term that is small beside others is not."""
    decaying = "decaying"
    """Arrays positive, positive and negative in turn, and 20 times as large, so that exponents of factors of a recurrence
    are far from zero, and the recurrence dies away."""


_SCALES = {Regime.small: (_SMALL,), Regime.uneven: _UNEVEN, Regime.decaying: _DECAYING}
"""Factors of successive arrays, from the first one again after the last."""


def change(inputs: Sequence[object], regime: Regime | str, seed: int) -> list[object]:
    """Copies of `inputs` (what `get_inputs` returned) changed as `regime` says; scalars stay as they are.

    Arrays keep shape and dtype, and an array that was nowhere negative stays so (a second moment, say).
    Magnitudes are relative to the spread of the array as drawn. `seed` decides what is random about the
    regime.
    """
    regime = Regime(regime)
    rng = np.random.default_rng([seed, list(Regime).index(regime)])
    scales = itertools.cycle(_SCALES.get(regime, (1.0,)))
    return [
        _changed(value, regime, rng, next(scales)) if isinstance(value, np.ndarray) else value
        for value in inputs
    ]


def _changed(array: np.ndarray, regime: Regime, rng: np.random.Generator, scale: float) -> np.ndarray:
    if regime is Regime.normal or array.size == 0 or not np.issubdtype(array.dtype, np.floating):
        return array.copy()
    if regime in (Regime.small, Regime.uneven):
        return array * array.dtype.type(scale)
    if regime is Regime.decaying:
        signed = scale if array.min() < 0 else abs(scale)
        return np.abs(array) * array.dtype.type(signed)
    spread = float(np.std(array)) or 1.0
    result = _distorted(array, regime, spread, rng)
    if array.min() >= 0:
        np.abs(result, out=result)
    return result.astype(array.dtype, copy=False)


def _distorted(array: np.ndarray, regime: Regime, spread: float, rng: np.random.Generator) -> np.ndarray:
    match regime:
        case Regime.wide_scale:
            exponents = rng.uniform(-_SCALE_DECADES, _SCALE_DECADES, size=(*array.shape[:-1], 1))
            return array * (10.0**exponents).astype(array.dtype)
        case Regime.large_offset:
            return array + array.dtype.type(_OFFSET * spread)
        case Regime.late_maximum:
            result = array.copy()
            for axis in {_longest(array), array.ndim - 1}:
                last = np.moveaxis(result, axis, -1)[..., -1]
                np.maximum(last, _LATE_MAXIMUM * spread + np.abs(last), out=last)
            return result
        case Regime.sorted:
            return np.sort(array, axis=-1)
        case Regime.one_hot:
            result = np.zeros_like(array)
            rows = result.reshape(-1, array.shape[-1])
            hot = (rng.integers(array.shape[-1]) + np.arange(len(rows))) % array.shape[-1]
            rows[np.arange(len(rows)), hot] = spread * rng.uniform(1.0, 2.0, size=len(rows))
            return result
        case Regime.constant:
            return np.full_like(array, spread * rng.uniform(0.5, 1.5))
        case Regime.scattered:
            result = array.copy()
            slices = np.moveaxis(result, _longest(array), 0)
            stretch = min(_STRETCH, max(1, len(slices) // 2))
            starts = np.arange(0, len(slices), stretch)
            slices[np.minimum(starts + rng.integers(stretch, size=len(starts)), len(slices) - 1)] *= (
                _SCATTERED
            )
            return result
        case _:
            return np.zeros_like(array)


def _longest(array: np.ndarray) -> int:
    """The longest axis, the last of those."""
    return max(range(array.ndim), key=lambda axis: (array.shape[axis], axis))
