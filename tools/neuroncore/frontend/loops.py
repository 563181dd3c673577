"""Loops: one symbolic iteration where the body allows it, unrolled where Python needs integers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from ..errors import NKIError
from ..ir import Affine, Loop, LoopKind, LoopVar
from .index import IndexExpr
from .session import Retrace, Site, current
from .tile import Tile


class NkiRange:
    """What `nl.affine_range` and its siblings return.

    In a ``for`` statement it becomes a symbolic loop; anywhere else (``list``, ``enumerate``, a comprehension) it
    yields integers.
    """

    def __init__(self, kind: LoopKind | None, values: range) -> None:
        """`kind` None: always unrolled (`static_range`)."""
        self.kind = kind
        self.values = values

    def __iter__(self) -> Iterator[int]:
        """Plain integers."""
        return iter(self.values)

    def __len__(self) -> int:
        """Trip count."""
        return len(self.values)

    def __getitem__(self, k: Any) -> Any:
        """As Python's range."""
        return self.values[k]


def _range(kind: LoopKind | None, args: tuple[Any, ...]) -> NkiRange:
    values = []
    for a in args:
        if isinstance(a, Tile):
            raise NKIError(
                "err_dynamic_control_flow_not_supported", "a loop bound is a tile", line=current().line()
            )
        try:
            values.append(a.__index__())
        except (AttributeError, TypeError):
            raise NKIError(
                "invalid_loop_bound", f"{a!r} is not an integer loop bound", line=current().line()
            ) from None
    if not values:
        raise NKIError("invalid_loop_bound", "a range needs a bound", line=current().line())
    return NkiRange(kind, range(*values))


def affine_range(*args: Any, **_: Any) -> NkiRange:
    """A loop whose iterations are independent but for reductions; the compiler may reorder and vectorise it."""
    return _range(LoopKind.AFFINE, args)


def sequential_range(*args: Any, **_: Any) -> NkiRange:
    """A loop whose iterations run in order."""
    return _range(LoopKind.SEQUENTIAL, args)


def static_range(*args: Any, **_: Any) -> NkiRange:
    """A loop that is unrolled while tracing."""
    return _range(None, args)


def enter(iterable: Any, name: str, carried: Sequence[str], collects: bool = False) -> Any:
    """The iterable of a kernel's ``for`` statement, as the tracer wants to run it.

    Args:
        iterable: what the source iterates over.
        name: the loop variable's name.
        carried: variables that one iteration hands to the next, by the source's syntax.
        collects: whether the body collects tiles in a Python list, which needs every iteration to be run.
    """
    if isinstance(iterable, range):
        iterable = NkiRange(LoopKind.RANGE, iterable)
    if not isinstance(iterable, NkiRange):
        return _ticking(iterable)
    frame = sys._getframe(1)
    site: Site = (id(frame.f_code), frame.f_lasti)
    values = iterable.values
    if iterable.kind is None or len(values) <= 1 or collects or site in current().assumptions.unrolled:
        return _ticking(values)
    return _symbolic(iterable.kind, values, name, tuple(carried), frame, site)


def decided(condition: Any) -> Any:
    """The condition of a kernel's ``while`` statement, which must be known while tracing.

    Raises:
        NKIError: if it is a tile.
    """
    current().tick()
    if isinstance(condition, Tile):
        raise NKIError(
            "err_while_loop_requires_unconditional_entry",
            f"a while loop depends on the value of {condition!r}, which is only known at run time",
            line=current().line(),
        )
    return condition


def _ticking(iterable: Any) -> Iterator[Any]:
    session = current()
    for value in iterable:
        session.tick()
        yield value


def _symbolic(
    kind: LoopKind, values: range, name: str, carried: tuple[str, ...], frame: FrameType, site: Site
) -> Iterator[IndexExpr]:
    session = current()
    var = LoopVar(session.unique(name), len(values))
    loop = Loop(var, kind, line=frame.f_lineno)
    session.open_loop(loop, site)
    before = {n: frame.f_locals[n] for n in carried if n in frame.f_locals} if carried else {}
    finished = False
    try:
        yield IndexExpr(Affine(values.start, {var: values.step}))
        finished = True
        after = frame.f_locals if before else {}
        for variable, value in before.items():
            if after.get(variable) is not value:
                _carried_variable(kind, variable, after.get(variable), name, site, loop.line)
        session.close_loop(loop)
    finally:
        if not finished and (kind is LoopKind.RANGE or session.unrolls_freely):
            # A break or return inside the body (or an error on its way out): Python decides while tracing, so the
            # loop must be run for real.
            session.left_early.add(site)
        elif not finished:
            session.close_loop(loop)  # NKI's own loops are traced once, whatever ends the body


def _carried_variable(kind: LoopKind, variable: str, value: Any, loop: str, site: Site, line: int) -> None:
    session = current()
    traced_once = kind is not LoopKind.RANGE and not session.unrolls_freely
    if traced_once and not isinstance(value, Tile):
        return  # a number that the body changes is changed once, as NKI's own tracing has it
    if traced_once:
        raise NKIError(
            "err_local_variable_used_out_of_scope",
            f"`{variable}` is rebound in the loop over {loop} and read in its next iteration; a loop body is traced once, "
            "so the next iteration would read the tensor from before the loop",
            line=line,
            remedy=f"write into the outer tensor instead: {variable}[...] = ...",
        )
    session.assumptions.unrolled.add(site)
    raise Retrace(f"`{variable}` is carried around the loop over {loop}")
