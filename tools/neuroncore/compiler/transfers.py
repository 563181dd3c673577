"""How a DMA is cut into contiguous pieces.

A DMA descriptor moves one run of bytes that is contiguous on both sides. On the SBUF side a run never leaves its
partition; on the HBM side it ends where the access pattern jumps. Cost is per piece and per byte, so the cut matters:
2 KiB pieces reach 214 GB/s on trn1, 28 KiB pieces 332 GB/s (adamw, matmul, silu, bmm profiles).
"""

from __future__ import annotations

import math

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


def run_length(access: Access, axes: list[int]) -> int:
    """Elements of one contiguous run when the given free axes are walked, innermost last."""
    on_chip = access.tensor.buffer.on_chip
    steps = strides(access, access.tensor.par_dim if on_chip else None)
    run = 1
    for axis in sorted(axes, key=lambda a: abs(steps[a])):
        extent = access.shape[axis]
        if extent == 1:
            continue
        if steps[axis] != run:
            break
        run *= extent
    return run


def cut(hbm: Access, chip: Access | None) -> tuple[int, int, int, bool]:
    """Rows, pieces per row, bytes of a piece, and whether pieces are single elements, of a transfer.

    Both accesses have the same tile axes, the first being the partition axis; ``chip=None`` for HBM to HBM.
    """
    rows = hbm.shape[0] if hbm.shape else 1
    free_axes = list(range(1, len(hbm.shape)))
    free = math.prod(hbm.shape[1:])
    itemsize = hbm.dtype.itemsize
    run = min(run_length(hbm, free_axes), free)
    if chip is not None and len(chip.shape) == len(hbm.shape):
        run = min(run, max(1, run_length(chip, free_axes)))
    if chip is None:
        # HBM to HBM: rows may join into longer runs; the queue cuts them at 64 KiB at the latest.
        run = max(run, 1)
    run = max(1, run)
    pieces = max(1, math.ceil(free / run))
    return rows, pieces, run * itemsize, run == 1 and free > 1
