"""What a kernel reads of its inputs, by its own accesses: rows that it picks at run time or leaves out are not in it."""

from __future__ import annotations

import math

from .ir import Access, Affine, Indirect, Kernel, Loop, LoopVar, Tensor


def read_bytes(kernel: Kernel) -> list[int]:
    """For every input, the bytes of the part that a kernel reads, in the order of its parameters.

    The part is the box, steps regarded, around all that its accesses reach, whatever their masks. Along a dimension whose
    positions are read at run time it is one position: they may all be the same.
    """
    reached: dict[Tensor, list[tuple[Access, tuple[Loop, ...]]]] = {}
    for instr, loops in kernel.walk():
        for access in instr.reads():
            reached.setdefault(access.tensor.storage, []).append((access, loops))
    return [_box(reached.get(tensor, [])) * tensor.dtype.itemsize for tensor in kernel.params]


def _box(reads: list[tuple[Access, tuple[Loop, ...]]]) -> int:
    """Elements of a tensor within the box around its reads."""
    if not reads:
        return 0
    if len({access.tensor for access, _ in reads}) > 1:
        # Through reshapes of it: the boxes of different shapes do not compare, and one of them alone is enough.
        views = {access.tensor for access, _ in reads}
        return max(_box([r for r in reads if r[0].tensor is view]) for view in views)
    shape = reads[0][0].tensor.shape
    return math.prod(_positions([(a, a.index[dim], ls) for a, ls in reads], n) for dim, n in enumerate(shape))


def _positions(indices: list[tuple[Access, Affine | Indirect, tuple[Loop, ...]]], extent: int) -> int:
    """Positions along one dimension, from the first to the last in steps of what all of them have in common."""
    ranges = []
    step = 0
    for access, e, loops in indices:
        if isinstance(e, Indirect):
            continue
        trips = {loop.var: loop.trips for loop in loops}

        def extent_of(
            s: LoopVar | int, shape: tuple[int, ...] = access.shape, trips: dict[LoopVar, int] = trips
        ) -> int:
            return shape[s] if isinstance(s, int) else trips.get(s, 1)

        low, high = e.bounds(extent_of)
        ranges.append((max(0, low), min(extent - 1, high)))
        step = math.gcd(step, e.const - ranges[0][0], *(c for s, c in e.terms.items() if extent_of(s) > 1))
    if not ranges:
        return 1
    first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
    return max(1, (last - first) // step + 1 if step else 1)
