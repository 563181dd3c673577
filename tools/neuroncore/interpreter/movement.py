"""Copies between different orders of dimensions, in patches that stay in cache."""

from __future__ import annotations

import numpy as np

from .functions import Array

PATCH = 64
"""Side of a patch, in elements: 64 x 64 floats are half of a first-level cache."""

WORTHWHILE = 1 << 14
"""Elements below which one plain copy is as good."""


def copy(dst: Array, src: Array) -> None:
    """``dst[...] = src`` for arrays of the same shape and type class.

    NumPy walks the destination's order, which is several times slower than memory allows when the source is contiguous
    along another dimension (a transpose). Patches over both directions keep each cache line while it is used.
    """
    inner = _unit_axis(src)
    outer = _unit_axis(dst)
    if inner is None or outer is None or inner == outer or dst.size < WORTHWHILE:
        np.copyto(dst, src, casting="unsafe")
        return
    n, m = dst.shape[outer], dst.shape[inner]
    if n * m < WORTHWHILE or min(n, m) < 8:
        np.copyto(dst, src, casting="unsafe")
        return
    flat_dst, flat_src = np.moveaxis(dst, (inner, outer), (0, 1)), np.moveaxis(src, (inner, outer), (0, 1))
    for row in range(0, m, PATCH):
        rows = slice(row, row + PATCH)
        for column in range(0, n, PATCH):
            columns = slice(column, column + PATCH)
            np.copyto(flat_dst[rows, columns], flat_src[rows, columns], casting="unsafe")


def _unit_axis(array: Array) -> int | None:
    """The longest dimension along which the array is contiguous."""
    best = None
    for k, (n, s) in enumerate(zip(array.shape, array.strides, strict=True)):
        if n > 1 and s == array.itemsize and (best is None or n > array.shape[best]):
            best = k
    return best
