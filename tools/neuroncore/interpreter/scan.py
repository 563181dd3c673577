"""`tensor_tensor_scan`: ``r[t] = (data0[t] op0 r[t-1]) op1 data1[t]``, for many rows at once.

The recurrence runs in time order, one step for all rows, so that it is exactly the sequential one: products that
underflow or overflow do what they do on the hardware. For that, blocks of rows and time steps are turned into time-major
order. Turning four steps at a time, as one element of 16 bytes, costs a third of turning single ones, and leaves the rows
of a step four elements apart, which NumPy takes almost as fast as contiguous ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .functions import BINARY, Array

ROW_BLOCK = 1024
"""Rows in flight: enough to hide the cost of a NumPy call, few enough for the TLB."""

TIME_BLOCK = 128
"""Steps in flight."""

TURNED_ROWS = 128
"""Rows turned by one copy: a patch that stays in a first- or second-level cache."""

GROUP = 4
"""Steps turned as one element."""


def scan(
    data0: Array, data1: Array, initial: Any, op0: str, op1: str, reverse0: bool, reverse1: bool, out: Array
) -> None:
    """Scan along the last axis.

    Args:
        data0: float32, any leading axes.
        data1: of the same shape.
        initial: a number, or an array that broadcasts to the leading axes with a last axis of 1.
        op0: combines data0 with the running value.
        op1: combines that with data1.
        reverse0: swap the sides of op0.
        reverse1: swap the sides of op1.
        out: float32, of the same shape; may be data0 or data1.
    """
    *lead, steps = data0.shape
    first = np.broadcast_to(np.asarray(initial, dtype=np.float32), (*lead, 1)).reshape(-1)
    shape = math.prod(lead), steps
    result = rows_of(out, shape)
    rows = result if result is not None else np.empty(shape, np.float32)
    a, b = (x if (x := rows_of(d, shape)) is not None else d.reshape(shape) for d in (data0, data1))
    stepper = Stepper(op0, op1, reverse0, reverse1)
    for start in range(0, shape[0], ROW_BLOCK):
        block = slice(start, start + ROW_BLOCK)
        stepper.run(a[block], b[block], first[block], rows[block])
    if result is None:
        np.copyto(out, rows.reshape(out.shape))


def rows_of(array: Array, shape: tuple[int, int]) -> Array | None:
    """The array as a matrix of rows, if that is a view."""
    view = array.view()
    try:
        view.shape = shape
    except AttributeError:
        return None
    return view


class Stepper:
    """Runs the recurrence on blocks of rows."""

    def __init__(self, op0: str, op1: str, reverse0: bool, reverse1: bool) -> None:
        """See `scan`."""
        self.f0, self.f1 = BINARY[op0], BINARY[op1]
        self.reverse0, self.reverse1 = reverse0, reverse1

    def run(self, a: Array, b: Array, first: Array, out: Array) -> None:
        """Scan a block of rows; `out` may be `a` or `b`."""
        rows, steps = a.shape
        group = GROUP if steps % GROUP == 0 and all(m.strides[1] == m.itemsize for m in (a, b, out)) else 1
        element = np.dtype(np.complex128) if group == GROUP else np.dtype(np.float32)
        if group == GROUP:
            a, b, out = a.view(element), b.view(element), out.view(element)
        width = min(max(TIME_BLOCK // group, 1), a.shape[1])
        a_turned, b_turned = np.empty((width, rows), element), np.empty((width, rows), element)
        a_steps = [a_turned.view(np.float32)[i, j::group] for i in range(width) for j in range(group)]
        b_steps = [b_turned.view(np.float32)[i, j::group] for i in range(width) for j in range(group)]
        running = first.astype(np.float32)
        for start in range(0, a.shape[1], width):
            n = min(width, a.shape[1] - start)
            for top in range(0, rows, TURNED_ROWS):
                patch = slice(top, top + TURNED_ROWS)
                a_turned[:n, patch] = a[patch, start : start + n].T
                b_turned[:n, patch] = b[patch, start : start + n].T
            running = self._steps(running, a_steps[: n * group], b_steps[: n * group])
            for top in range(0, rows, TURNED_ROWS):
                patch = slice(top, top + TURNED_ROWS)
                out[patch, start : start + n] = a_turned[:n, patch].T

    def _steps(self, running: Array, a: list[Array], b: list[Array]) -> Array:
        """Every step of a block, leaving the results in `a`; returns a copy of the last."""
        f0, f1, reverse0, reverse1 = self.f0, self.f1, self.reverse0, self.reverse1
        for x, y in zip(a, b, strict=True):
            if reverse0:
                f0(running, x, out=x)
            else:
                f0(x, running, out=x)
            if reverse1:
                f1(y, x, out=x)
            else:
                f1(x, y, out=x)
            running = x
        return running.copy()
