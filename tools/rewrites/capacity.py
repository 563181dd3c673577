"""How much SBUF and PSUM a kernel needs, estimated from the live ranges of its tensors."""

from __future__ import annotations

from collections.abc import Callable

from ..neuroncore.ir import Buffer, Kernel, Loop, LoopVar, Tensor, TensorKind
from ..neuroncore.machine import Machine
from .dependence import conflicts, may_overlap
from .structure import Use, instrs_in, uses


def psum_banks(kernel: Kernel, machine: Machine) -> int:
    """The most banks of PSUM that are live at once, one tile to a bank."""
    bank = int(machine.psum_bank_bytes)
    return _peak(kernel, Buffer.PSUM, lambda tensor: -(-tensor.free_bytes_per_partition // bank))


def sbuf_bytes_per_partition(kernel: Kernel) -> int:
    """The most bytes per partition that are live at once, one copy of each tensor counted.

    A tensor declared outside of a loop but used by each iteration for itself counts once per iteration, as the compiler
    allocates it.
    """
    return _peak(kernel, Buffer.SBUF, lambda tensor: tensor.free_bytes_per_partition)


def _peak(kernel: Kernel, buffer: Buffer, size_of: Callable[[Tensor], int]) -> int:
    """The largest sum of the sizes of live blocks over the program."""
    spans: dict[Loop, tuple[int, int]] = {}
    for position, (_, loops) in enumerate(instrs_in(kernel.body)):
        for loop in loops:
            first, _ = spans.get(loop, (position, position))
            spans[loop] = (first, position)
    events: dict[int, int] = {}
    for tensor, found in uses(kernel.body).items():
        if tensor.buffer is not buffer or tensor.kind is not TensorKind.LOCAL:
            continue
        home = private_loops(tensor, found)
        positions = [use.order for use in found]
        first, last = min(positions), max(positions)
        for use in found:
            inside = use.loops[len(home) :]
            if inside:
                low, high = spans[inside[0]]
                first, last = min(first, low), max(last, high)
        size = resident_blocks(tensor, found, home) * size_of(tensor)
        events[first] = events.get(first, 0) + size
        events[last + 1] = events.get(last + 1, 0) - size
    live = peak = 0
    for position in sorted(events):
        live += events[position]
        peak = max(peak, live)
    return peak


def private_loops(tensor: Tensor, found: list[Use]) -> tuple[Loop, ...]:
    """The loops, outermost first, of which each iteration has the tensor (or its part of it) for itself."""
    common = list(found[0].loops)
    for use in found[1:]:
        n = 0
        while n < min(len(common), len(use.loops)) and common[n] is use.loops[n]:
            n += 1
        del common[n:]
    scope_depth = 0
    if tensor.scope is not None and tensor.scope in common:
        scope_depth = common.index(tensor.scope) + 1
    depth = scope_depth
    while depth < len(common) and _separate(common[depth], [each.var for each in common[:depth]], found):
        depth += 1
    return tuple(common[:depth])


def _separate(loop: Loop, shared: list[LoopVar], found: list[Use]) -> bool:
    """Whether different iterations of a loop touch different elements through these accesses."""
    n = loop.trips - 1
    if n < 1:
        return True
    for i, a in enumerate(found):
        for b in found[i:]:
            if not conflicts(a, b):
                continue
            for low, high in ((1, n), (-n, -1)):
                if may_overlap(a.access, b.access, shared, (loop.var, loop.var, low, high)):
                    return False
    return True


def resident_blocks(tensor: Tensor, found: list[Use], home: tuple[Loop, ...]) -> int:
    """How many of a tensor's blocks one iteration of the loops in `home` touches."""
    fixed = {each.var for each in home}
    count = 1
    for dim, extent in enumerate(tensor.block_shape):
        if any(use.access.is_indirect or use.access.tensor is not tensor for use in found):
            count *= extent
            continue
        lows, highs = [], []
        for use in found:
            e = use.access.affine[dim].substitute({v: 0 for v in fixed})
            low, high = e.bounds(lambda s, a=use.access: a.shape[s] if isinstance(s, int) else s.trips)  # type: ignore[misc]
            lows.append(low)
            highs.append(high)
        count *= max(1, min(extent, max(highs) - min(lows) + 1))
    return count
