"""How a DMA is cut into contiguous pieces.

A DMA descriptor moves one run of bytes that is contiguous on both sides. On the SBUF side a run never leaves its
partition; on the HBM side it ends where the access pattern jumps. Cost is per piece and per byte, so the cut matters:
2 KiB pieces reach 214 GB/s on trn1, 28 KiB pieces 332 GB/s (adamw, matmul, silu, bmm profiles).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir import Access, Affine


def strides(access: Access, partition_dim: int | None) -> list[int]:
    """Address step of every tile axis, in elements, within HBM (``partition_dim=None``) or within one partition."""
    shape = access.tensor.shape
    weight = [0] * len(shape)
    step = 1
    for d in range(len(shape) - 1, -1, -1):
        if d == partition_dim:
            continue
        weight[d] = step
        step *= shape[d]
    steps = [0] * len(access.shape)
    for d, expression in enumerate(access.index):
        if not isinstance(expression, Affine):
            continue
        for symbol, coefficient in expression.terms.items():
            if isinstance(symbol, int):
                steps[symbol] += coefficient * weight[d]
    return steps


def run_length(sides: Sequence[Access], axes: list[int]) -> int:
    """Elements of one run that is contiguous on every side when the given free axes are walked, innermost last.

    Axes in another order on one side than on the other, a transpose, make runs of single elements.
    """
    steps = [strides(a, a.tensor.par_dim if a.tensor.buffer.on_chip else None) for a in sides]
    run = 1
    for axis in sorted(axes, key=lambda a: abs(steps[0][a])):
        extent = sides[0].shape[axis]
        if extent == 1:
            continue
        if any(side[axis] != run for side in steps):
            break
        run *= extent
    return run


def cut(near: Access, far: Access) -> tuple[int, int, int, bool]:
    """Rows, pieces per row, bytes of a piece, and whether pieces are single elements, of a transfer.

    Both sides have the same tile axes, the first being the partition axis; `near` is the side in HBM if one is.
    """
    rows = near.shape[0] if near.shape else 1
    free_axes = list(range(1, len(near.shape)))
    free = math.prod(near.shape[1:])
    sides = [near, far] if len(near.shape) == len(far.shape) else [near]
    run = max(1, min(run_length(sides, free_axes), free))
    pieces = max(1, math.ceil(free / run))
    return rows, pieces, run * near.dtype.itemsize, run == 1 and free > 1
