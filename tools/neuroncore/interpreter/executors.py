"""From a statement to a function that computes it for the current pieces.

Float32 element-wise statements, moves, reductions, matmuls and scans run straight on views of memory. Everything else
(other element types, masks that cut through tiles, index tiles, rare operations) goes through arrays of its operands
and `semantics.evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import BrokenClaimError, RuntimeAccessError
from ..ir import REDUCED_OPERAND, Affine, LoopVar
from . import gemm
from .binding import Binder, Dim, OutOfBounds, Position, Scope, Window, piece_steps, values_of
from .functions import REDUCTIONS, Array, converted
from .movement import copy
from .overlap import Linear
from .placement import Ref, RuntimeIndex, Statement
from .scan import scan
from .schedule import Run
from .semantics import (
    MATMULS,
    Call,
    Chain,
    chain_of,
    evaluate,
    free_axes,
    reads_destination,
)

Executor = Callable[[Position], None]
F32 = np.dtype(np.float32)


def build(run: Run, scope: Scope, binder: Binder, rng: np.random.Generator) -> Executor:
    """The function that computes a run.

    Args:
        run: a statement and the loops in flight.
        scope: loops over pieces around it.
        binder: makes windows on memory.
        rng: random numbers for the operations that need them.

    Raises:
        RuntimeAccessError: if an access leaves its tensor.
    """
    statement = run.statement
    try:
        for make in (_fill, _matmul, _combined, _element_wise, _reduction, _scan):
            executor = make(run, scope, binder)
            if executor is not None:
                return executor
    except OutOfBounds:
        if not statement.mask:
            raise
    return _General(run, scope, binder, rng).execute


def is_plain(statement: Statement) -> bool:
    """Whether every access is affine and every element is computed."""
    refs = [*statement.dsts, *(v for v in statement.args.values() if isinstance(v, Ref))]
    return not statement.mask and not any(r.runtime for r in refs)


def _is_f32(statement: Statement) -> bool:
    refs = [*statement.dsts, *(v for v in statement.args.values() if isinstance(v, Ref))]
    return all(r.dtype == F32 for r in refs)


def first_piece(statement: Statement, scope: Scope) -> Callable[[Position], bool] | None:
    """Tells whether the current pieces hold the first iteration of all loops that a reduction starts with.

    None if they never do.
    """
    reset = statement.attrs["reset"]
    if reset is None or any(v in scope.levels and scope.levels[v].start for v in reset):
        return None
    slots = [scope.levels[v].slot for v in reset if v in scope.levels and scope.levels[v].count > 1]
    return lambda position: not any(position[s] for s in slots)


# -- constants and matrices ----------------------------------------------------------------------------------------------
def _fill(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    statement = run.statement
    if statement.op != "fill" or not is_plain(statement) or "combine" in statement.attrs:
        return None
    dst = statement.dsts[0]
    target = binder.window(dst, scope, binder.dims(dst, scope, run.loops))
    value = converted(np.asarray(statement.attrs["value"], np.float64), dst.dtype)

    def execute(position: Position) -> None:
        target.at(position)[...] = value

    return execute


def _matmul(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    statement = run.statement
    if statement.op not in MATMULS or not is_plain(statement) or statement.attrs.get("perf_mode"):
        return None
    if statement.attrs.get("claims"):
        return None
    if any(r.dtype.kind in "iu" for r in (*statement.args.values(), *statement.dsts) if isinstance(r, Ref)):
        return None
    combines = "combine" in statement.attrs
    first = first_piece(statement, scope) if combines else None
    return gemm.build(run, scope, binder, first, combines)


# -- element-wise --------------------------------------------------------------------------------------------------------
def tile_strides(ref: Ref, target: tuple[int, ...]) -> list[int] | None:
    """Strides of an operand along the axes of a tile of shape `target`, 0 where it repeats itself.

    None if its axes do not correspond.
    """
    axes = ref.map.axes
    if len(axes) == len(target):
        if any(n not in (1, m) for (_, n), m in zip(axes, target, strict=True)):
            return None
        return [s if n > 1 else 0 for s, n in axes]
    if math.prod(n for _, n in axes[1:]) == 1:
        return [axes[0][0] if axes[0][1] > 1 else 0, *(0,) * (len(target) - 1)]
    kept = [(s, n) for s, n in axes if n > 1]
    wanted = [m for m in target if m > 1]
    if [n for _, n in kept] == wanted:
        strides = iter(kept)
        return [next(strides)[0] if m > 1 else 0 for m in target]
    return None


def joint_dims(shape: list[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Dimensions of an element-wise loop, outermost first by the first operand's strides, joined where all allow it.

    Args:
        shape: extents.
        strides: for each operand, one per dimension.

    Returns:
        the same for the joined dimensions.
    """
    order = [k for k, n in enumerate(shape) if n > 1]
    order.sort(key=lambda k: tuple(abs(s[k]) for s in strides), reverse=True)
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for k in order:
        if extents and all(step[-1] == shape[k] * s[k] for step, s in zip(steps, strides, strict=True)):
            extents[-1] *= shape[k]
            for step, s in zip(steps, strides, strict=True):
                step[-1] = s[k]
            continue
        extents.append(shape[k])
        for step, s in zip(steps, strides, strict=True):
            step.append(s[k])
    return extents, steps


def _joint_windows(
    run: Run, scope: Scope, binder: Binder, refs: list[Ref], extra: tuple[int, ...] = ()
) -> list[Window] | None:
    """Windows of the same shape on the destination (first) and the operands of an element-wise statement."""
    target = refs[0].shape
    shape = [*(scope.extent(v) for v in run.loops), *target]
    strides: list[list[int]] = []
    for ref in refs:
        tile = tile_strides(ref, target)
        if tile is None:
            return None
        strides.append([*(binder.stride(ref, v) for v in run.loops), *tile])
    extents, steps = joint_dims(shape, strides)
    return [
        binder.window(ref, scope, list(zip(extents, step, strict=True)))
        for ref, step in zip(refs, steps, strict=True)
    ]


def element_chain(statement: Statement) -> Chain | None:
    """The chain of a statement."""
    op = "nl.copy" if statement.op == "move" else statement.op
    return chain_of(op, statement.attrs, statement.args)


def _element_wise(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    statement = run.statement
    if len(statement.dsts) != 1 or not is_plain(statement) or "combine" in statement.attrs:
        return None
    chain = element_chain(statement)
    if chain is None:
        return None
    names = chain.operands()
    operands = [statement.args[n] for n in names]
    refs = [r for r in operands if isinstance(r, Ref)]
    dst = statement.dsts[0]
    if not chain.steps:
        return _plain_copy(run, scope, binder, dst, refs[0])
    if not _is_f32(statement) or not _safe_in_place(dst, refs, len(chain.steps)):
        return None
    windows = _joint_windows(run, scope, binder, [dst, *refs])
    if windows is None:
        return None
    target, source, *others = windows
    by_name = dict(zip(names[1:], others, strict=True))
    steps: list[tuple[Callable[..., Any], Window | Any, bool]] = []
    for step in chain.steps:
        operand = step.operand
        if isinstance(operand, str):
            steps.append((step.function, by_name[operand], step.reverse))
        else:
            steps.append((step.function, None if operand is None else np.float32(operand), step.reverse))
    return _chain_executor(target, source, steps)


def _safe_in_place(dst: Ref, refs: list[Ref], steps: int) -> bool:
    """Whether a chain may use its destination for intermediate values."""
    first, *others = refs
    if first.storage is dst.storage and first.map != dst.map:
        return False
    return steps == 1 or not any(r.storage is dst.storage for r in others)


def _chain_executor(
    target: Window, source: Window, steps: list[tuple[Callable[..., Any], Window | Any, bool]]
) -> Executor:
    if len(steps) == 1:
        function, operand, reverse = steps[0]
        if operand is None:

            def unary(position: Position) -> None:
                function(source.at(position), out=target.at(position))

            return unary
        if isinstance(operand, Window):
            left, right = (operand, source) if reverse else (source, operand)

            def binary(position: Position) -> None:
                function(left.at(position), right.at(position), out=target.at(position))

            return binary

    def execute(position: Position) -> None:
        out = target.at(position)
        value = source.at(position)
        for function, operand, reverse in steps:
            if operand is None:
                function(value, out=out)
            else:
                other = operand.at(position) if isinstance(operand, Window) else operand
                if reverse:
                    function(other, value, out=out)
                else:
                    function(value, other, out=out)
            value = out

    return execute


def _plain_copy(run: Run, scope: Scope, binder: Binder, dst: Ref, src: Ref) -> Executor | None:
    windows = _joint_windows(run, scope, binder, [dst, src])
    if windows is None or src.storage is dst.storage:
        return None
    target, source = windows
    if src.dtype == dst.dtype:

        def execute(position: Position) -> None:
            copy(target.at(position), source.at(position))

        return execute
    dtype = dst.dtype

    def cast(position: Position) -> None:
        target.at(position)[...] = converted(source.at(position), dtype)

    return cast


def _combined(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    """``dst op= src``, over loops in flight that the destination does not move with."""
    statement = run.statement
    if (
        "combine" not in statement.attrs
        or statement.op != "move"
        or not is_plain(statement)
        or not _is_f32(statement)
    ):
        return None
    dst, src = statement.dsts[0], statement.args["src"]
    assert isinstance(src, Ref)
    if src.storage is dst.storage:
        return None
    ufunc = REDUCTIONS[statement.attrs["combine"]]
    summed = [v for v in run.loops if not binder.stride(dst, v)]
    kept = [v for v in run.loops if binder.stride(dst, v)]
    tile = tile_strides(src, dst.shape)
    if tile is None:
        return None
    dims = [(scope.extent(v), binder.stride(dst, v)) for v in kept]
    target = binder.window(dst, scope, [*dims, *((n, s) for s, n in dst.map.axes)])
    dims = [(scope.extent(v), binder.stride(src, v)) for v in kept]
    extra = [(scope.extent(v), binder.stride(src, v)) for v in summed]
    source = binder.window(src, scope, [*dims, *zip(dst.shape, tile, strict=True), *extra])
    first = first_piece(statement, scope)
    axes = tuple(range(-len(extra), 0))

    def execute(position: Position) -> None:
        out, value = target.at(position), source.at(position)
        afresh = first is not None and first(position)
        if not axes:
            if afresh:
                copy(out, value)
            else:
                ufunc(out, value, out=out)
        elif afresh:
            ufunc.reduce(value, axis=axes, out=out)
        else:
            ufunc(out, ufunc.reduce(value, axis=axes), out=out)

    return execute


# -- reductions and scans ------------------------------------------------------------------------------------------------
_REDUCE_OPS = {"nl.sum": "add", "nl.max": "maximum", "nl.min": "minimum", "nl.prod": "multiply"}


def _reduction(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    statement = run.statement
    name = (
        statement.attrs.get("op") if statement.op == "nisa.tensor_reduce" else _REDUCE_OPS.get(statement.op)
    )
    if (
        name not in ("add", "multiply", "maximum", "minimum")
        or not is_plain(statement)
        or not _is_f32(statement)
    ):
        return None
    dst, src = statement.dsts[0], statement.args[REDUCED_OPERAND[statement.op]]
    assert isinstance(src, Ref)
    if "combine" in statement.attrs or src.storage is dst.storage:
        return None
    rank = len(src.shape)
    axis = statement.attrs["axis"]
    gone = {int(a) % rank for a in (axis if isinstance(axis, tuple | list) else (axis,))}
    kept = [k for k in range(rank) if k not in gone]
    out_axes = [(s, n) for s, n in dst.map.axes if n > 1]
    in_axes = [src.map.axes[k] for k in kept if src.map.axes[k][1] > 1]
    if [n for _, n in out_axes] != [n for _, n in in_axes]:
        return None
    shape = [*(scope.extent(v) for v in run.loops), *(n for _, n in out_axes)]
    out_strides = [*(binder.stride(dst, v) for v in run.loops), *(s for s, _ in out_axes)]
    in_strides = [*(binder.stride(src, v) for v in run.loops), *(s for s, _ in in_axes)]
    extents, (outs, ins) = joint_dims(shape, [out_strides, in_strides])
    reduced_shape = [src.map.axes[k][1] for k in sorted(gone)]
    reduced, (inner,) = joint_dims(reduced_shape, [[src.map.axes[k][0] for k in sorted(gone)]])
    if not reduced:
        return None
    # A single result keeps an axis, as its window has one to be written through.
    outer = list(zip(extents, outs, strict=True)) or [(1, 0)]
    rows = list(zip(extents, ins, strict=True)) or [(1, 0)]
    target = binder.window(dst, scope, outer)
    source = binder.window(src, scope, [*rows, *zip(reduced, inner, strict=True)])
    axes = tuple(range(-len(reduced), 0)) if len(reduced) > 1 else -1
    ufunc = REDUCTIONS[name]
    negate = bool(statement.attrs.get("negate"))

    def execute(position: Position) -> None:
        out = target.at(position)
        ufunc.reduce(source.at(position), axis=axes, out=out)
        if negate:
            np.negative(out, out=out)

    return execute


def _scan(run: Run, scope: Scope, binder: Binder) -> Executor | None:
    statement = run.statement
    if statement.op != "nisa.tensor_tensor_scan" or not is_plain(statement) or not _is_f32(statement):
        return None
    dst, a, b = statement.dsts[0], statement.args["data0"], statement.args["data1"]
    assert isinstance(a, Ref) and isinstance(b, Ref)
    if a.shape != dst.shape or b.shape != dst.shape or len(dst.shape) != 2:
        return None
    target, left, right = (binder.window(r, scope, binder.dims(r, scope, run.loops)) for r in (dst, a, b))
    initial = statement.args["initial"]
    start = (
        binder.window(initial, scope, _column_dims(initial, run, scope, binder))
        if isinstance(initial, Ref)
        else None
    )
    attrs = statement.attrs
    flags = attrs["op0"], attrs["op1"], bool(attrs.get("reverse0")), bool(attrs.get("reverse1"))

    def execute(position: Position) -> None:
        value = initial if start is None else start.at(position)
        scan(left.at(position), right.at(position), value, *flags, target.at(position))

    return execute


def _column_dims(ref: Ref, run: Run, scope: Scope, binder: Binder) -> list[Dim]:
    """Dimensions of a [P, 1] operand: batch, partitions, 1."""
    dims = [(scope.extent(v), binder.stride(ref, v)) for v in run.loops]
    return [*dims, (ref.map.axes[0][1], ref.map.axes[0][0]), (1, 0)]


# -- everything else -----------------------------------------------------------------------------------------------------
class _General:
    """A statement computed by `semantics.evaluate` on arrays of its operands."""

    def __init__(self, run: Run, scope: Scope, binder: Binder, rng: np.random.Generator) -> None:
        self.run = run
        self.statement = run.statement
        self.scope = scope
        self.binder = binder
        self.rng = rng
        self.op = "nl.copy" if self.statement.op == "move" else self.statement.op
        self.batch = tuple(scope.extent(v) for v in run.loops)
        self.args = {k: self._reader(v) if isinstance(v, Ref) else v for k, v in self.statement.args.items()}
        self.old = tuple(self._reader(d) for d in self.statement.dsts)
        self.combine = self.statement.attrs.get("combine")
        self.summed = self._summed() if self.combine is not None else ()
        kept = tuple(v for k, v in enumerate(run.loops) if k not in self.summed)
        self.writers = tuple(_Writer(d, run, kept, scope, binder) for d in self.statement.dsts)
        self.exprs = {
            k: self._expressions(v) for k, v in self.statement.attrs.items() if k in ("expr", "pred")
        }
        self.first = first_piece(self.statement, scope) if "combine" in self.statement.attrs else None
        self.skips = self.statement.attrs.get("oob_mode") == "skip"
        reduced = REDUCED_OPERAND.get(self.op)
        operand = self.statement.args[reduced] if reduced else None
        self.space = operand.shape if isinstance(operand, Ref) else self.statement.dsts[0].shape

    def _reader(self, ref: Ref) -> _Reader:
        return _Reader(ref, self.run, self.scope, self.binder, bool(self.statement.mask))

    def _expressions(self, value: Any) -> list[_Expression]:
        items = value if isinstance(value, tuple) else (value,)
        shape = self.statement.dsts[0].shape
        return [_Expression(e, shape, self.run.loops, self.scope) for e in items]

    def _mask(self, position: Position) -> Array | None:
        if not self.statement.mask:
            return None
        keep: Array = np.ones((1,) * (len(self.batch) + len(self.space)), bool)
        for condition in self.statement.mask:
            expression = _Expression(condition, self.space, self.run.loops, self.scope)
            keep = keep & (expression.at(position) >= 0)
        return np.broadcast_to(keep, (*self.batch, *self.space))

    def _within(self, position: Position, mask: Array | None) -> Array:
        """Where every index read at run time lies inside its tensor, and the mask holds."""
        shape = (*self.batch, *self.space)
        keep = np.ones(shape, bool) if mask is None else mask.copy()
        for reader in (*self.args.values(), *self.old):
            if isinstance(reader, _Reader) and reader.indices is not None:
                keep &= reader.indices.within(position)
        return keep

    def execute(self, position: Position) -> None:
        """Compute the statement for the current pieces.

        Raises:
            RuntimeAccessError: if an index read at run time lies outside its tensor.
            BrokenClaimError: if an operand is not what the kernel says of it.
        """
        try:
            self._execute(position)
        except (BrokenClaimError, RuntimeAccessError) as error:
            error.line = error.line or self.statement.line
            raise

    def _execute(self, position: Position) -> None:
        statement = self.statement
        mask = self._mask(position)
        if self.skips:
            mask = self._within(position, mask)
        if mask is not None and not mask.any():
            return
        attrs = dict(statement.attrs)
        for key, expressions in self.exprs.items():
            values = [e.at(position) for e in expressions]
            if key == "pred":
                keep = values[0] >= 0
                for v in values[1:]:
                    keep = keep & (v >= 0)
                attrs[key] = keep
            else:
                attrs[key] = values[0]
        attrs["batch"] = self.batch
        values_by_name = {
            k: v.at(position, mask) if isinstance(v, _Reader) else v for k, v in self.args.items()
        }  # fmt: skip
        if mask is not None and self.op in REDUCED_OPERAND:
            values_by_name, mask = self._neutralised(values_by_name, mask)
        ranks = {k: len(v.shape) for k, v in statement.args.items() if isinstance(v, Ref)}
        kept = reads_destination(self.op, attrs)
        old = tuple(r.at(position, None) if k in kept else None for k, r in enumerate(self.old))
        call = Call(
            self.op, attrs, values_by_name, ranks, tuple(d.shape for d in statement.dsts), old, self.rng
        )
        if self.op == "fill":
            results: tuple[Array, ...] = (np.asarray(attrs["value"], np.float64),)
        else:
            try:
                results = evaluate(call, statement.dsts[0].dtype)
            except IndexError as error:
                raise RuntimeAccessError(
                    "err_tensor_access_out_of_bound", str(error), line=statement.line
                ) from error
        for k, (result, writer) in enumerate(zip(results, self.writers, strict=True)):
            shape = (*self.batch, *statement.dsts[k].shape)
            value = result if _broadcasts(result.shape, shape) else result.reshape(shape)
            where = mask
            if k and mask is not None:
                # A further destination holds one value for each partition.
                where = np.asarray(mask.any(axis=free_axes(len(self.space)), keepdims=True))
            self._write(writer, position, value, where, shape)

    def _write(
        self, writer: _Writer, position: Position, value: Array, where: Array | None, shape: tuple[int, ...]
    ) -> None:
        if self.combine is None:
            writer.put(position, value, where, shape, None)
            return
        ufunc = REDUCTIONS[self.combine]
        if self.summed:
            value = ufunc.reduce(np.broadcast_to(value, shape), axis=self.summed)
            shape = tuple(n for k, n in enumerate(shape) if k not in self.summed)
        afresh = self.first is not None and self.first(position)
        writer.put(position, value, where, shape, None if afresh else ufunc)

    def _summed(self) -> tuple[int, ...]:
        """Batch dimensions that the destination does not move with."""
        dst = self.statement.dsts[0]
        if dst.runtime:
            return ()
        return tuple(k for k, v in enumerate(self.run.loops) if not self.binder.stride(dst, v))

    def _neutralised(self, values: dict[str, Any], mask: Array) -> tuple[dict[str, Any], Array]:
        """Replace masked elements of a reduction's operand by what does not change the result."""
        name = REDUCED_OPERAND[self.op]
        op = self.statement.attrs.get("op") or _REDUCE_OPS.get(self.op, "add")
        neutral = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}.get(op)
        if neutral is None or self.op not in ("nisa.tensor_reduce", *_REDUCE_OPS):
            raise RuntimeAccessError(
                "err_unsupported_expression_in_mask",
                f"{self.op} does not take this mask",
                line=self.statement.line,
            )
        values = {**values, name: np.where(mask, values[name].astype(np.float32), np.float32(neutral))}
        axis = self.statement.attrs["axis"]
        rank = len(self.space)
        axes = tuple(int(a) % rank - rank for a in (axis if isinstance(axis, tuple | list) else (axis,)))
        any_left = mask.any(axis=axes, keepdims=True)
        return values, any_left.reshape(*self.batch, *self.statement.dsts[0].shape)


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return len(shape) <= len(target) and all(
        n in (1, m) for n, m in zip(shape[::-1], target[::-1], strict=False)
    )


class _Expression:
    """The values of an affine expression over loops and tile axes."""

    __slots__ = ("base", "steps")

    def __init__(self, e: Affine, shape: tuple[int, ...], loops: tuple[LoopVar, ...], scope: Scope) -> None:
        coefficients = {v: c for v, c in e.terms.items() if not isinstance(v, int)}
        axes = tuple((e.coefficient(k), n) for k, n in enumerate(shape))
        line = Linear(e.const, coefficients, axes)
        self.base = values_of(line, scope, loops, scope)
        self.steps = piece_steps(line, scope)

    def at(self, position: Position) -> Array:
        return self.base + sum(step * position[slot] for slot, step in self.steps)


class _Indices:
    """Element numbers of an access with indices read at run time, or one that a mask keeps in bounds."""

    def __init__(self, ref: Ref, run: Run, scope: Scope, binder: Binder) -> None:
        self.ref = ref
        inner = {v: binder.stride(ref, v) for v in run.loops}
        outer = {v: binder.step(ref, v) for v in scope.levels}
        start = sum(outer[v] * level.start for v, level in scope.levels.items())
        flying = Linear(ref.map.const + start, {v: s for v, s in inner.items() if s}, ref.map.axes)
        self.base = values_of(flying, Scope(), run.loops, scope)
        self.steps = piece_steps(Linear(0, outer, ()), scope)
        self.tiles = [_Reader(i.tile, run, scope, binder, False) for i in ref.runtime]
        self.offsets = [
            (values_of(i.offset, scope, run.loops, scope), piece_steps(i.offset, scope)) for i in ref.runtime
        ]
        self.elements = binder.memory[ref.storage].size // ref.dtype.itemsize

    def at(self, position: Position, shape: tuple[int, ...], mask: Array | None) -> Array:
        """Element numbers, broadcast to `shape`; those that are masked out are anything valid.

        Raises:
            RuntimeAccessError: if an index lies outside its dimension.
        """
        total = self.base + sum(step * position[slot] for slot, step in self.steps)
        for index, value in self._values(position):
            wrong = (value < 0) | (value >= index.size)
            if mask is not None:
                wrong = wrong & mask
            if wrong.any():
                worst = value[wrong].flat[0] if value.shape == wrong.shape else value.min()
                raise RuntimeAccessError(
                    "err_tensor_access_out_of_bound",
                    f"index {int(worst)} read at run time exceeds dimension size of {index.size} of "
                    f"`{self.ref.storage.name}`",
                )
            total = total + value * index.stride
        total = np.broadcast_to(total, shape)
        return np.clip(total, 0, self.elements - 1) if mask is not None else total

    def within(self, position: Position) -> Array:
        """Which of the indices lie inside their dimensions."""
        keep: Array = np.ones((), bool)
        for index, value in self._values(position):
            keep = keep & (value >= 0) & (value < index.size)
        return keep

    def _values(self, position: Position) -> Iterator[tuple[RuntimeIndex, Array]]:
        for index, tile, (offset, steps) in zip(self.ref.runtime, self.tiles, self.offsets, strict=True):
            read = tile.at(position, None)
            value = np.rint(read.astype(np.float64)) if read.dtype.kind not in "iu" else read.astype(np.int64)
            value = np.asarray(value, np.int64) * index.scale + offset
            yield index, value + sum(step * position[slot] for slot, step in steps)


class _Reader:
    """An operand as an array: batch dimensions, then tile axes."""

    def __init__(self, ref: Ref, run: Run, scope: Scope, binder: Binder, masked: bool) -> None:
        self.ref = ref
        self.shape = (*(scope.extent(v) for v in run.loops), *ref.shape)
        self.window: Window | None = None
        self.indices: _Indices | None = None
        self.binder = binder
        if not ref.runtime:
            try:
                self.window = binder.window(ref, scope, binder.dims(ref, scope, run.loops))
                return
            except OutOfBounds:
                if not masked:
                    raise
        self.indices = _Indices(ref, run, scope, binder)

    def at(self, position: Position, mask: Array | None) -> Array:
        if self.window is not None:
            return self.window.at(position)
        assert self.indices is not None
        mask = mask if mask is not None and mask.shape == self.shape else None
        where = self.indices.at(position, self.shape, mask)
        return self.binder.flat(self.ref.storage)[where]


class _Writer:
    """A destination that takes arrays."""

    def __init__(self, ref: Ref, run: Run, loops: tuple[LoopVar, ...], scope: Scope, binder: Binder) -> None:
        self.ref = ref
        self.binder = binder
        self.window: Window | None = None
        self.indices: _Indices | None = None
        if not ref.runtime:
            try:
                self.window = binder.window(ref, scope, binder.dims(ref, scope, loops))
                return
            except OutOfBounds:
                if not run.statement.mask:
                    raise
        self.indices = _Indices(ref, Run(run.statement, loops), scope, binder)

    def put(
        self,
        position: Position,
        value: Array,
        where: Array | None,
        shape: tuple[int, ...],
        combine: np.ufunc | None,
    ) -> None:
        """Write (or combine) a value, only where a mask holds."""
        dtype = self.ref.dtype
        if self.window is not None:
            out = self.window.at(position)
            if combine is not None:
                value = combine(out.astype(np.float32), value)
            value = converted(np.asarray(value), dtype)
            if np.may_share_memory(value, out):
                value = value.copy()
            if where is None:
                out[...] = value
            else:
                np.copyto(out, value, where=where)
            return
        assert self.indices is not None
        full_mask = None if where is None else np.broadcast_to(where, shape)
        numbers = self.indices.at(position, shape, full_mask)
        value = np.broadcast_to(value, shape)
        if full_mask is not None:
            numbers, value = numbers[full_mask], value[full_mask]
        flat = self.binder.flat(self.ref.storage)
        if combine is None:
            flat[numbers] = converted(np.asarray(value), dtype)
        elif dtype == F32:
            combine.at(flat, numbers, value.astype(np.float32))
        else:
            sums = flat.astype(np.float32)
            combine.at(sums, numbers, value.astype(np.float32))
            flat[numbers] = converted(sums[numbers], dtype)
