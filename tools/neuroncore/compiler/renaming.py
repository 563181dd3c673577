"""A tile that is filled anew where its last value is no longer needed is another tile.

Kernels that Python unrolled (``nl.static_range``, ``range``, a helper called several times) name one buffer and fill it
again and again. The compiler allocates values, not names: every filling that nothing of the one before survives gets
memory of its own, as in a loop every iteration does. Evidence: AWS's adaptive pooling sample loads 49 windows one after
the other into one buffer and takes 1.1 us for each, which is less than the latency of the load alone.
"""

from __future__ import annotations

from ..ir import Access, Affine, Buffer, LoopVar, Tensor
from ..machine import Machine
from .liveness import Lifetime, Use, lifetimes
from .program import Nest, Program
from .rewriting import map_accesses

_MOST_COPIES = 16
"""As many as of a tile in the fastest of loops."""
_SHARE = 4
"""All copies together take at most this fraction of SBUF."""


def rename_refilled(program: Program, machine: Machine) -> None:
    """Give successive fillings of one tile, in straight-line code, tiles of their own, as far as there is room."""
    room = float(machine.sbuf_usable_bytes) / _SHARE
    for life in lifetimes(program).values():
        copies = min(_MOST_COPIES, int(room // max(1, life.tensor.free_bytes_per_partition)))
        if life.tensor.buffer is not Buffer.SBUF or copies < 2:
            continue
        starts = _fillings(life)
        tiles = [life.tensor, *(_copy(life.tensor, k) for k in range(1, min(copies, len(starts))))]
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(life.uses)], strict=True)):
            if number % len(tiles):
                _rename(life.uses[start:end], life.tensor, tiles[number % len(tiles)])


Box = tuple[tuple[tuple[tuple[LoopVar, int], ...], int, int], ...]
"""Of every dimension: the terms of outer loops, the smallest and the largest index beside them."""


def _fillings(life: Lifetime) -> list[int]:
    """The uses from which on, in the body that holds them all, nothing is used but what the first of them wrote."""
    common = life.uses[0].loops
    for use in life.uses:
        common = tuple(a for a, b in zip(common, use.loops, strict=False) if a is b)
    depth = len(common)
    nodes = [use.loops[depth] if len(use.loops) > depth else use.op for use in life.uses]
    firsts = [k for k in range(len(nodes)) if k == 0 or nodes[k] is not nodes[k - 1]]
    if len(firsts) < 2:
        return [0]
    boxes = [_box(use.access, use.loops[depth:]) for use in life.uses]
    starts: list[int] = []
    end = len(nodes)
    for k in reversed(firsts):
        filled = boxes[k] if life.uses[k].write and _fills(life.uses[k]) else None
        whole = filled is not None and all(_within(boxes[m], filled) for m in range(k, end))
        if k == 0 and depth and not whole:
            # What a loop's iteration begins with may come from the one before.
            return [0]
        if k == 0 or whole:
            starts.append(k)
            end = k
    return starts[::-1]


def _fills(use: Use) -> bool:
    """Whether a write happens whole, every time."""
    op = use.op
    if op.accumulates or op.once or op.after_first or op.last_of or op.share < 1.0:
        return False
    shape = op.mask_shape
    return all(m.bounds(lambda s: shape[s] if isinstance(s, int) else s.trips)[0] >= 0 for m in op.mask)


def _box(access: Access, loops: tuple[Nest, ...]) -> Box | None:
    """What an access covers while the loops run; None where that has gaps or is not known before the kernel runs."""
    inner = {nest.var: nest.trips for nest in loops}
    box = []
    for expression in access.index:
        if not isinstance(expression, Affine):
            return None
        low = high = expression.const
        outer, count = [], 1
        for symbol, coefficient in expression.terms.items():
            if not isinstance(symbol, int) and symbol not in inner:
                outer.append((symbol, coefficient))
                continue
            extent = access.shape[symbol] if isinstance(symbol, int) else inner[symbol]
            span = coefficient * (extent - 1)
            low, high = low + min(span, 0), high + max(span, 0)
            count *= extent
        if count < high - low + 1:
            return None
        box.append((tuple(sorted(outer, key=lambda term: term[0].name)), low, high))
    return tuple(box)


def _within(inner: Box | None, outer: Box) -> bool:
    if inner is None:
        return False
    return all(a[0] == b[0] and b[1] <= a[1] and a[2] <= b[2] for a, b in zip(inner, outer, strict=True))


def _copy(tensor: Tensor, number: int) -> Tensor:
    return Tensor(
        f"{tensor.name}.{number}", tensor.shape, tensor.dtype, tensor.buffer, par_dim=tensor.par_dim,
        kind=tensor.kind, scope=tensor.scope, declared=tensor.declared, line=tensor.line,
    )  # fmt: skip


def _rename(uses: list[Use], tensor: Tensor, to: Tensor) -> None:
    for use in uses:
        map_accesses(use.op, lambda a: Access(to, a.index, a.shape) if a.tensor is tensor else a)
