"""Who writes and reads each tensor, and in which loops its values stay private.

A tensor is *private* to a loop when no value crosses the loop's iterations: it is indexed by the loop variable
everywhere in the same way, each iteration apart from the others, or created afresh in the body, or overwritten in each
iteration before it is read. The outermost loops to which it is private form its *scope*; one iteration of the innermost
of them holds one instance of the tensor. Instances are what buffers are allocated for, so everything about capacity and
overlap starts here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from ..ir import Access, Affine, LoopVar, Tensor
from .program import Nest, Op, Program


@dataclasses.dataclass(eq=False, slots=True)
class Use:
    """One access by one op.

    Attributes:
        op: the instruction.
        loops: loops around it, outermost first.
        access: the tile.
        write: whether it writes.
        position: of the op in program order.
    """

    op: Op
    loops: tuple[Nest, ...]
    access: Access
    write: bool
    position: int


@dataclasses.dataclass(eq=False, slots=True)
class Lifetime:
    """A tensor's uses and scope.

    Attributes:
        tensor: the tensor.
        uses: in program order; within an op reads come before writes.
        scope: loops that it is private to, outermost first.
        footprint: what `footprint_bytes` found, -1 before it is asked.
    """

    tensor: Tensor
    uses: list[Use]
    scope: tuple[Nest, ...]
    footprint: int = -1

    @property
    def writers(self) -> list[Use]:
        """Uses that write."""
        return [u for u in self.uses if u.write]

    @property
    def readers(self) -> list[Use]:
        """Uses that read."""
        return [u for u in self.uses if not u.write]

    def inner_loops(self, use: Use) -> tuple[Nest, ...]:
        """Loops around a use inside the scope."""
        return use.loops[len(self.scope) :]

    def footprint_bytes(self) -> int:
        """Bytes per partition of one instance."""
        if self.footprint < 0:
            # Uses of other parts, as unrolled loops have, add up; they cannot touch more than what lies between.
            parts = {u.access.index: touched_bytes(u.access, self.inner_loops(u)) for u in self.uses}
            self.footprint = min(sum(parts.values()), self._spanned_bytes())
        return self.footprint

    def _spanned_bytes(self) -> int:
        """Bytes per partition from the first to the last element along every dimension that one instance touches."""
        size = self.tensor.dtype.itemsize
        outside: dict[LoopVar | int, Affine | int] = {nest.var: 0 for nest in self.scope}
        for d, extent in enumerate(self.tensor.shape):
            if d == self.tensor.par_dim:
                continue
            low: list[int] = []
            high: list[int] = []
            for use in self.uses:
                expression = use.access.index[d]
                if not isinstance(expression, Affine):
                    low, high = [0], [extent - 1]
                    break
                shape = use.access.shape
                first, last = expression.substitute(outside).bounds(
                    lambda s, shape=shape: shape[s] if isinstance(s, int) else s.trips  # type: ignore[misc]
                )
                low.append(first)
                high.append(last)
            size *= max(1, min(extent, max(high) - min(low) + 1))
        return size


def lifetimes(program: Program) -> dict[Tensor, Lifetime]:
    """Every on-chip tensor of a program, in order of first mention."""
    uses: dict[Tensor, list[Use]] = {}
    for position, (op, loops) in enumerate(program.walk()):
        for access in op.tiles_read():
            if access.tensor.buffer.on_chip:
                uses.setdefault(access.tensor, []).append(Use(op, loops, access, False, position))
        for access in op.writes:
            if access.tensor.buffer.on_chip:
                uses.setdefault(access.tensor, []).append(Use(op, loops, access, True, position))
    return {
        tensor: Lifetime(tensor, found, _scope(tensor, found, program.merged))
        for tensor, found in uses.items()
    }


def _scope(tensor: Tensor, uses: list[Use], merged: Mapping[LoopVar, LoopVar]) -> tuple[Nest, ...]:
    common = uses[0].loops
    for use in uses[1:]:
        common = tuple(a for a, b in zip(common, use.loops, strict=False) if a is b)
    born = tensor.scope.var if tensor.scope is not None else None
    while born is not None and born in merged:
        born = merged[born]
    fresh_depth = next((k + 1 for k, nest in enumerate(common) if nest.var is born), 0)
    scope: list[Nest] = []
    for depth, nest in enumerate(common):
        var = nest.var
        hoisted = [var in u.op.once for u in uses]
        if all(hoisted):
            scope.append(nest)
            continue
        if any(h for h, u in zip(hoisted, uses, strict=True) if u.write):
            break
        if depth >= fresh_depth:
            patterns = {_coefficients(u.access, var) for u in uses}
            if len(patterns) > 1:
                break
            if any(patterns.pop()):
                moving = {inner.var for u in uses for inner in u.loops[depth + 1 :]}
                if not disjoint([u.access for u in uses], {var}, moving):
                    break
            elif not _overwritten(uses, depth, var):
                break
        scope.append(nest)
    return tuple(scope)


def disjoint(accesses: Sequence[Access], loops: Collection[LoopVar], moving: Collection[LoopVar]) -> bool:
    """Whether what accesses touch in one iteration of a loop is touched in no other: ``t[i]`` beside ``t[i + 1]`` is.

    Along some dimension, all of them together must stay within the step by which the loop moves.

    Args:
        accesses: to one tensor, with the same coefficients of the loop.
        loops: the loop, or two that are to become one.
        moving: loops that run within an iteration; all others stand still.
    """
    for expressions in zip(*(a.index for a in accesses), strict=True):
        step, low, high, still = 0, [], [], []
        for access, expression in zip(accesses, expressions, strict=True):
            if not isinstance(expression, Affine):
                break
            first = last = expression.const
            rest: dict[LoopVar, int] = {}
            for symbol, coefficient in expression.terms.items():
                if isinstance(symbol, int) or symbol in moving:
                    extent = access.shape[symbol] if isinstance(symbol, int) else symbol.trips
                    span = coefficient * (extent - 1)
                    first, last = first + min(span, 0), last + max(span, 0)
                elif symbol in loops:
                    step = abs(coefficient)
                else:
                    rest[symbol] = coefficient
            low.append(first)
            high.append(last)
            still.append(rest)
        else:
            if max(high) - min(low) < step and all(rest == still[0] for rest in still):
                return True
    return False


def _overwritten(uses: list[Use], depth: int, var: LoopVar) -> bool:
    """Whether every iteration of a loop writes as much of a tensor as it reads, before it reads it.

    What a mask leaves to the first iteration is not written in the others, whose value is then that of the one before.
    """
    written = 0
    for use in uses:
        nbytes = touched_bytes(use.access, use.loops[depth + 1 :])
        if not use.write:
            if nbytes > written:
                return False
        elif not use.op.accumulates and all(m.coefficient(var) == 0 for m in use.op.mask):
            written += nbytes
    return True


def _coefficients(access: Access, var: LoopVar) -> tuple[int, ...]:
    return tuple(e.coefficient(var) if isinstance(e, Affine) else 0 for e in access.index)


def touched_bytes(access: Access, loops: tuple[Nest, ...]) -> int:
    """Bytes per partition that an access covers while the given loops run and everything outside them stands still."""
    tensor = access.tensor
    trips: dict[LoopVar | int, int] = {nest.var: nest.trips for nest in loops}
    size = 1
    for d, expression in enumerate(access.index):
        if d == tensor.par_dim:
            continue
        if not isinstance(expression, Affine):
            size *= tensor.shape[d]
            continue
        size *= _distinct(expression, access.shape, trips, tensor.shape[d])
    return size * tensor.dtype.itemsize


def _distinct(expression: Affine, shape: tuple[int, ...], trips: dict[LoopVar | int, int], limit: int) -> int:
    """How many different values an index takes over the loops that run and the tile's axes."""
    steps: list[tuple[int, int]] = []
    for symbol, coefficient in expression.terms.items():
        extent = shape[symbol] if isinstance(symbol, int) else trips.get(symbol, 1)
        if extent > 1:
            steps.append((abs(coefficient), extent))
    product = math.prod(extent for _, extent in steps)
    span = 1 + sum(c * (n - 1) for c, n in steps)
    return max(1, min(product, span, limit))
