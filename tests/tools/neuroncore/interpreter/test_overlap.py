"""The overlap test against enumeration."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tools.neuroncore.interpreter.overlap import Linear, meet, solvable
from tools.neuroncore.ir import LoopVar

TERMS = st.lists(st.tuples(st.integers(-9, 9), st.integers(-3, 3), st.integers(0, 4)), max_size=4)


@given(TERMS, st.integers(-60, 60))
@settings(max_examples=300, deadline=None)
def test_solvable_agrees_with_trying_everything(terms: list[tuple[int, int, int]], target: int) -> None:
    ranged = [(c, low, low + span) for c, low, span in terms]
    values = itertools.product(*(range(low, high + 1) for _, low, high in ranged))
    expected = any(sum(c * x for (c, _, _), x in zip(ranged, xs, strict=True)) == target for xs in values)
    assert solvable(ranged, target) == expected


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[LoopVar], Linear, Linear]:
    loops = [LoopVar(f"i{k}", draw(st.integers(2, 3))) for k in range(2)]

    def one() -> Linear:
        coefficients = {v: c for v in loops if (c := draw(st.integers(-2, 12)))}
        axes = tuple((draw(st.integers(1, 5)), draw(st.integers(1, 3))) for _ in range(2))
        return Linear(draw(st.integers(0, 4)), coefficients, axes)

    first = one()
    return loops, first, first if draw(st.booleans()) else one()


def elements(access: Linear, at: dict[LoopVar, int]) -> set[int]:
    start = access.const + sum(c * at[v] for v, c in access.loops.items())
    return {
        start + sum(s * x for (s, _), x in zip(access.axes, xs, strict=True))
        for xs in itertools.product(*(range(n) for _, n in access.axes))
    }


@given(pairs())
@settings(max_examples=200, deadline=None)
def test_iterations_meet_exactly_when_they_touch_a_common_element(
    case: tuple[list[LoopVar], Linear, Linear],
) -> None:
    (outer, inner), a, b = case
    found = {+1: False, -1: False}
    for o, i, j in itertools.product(range(outer.trips), range(inner.trips), range(inner.trips)):
        if i != j and elements(a, {outer: o, inner: i}) & elements(b, {outer: o, inner: j}):
            found[1 if j > i else -1] = True
    for direction, expected in found.items():
        answer = meet(a, b, {outer}, inner, direction)
        if a.loops.get(inner, 0) == b.loops.get(inner, 0):
            assert answer == expected
        else:
            # Different steps: the answer leaves out that the iterations differ.
            assert answer or not expected


def test_tiles_of_rows_do_not_meet_and_sliding_windows_do() -> None:
    i = LoopVar("i", 4)
    tiles = Linear(0, {i: 128 * 64}, ((64, 128), (1, 64)))
    windows = Linear(0, {i: 64 * 64}, ((64, 128), (1, 64)))
    columns = Linear(0, {i: 16}, ((64, 128), (1, 16)))
    assert not meet(tiles, tiles, (), i, 1)
    assert meet(windows, windows, (), i, 1)
    assert not meet(columns, columns, (), i, 1)


def test_a_search_without_end_says_perhaps() -> None:
    terms = [(c, 0, 50) for c in (6, 10, 15, 21, 35, 77)]
    assert solvable([(2 * c, low, high) for c, low, high in terms], 10**4 + 4)
