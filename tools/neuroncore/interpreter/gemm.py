"""Matrix products over many tiles at once, as few BLAS calls as their memory allows.

The tiles of a matmul inside loops are pieces of larger matrices: loops that only the stationary side moves with are rows,
loops that only the moving side moves with are columns, loops that the result does not move with are summed over. Where
strides let dimensions join, BLAS works on the original memory; else an operand is packed into scratch memory first, or
the dimension stays a batch, whichever a small cost model finds cheaper.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from .binding import Binder, Dim, Position, Scope
from .functions import Array
from .movement import copy
from .placement import Ref, Statement
from .schedule import Run

SECONDS_PER_FLOP = 1 / 120e9
"""A BLAS call on two cores (order of magnitude)."""

SECONDS_PER_PACKED_ELEMENT = 0.5e-9
"""BLAS rearranging its operands, once a call."""

SECONDS_PER_COPIED_ELEMENT = 1e-9
SECONDS_PER_TURNED_ELEMENT = 2.5e-9
"""Copying between different orders of dimensions."""

SECONDS_PER_CALL = 3e-6

KEEP_PACKED_BYTES = 64 << 20
"""Largest packed operand that is kept for all pieces."""

F32 = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A dimension of the product, or several that were joined.

    Attributes:
        extent: number of elements.
        a: stride in the left operand.
        b: stride in the right operand.
        c: stride in the result.
        members: the dimensions it was joined from, outermost first; empty for a single one.
    """

    extent: int
    a: int
    b: int
    c: int
    members: tuple[Group, ...] = ()

    def parts(self) -> tuple[Group, ...]:
        """The dimensions in it."""
        return self.members or (self,)


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """``C[batch, row, column] = Σ_inner A[batch, row, inner] · B[batch, inner, column]``, by dimensions.

    Attributes:
        batch: dimensions of all three.
        rows: dimensions of A and C.
        columns: dimensions of B and C.
        inner: dimensions of A and B.
        a_ready: whether A is float32.
        b_ready: whether B is float32.
        c_ready: whether C is float32.
    """

    batch: tuple[Group, ...]
    rows: tuple[Group, ...]
    columns: tuple[Group, ...]
    inner: tuple[Group, ...]
    a_ready: bool = True
    b_ready: bool = True
    c_ready: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One way to call BLAS.

    Attributes:
        batch: dimensions looped over.
        rows_left: row dimensions looped over.
        columns_left: column dimensions looped over.
        row: rows of one call.
        column: columns of one call.
        inner: inner dimension of one call.
        pack_a: whether A is copied first.
        pack_b: whether B is copied first.
        stage: whether the result is computed in scratch memory first.
        seconds: estimated cost.
    """

    batch: tuple[Group, ...]
    rows_left: tuple[Group, ...]
    columns_left: tuple[Group, ...]
    row: Group
    column: Group
    inner: Group
    pack_a: bool
    pack_b: bool
    stage: bool
    seconds: float


def joined(groups: Sequence[Group], use: str) -> list[Group]:
    """Merge neighbouring dimensions where the strides that matter (`use`, out of "abc") allow it."""
    out: list[Group] = []
    for g in groups:
        if out and all(getattr(out[-1], k) == g.extent * getattr(g, k) for k in use):
            last = out.pop()
            out.append(Group(last.extent * g.extent, g.a, g.b, g.c, (*last.parts(), *g.parts())))
        else:
            out.append(g)
    return out


def blas_takes(p: int, q: int, n: int, m: int) -> bool:
    """Whether BLAS takes an n x m matrix with strides p and q as it is."""
    by_rows = (q == 1 or m == 1) and (p >= m or n == 1)
    by_columns = (p == 1 or n == 1) and (q >= n or m == 1)
    return by_rows or by_columns


def best_form(problem: Problem, accumulates: bool) -> Form:
    """The cheapest way to compute a product.

    Args:
        problem: dimensions and strides.
        accumulates: whether the result is added to what is there, which takes scratch memory anyway.
    """
    forms = []
    for pack_a, pack_b, stage in itertools.product((False, True), repeat=3):
        if not (pack_a or problem.a_ready) or not (pack_b or problem.b_ready):
            continue
        if not stage and (accumulates or not problem.c_ready):
            continue
        form = _form(problem, pack_a, pack_b, stage)
        if form is not None:
            forms.append(form)
    return min(forms, key=lambda f: f.seconds)


def _form(problem: Problem, pack_a: bool, pack_b: bool, stage: bool) -> Form | None:
    row_use = ("" if pack_a else "a") + ("" if stage else "c")
    column_use = ("" if pack_b else "b") + ("" if stage else "c")
    inner_use = ("" if pack_a else "a") + ("" if pack_b else "b")
    rows = joined(_ordered(problem.rows, row_use or "a"), row_use)
    columns = joined(_ordered(problem.columns, column_use or "b"), column_use)
    inner = joined(_ordered(problem.inner, inner_use or "b"), inner_use)
    if len(inner) != 1:
        return None
    k = inner[0]
    m = max(rows, key=lambda g: g.extent)
    n = max(columns, key=lambda g: g.extent)
    if not pack_a and not blas_takes(m.a, k.a, m.extent, k.extent):
        return None
    if not pack_b and not blas_takes(k.b, n.b, k.extent, n.extent):
        return None
    if not stage and not blas_takes(m.c, n.c, m.extent, n.extent):
        return None
    rows_left = tuple(g for g in rows if g is not m)
    columns_left = tuple(g for g in columns if g is not n)
    batches = math.prod(g.extent for g in problem.batch)
    calls = batches * math.prod(g.extent for g in (*rows_left, *columns_left))
    a_size = batches * math.prod(g.extent for g in rows) * k.extent
    b_size = batches * math.prod(g.extent for g in columns) * k.extent
    c_size = calls * m.extent * n.extent
    seconds = 2 * c_size * k.extent * SECONDS_PER_FLOP
    seconds += calls * (SECONDS_PER_CALL + (m.extent + n.extent) * k.extent * SECONDS_PER_PACKED_ELEMENT)
    if pack_a:
        seconds += a_size * _copy_cost(problem.rows, problem.inner, "a")
    if pack_b:
        seconds += b_size * _copy_cost(problem.columns, problem.inner, "b")
    if stage:
        seconds += c_size * SECONDS_PER_COPIED_ELEMENT
    return Form(problem.batch, rows_left, columns_left, m, n, k, pack_a, pack_b, stage, seconds)


def _ordered(groups: Sequence[Group], use: str) -> list[Group]:
    return sorted(groups, key=lambda g: [abs(getattr(g, k)) for k in reversed(use)], reverse=True)


def _copy_cost(outer: Sequence[Group], inner: Sequence[Group], side: str) -> float:
    """Seconds per element to bring an operand into scratch memory."""
    a_rows = side == "a"
    last = inner if a_rows else outer
    if any(abs(getattr(g, side)) == 1 for g in last) or all(g.extent == 1 for g in last):
        return SECONDS_PER_COPIED_ELEMENT
    return SECONDS_PER_TURNED_ELEMENT


def build(
    run: Run, scope: Scope, binder: Binder, first: Callable[[Position], bool] | None, combines: bool
) -> Callable[[Position], None]:
    """A function that computes a matmul statement for the current pieces.

    Args:
        run: the statement and the loops in flight.
        scope: loops over pieces around it.
        binder: makes windows.
        first: for statements that accumulate: whether the current piece starts afresh. None: never.
        combines: whether the statement accumulates at all.
    """
    a, b = _operands(run.statement)
    problem = _problem(run, scope, binder, a, b)
    refs = a.ref, b.ref, run.statement.dsts[0]
    if not combines:
        return _call(scope, binder, refs, best_form(problem, False), None)
    added = _call(scope, binder, refs, best_form(problem, True), np.add)
    if first is None:
        return added
    overwritten = _call(scope, binder, refs, best_form(problem, False), None)

    def accumulate(position: Position) -> None:
        (overwritten if first(position) else added)(position)

    return accumulate


@dataclasses.dataclass(frozen=True, slots=True)
class _Operand:
    ref: Ref
    outer: tuple[int, ...]
    inner: tuple[int, ...]


def _operands(statement: Statement) -> tuple[_Operand, _Operand]:
    """The left and right operand with the numbers of their row (or column) and inner axes."""
    args = statement.args
    if statement.op == "nisa.nc_matmul":
        left, right = args["stationary"], args["moving"]
        row: tuple[int, ...] = (-1,)
    else:
        left, right = args["x"], args["y"]
        row = (-1,) if statement.attrs.get("transpose_x") else (0,)
    assert isinstance(left, Ref) and isinstance(right, Ref)
    free = tuple(range(1, len(left.shape)))
    sides = (free, (0,)) if row == (-1,) else ((0,), free)
    return _Operand(left, *sides), _Operand(right, tuple(range(1, len(right.shape))), (0,))


def _problem(run: Run, scope: Scope, binder: Binder, a: _Operand, b: _Operand) -> Problem:
    result = run.statement.dsts[0]
    batch: list[Group] = []
    rows: list[Group] = []
    columns: list[Group] = []
    inner: list[Group] = []
    for v in run.loops:
        g = Group(scope.extent(v), binder.stride(a.ref, v), binder.stride(b.ref, v), binder.stride(result, v))
        if not g.c:
            inner.append(g)
        elif g.a and not g.b:
            rows.append(g)
        elif g.b and not g.a:
            columns.append(g)
        else:
            batch.append(g)
    axes = list(result.map.axes)
    rows.extend(Group(n, s, 0, c) for n, s, c in split_axes([a.ref.map.axes[k] for k in a.outer], axes[:1]))
    columns.extend(
        Group(n, 0, s, c) for n, s, c in split_axes([b.ref.map.axes[k] for k in b.outer], axes[1:])
    )
    both = split_axes([a.ref.map.axes[k] for k in a.inner], [b.ref.map.axes[k] for k in b.inner])
    inner.extend(Group(n, s, t, 0) for n, s, t in both)
    one = Group(1, 1, 1, 1)
    return Problem(
        tuple(g for g in batch if g.extent > 1),
        tuple(g for g in rows if g.extent > 1) or (one,),
        tuple(g for g in columns if g.extent > 1) or (one,),
        tuple(g for g in inner if g.extent > 1) or (one,),
        a.ref.dtype == F32,
        b.ref.dtype == F32,
        result.dtype == F32,
    )


def split_axes(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Bring two groupings of one index to common pieces: (extent, left stride, right stride), outermost first.

    Args:
        left: (stride, extent) of its axes on one side, outermost first.
        right: the same on the other side; the products of the extents are equal.

    Raises:
        ValueError: if the extents do not divide each other.
    """
    a = [(n, s) for s, n in left if n > 1] or [(1, 1)]
    b = [(n, s) for s, n in right if n > 1] or [(1, 1)]
    out: list[tuple[int, int, int]] = []
    while a and b:
        (na, sa), (nb, sb) = a.pop(), b.pop()
        n = min(na, nb)
        if na % n or nb % n:
            raise ValueError("axes do not regroup")
        out.append((n, sa, sb))
        if na > n:
            a.append((na // n, sa * n))
        if nb > n:
            b.append((nb // n, sb * n))
    return out[::-1]


def _call(
    scope: Scope, binder: Binder, refs: tuple[Ref, Ref, Ref], form: Form, combine: np.ufunc | None
) -> Callable[[Position], None]:
    left = _left(refs[0], scope, binder, form)
    right = _right(refs[1], scope, binder, form)
    looped = (*form.batch, *form.rows_left, *form.columns_left)
    if not form.stage:
        dims = [(g.extent, g.c) for g in (*looped, form.row, form.column)]
        target = binder.window(refs[2], scope, dims)

        def compute(position: Position) -> None:
            np.matmul(left(position), right(position), out=target.at(position))

        return compute
    shape = tuple(g.extent for g in (*looped, form.row, form.column))
    parts = [part for g in (*looped, form.row, form.column) for part in g.parts()]
    split = tuple(g.extent for g in parts)
    target = binder.window(refs[2], scope, [(g.extent, g.c) for g in parts])

    def compute_staged(position: Position) -> None:
        product = np.matmul(left(position), right(position), out=binder.scratch("product", shape, F32))
        where = target.at(position)
        if combine is not None:
            combine(where, product.reshape(split), out=where, casting="unsafe")
        else:
            copy(where, product.reshape(split))

    return compute_staged


def _left(ref: Ref, scope: Scope, binder: Binder, form: Form) -> Callable[[Position], Array]:
    """A as an array: batch, rows left, one for each column left, row, inner."""
    outer = (*form.batch, *form.rows_left)
    shape = (*(g.extent for g in outer), *(1 for _ in form.columns_left), form.row.extent, form.inner.extent)
    if not form.pack_a:
        dims = [(g.extent, g.a) for g in outer] + [(1, 0) for _ in form.columns_left]
        return binder.window(ref, scope, [*dims, *((g.extent, g.a) for g in (form.row, form.inner))]).at
    parts = [part for g in (*outer, form.row, form.inner) for part in g.parts()]
    return _packed(ref, scope, binder, [(g.extent, g.a) for g in parts], shape, "left")


def _right(ref: Ref, scope: Scope, binder: Binder, form: Form) -> Callable[[Position], Array]:
    """B as an array: batch, one for each row left, columns left, inner, column."""
    batch = [g.extent for g in form.batch]
    ones = [1 for _ in form.rows_left]
    left = [g.extent for g in form.columns_left]
    shape = (*batch, *ones, *left, form.inner.extent, form.column.extent)
    if not form.pack_b:
        dims = [(g.extent, g.b) for g in form.batch] + [(1, 0) for _ in form.rows_left]
        dims += [(g.extent, g.b) for g in (*form.columns_left, form.inner, form.column)]
        return binder.window(ref, scope, dims).at
    parts = [part for g in (*form.batch, *form.columns_left, form.inner, form.column) for part in g.parts()]
    return _packed(ref, scope, binder, [(g.extent, g.b) for g in parts], shape, "right")


def _packed(
    ref: Ref, scope: Scope, binder: Binder, dims: list[Dim], shape: tuple[int, ...], name: str
) -> Callable[[Position], Array]:
    source = binder.window(ref, scope, dims)
    split = tuple(n for n, _ in dims)
    if not source.slots and ref.storage.is_constant and math.prod(shape) * 4 <= KEEP_PACKED_BYTES:
        kept: list[Array] = []

        def once(position: Position) -> Array:
            if not kept:
                room = np.empty(shape, F32)
                copy(room.reshape(split), source.at(position))
                kept.append(room)
            return kept[0]

        return once

    def pack(position: Position) -> Array:
        room = binder.scratch(name, shape, F32)
        copy(room.reshape(split), source.at(position))
        return room

    return pack
