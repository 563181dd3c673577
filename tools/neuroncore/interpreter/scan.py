"""`tensor_tensor_scan`: ``r[t] = (data0[t] op0 r[t-1]) op1 data1[t]``, for many rows at once.

The recurrence runs in time order, one step for all rows, so that it is exactly the sequential one: products that
underflow or overflow do what they do on the hardware. Rows and time steps are taken in blocks, transposed so that a
step works on contiguous memory that stays in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .functions import BINARY, Array

ROW_BLOCK = 1024
"""Rows in flight: enough to hide the cost of a NumPy call, few enough for one page each in the TLB."""

TIME_BLOCK = 64
"""Steps transposed at once: whole cache lines, and three blocks of rows in a 1 MiB cache."""

TRANSPOSE_ROWS = 64
"""Rows transposed by one copy: a patch that stays in the first-level cache (three times faster than whole columns)."""


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
    steps = data0.shape[-1]
    lead = data0.shape[:-1]
    first = np.broadcast_to(np.asarray(initial, dtype=np.float32), (*lead, 1))[..., 0].reshape(-1)
    a_rows, b_rows = _rows(data0), _rows(data1)
    r_rows = _rows(out)
    in_place = r_rows is not None
    if r_rows is None:
        r_rows = np.empty((int(np.prod(lead)), steps), np.float32)
    if a_rows is None:
        a_rows = data0.reshape(-1, steps)
    if b_rows is None:
        b_rows = data1.reshape(-1, steps)
    for start in range(0, r_rows.shape[0], ROW_BLOCK):
        block = slice(start, start + ROW_BLOCK)
        _scan_rows(a_rows[block], b_rows[block], first[block], op0, op1, reverse0, reverse1, r_rows[block])
    if not in_place:
        np.copyto(out, r_rows.reshape(out.shape))


def _rows(array: Array) -> Array | None:
    """The array as a matrix of rows, if that is a view."""
    shape = (-1, array.shape[-1])
    view = array.view()
    try:
        view.shape = (int(np.prod(array.shape[:-1], dtype=np.int64)), shape[1])
    except AttributeError:
        return None
    return view


def _scan_rows(
    a: Array, b: Array, first: Array, op0: str, op1: str, reverse0: bool, reverse1: bool, out: Array
) -> None:
    f0, f1 = BINARY[op0], BINARY[op1]
    rows, steps = a.shape
    width = min(TIME_BLOCK, steps)
    a_block = np.empty((width, rows), np.float32)
    b_block = np.empty((width, rows), np.float32)
    running = first.astype(np.float32)
    for start in range(0, steps, width):
        n = min(width, steps - start)
        for top in range(0, rows, TRANSPOSE_ROWS):
            bottom = min(top + TRANSPOSE_ROWS, rows)
            np.copyto(a_block[:n, top:bottom], a[top:bottom, start : start + n].T)
            np.copyto(b_block[:n, top:bottom], b[top:bottom, start : start + n].T)
        for x, y in zip(a_block[:n], b_block[:n], strict=True):
            if reverse0:
                f0(running, x, out=x)
            else:
                f0(x, running, out=x)
            if reverse1:
                f1(y, x, out=x)
            else:
                f1(x, y, out=x)
            running = x
        running = running.copy()
        for top in range(0, rows, TRANSPOSE_ROWS):
            bottom = min(top + TRANSPOSE_ROWS, rows)
            np.copyto(out[top:bottom, start : start + n], a_block[:n, top:bottom].T)
