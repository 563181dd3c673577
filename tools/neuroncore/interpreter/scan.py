"""`tensor_tensor_scan`: ``r[t] = (data0[t] op0 r[t-1]) op1 data1[t]``, for many rows at once.

The usual scan, a product and a sum, is taken in groups of four steps: four maps ``r -> a·r + b`` compose to one, so a scan
of a quarter of the steps gives every fourth result, and the others follow from those, all on whole arrays. Products of
neighbours that underflow are as good as what they stand for; should one overflow, and for all other operations, the
recurrence runs step by step.

Steps are taken for all rows at once. For that, blocks of rows and time steps are turned into time-major order. Turning
four steps at a time, as one element of 16 bytes, costs a third of turning single ones, and leaves the rows of a step four
elements apart, which NumPy takes almost as fast as contiguous ones.
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
"""Steps turned as one element, and steps composed to one."""

COMPOSED_STEPS = 64
"""Shortest scan that is worth composing."""

COMPOSED_ROWS = 32
"""Rows composed at a time: their operands stay in a second-level cache."""


def scan(
    data0: Array, data1: Array, initial: Any, op0: str, op1: str, reverse0: bool, reverse1: bool, out: Array
) -> None:
    """Scan along the last axis.

    A product and a sum are associated in groups, which differs from the sequence by rounding only.

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
    if (op0, op1) != ("multiply", "add") or not _scan_composed(a, b, first, rows, stepper):
        stepper.run(a, b, first, rows)
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


def _scan_composed(a: Array, b: Array, first: Array, out: Array, stepper: Stepper) -> bool:
    """Scan ``a·r + b`` by composing groups of steps; False, with nothing written, if that overflows or does not pay.

    `out` may be `a` or `b`.
    """
    rows, steps = a.shape
    whole = steps - steps % GROUP
    if steps < COMPOSED_STEPS or any(m.strides[1] != m.itemsize for m in (a, b, out)):
        return False
    groups = whole // GROUP
    factor, summand = np.empty((rows, groups), np.float32), np.empty((rows, groups), np.float32)
    for start in range(0, rows, COMPOSED_ROWS):
        block = slice(start, start + COMPOSED_ROWS)
        a_steps, b_steps = _by_step(a[block, :whole]), _by_step(b[block, :whole])
        f, s = factor[block], summand[block]
        np.multiply(a_steps[0], a_steps[1], out=f)
        np.multiply(b_steps[0], a_steps[1], out=s)
        np.add(s, b_steps[1], out=s)
        for x, y in zip(a_steps[2:], b_steps[2:], strict=True):
            np.multiply(f, x, out=f)
            np.multiply(s, x, out=s)
            np.add(s, y, out=s)
    if not (np.isfinite(factor).all() and np.isfinite(summand).all()):
        return False
    last = factor
    if not _scan_composed(factor, summand, first, last, stepper):
        stepper.run(factor, summand, first, last)
    running = np.empty((min(COMPOSED_ROWS, rows), groups), np.float32)
    for start in range(0, rows, COMPOSED_ROWS):
        block = slice(start, start + COMPOSED_ROWS)
        a_steps, b_steps, r_steps = (_by_step(m[block, :whole]) for m in (a, b, out))
        r = running[: len(last[block])]
        r[:, 0] = first[block]
        r[:, 1:] = last[block, :-1]
        for k in range(GROUP - 1):
            np.multiply(a_steps[k], r, out=r)
            np.add(r, b_steps[k], out=r)
            r_steps[k][...] = r
        r_steps[GROUP - 1][...] = last[block]
    if whole < steps:
        stepper.run(a[:, whole:], b[:, whole:], last[:, -1], out[:, whole:])
    return True


def _by_step(m: Array) -> list[Array]:
    """The first, second, ... step of every group: views of rows x groups."""
    grouped = m.reshape(m.shape[0], -1, GROUP)
    return [grouped[..., k] for k in range(GROUP)]


class Stepper:
    """Runs the recurrence step by step."""

    def __init__(self, op0: str, op1: str, reverse0: bool, reverse1: bool) -> None:
        """See `scan`."""
        self.f0, self.f1 = BINARY[op0], BINARY[op1]
        self.reverse0, self.reverse1 = reverse0, reverse1

    def run(self, a: Array, b: Array, first: Array, out: Array) -> None:
        """Scan rows of float32; `out` may be `a` or `b`."""
        for start in range(0, a.shape[0], ROW_BLOCK):
            block = slice(start, start + ROW_BLOCK)
            self._run_block(a[block], b[block], first[block], out[block])

    def _run_block(self, a: Array, b: Array, first: Array, out: Array) -> None:
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
