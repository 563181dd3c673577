"""Boxes: what is left of a region, and when an access touches all of one."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tools.neuroncore.interpreter.coverage import is_covered, minus, swept
from tools.neuroncore.ir import Access, Affine, LoopVar

from .build import tensor

RANGE = st.tuples(st.integers(0, 5), st.integers(1, 4)).map(lambda r: (r[0], r[0] + r[1]))
BOX = st.tuples(RANGE, RANGE)


def points(box: tuple[tuple[int, int], ...]) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(low, high) for low, high in box)))


@given(BOX, BOX)
def test_what_is_left_of_a_box_is_what_the_other_does_not_hold(
    region: tuple[tuple[int, int], ...], cover: tuple[tuple[int, int], ...]
) -> None:
    left = minus(region, cover)
    assert set().union(*map(points, left)) == points(region) - points(cover)
    assert sum(len(points(b)) for b in left) == len(points(region) - points(cover))


def access(index: list[Affine], shape: tuple[int, ...]) -> Access:
    return Access(tensor("t", (64, 64)), tuple(index), shape)


def test_a_tile_split_over_a_loop_is_swept_without_gaps() -> None:
    i = LoopVar("i", 4)
    sweep = swept(access([Affine.of(0), Affine(0, {i: 8, 1: 1})], (16, 8)), ())
    assert sweep is not None and sweep.dense and sweep.box == ((0, 16), (0, 32))


def test_a_step_larger_than_the_tile_leaves_gaps() -> None:
    i = LoopVar("i", 4)
    sweep = swept(access([Affine.of(0), Affine(0, {i: 9, 1: 1})], (16, 8)), ())
    assert sweep is not None and not sweep.dense


def test_a_diagonal_is_not_a_box() -> None:
    sweep = swept(access([Affine.of(0), Affine.of(0)], (16, 1)), ())
    assert sweep is not None and not sweep.dense


def test_covers_count_only_where_the_loops_around_both_stand_alike() -> None:
    i = LoopVar("i", 4)
    here = swept(access([Affine.of(0), Affine(0, {i: 8, 1: 1})], (16, 8)), {i})
    there = swept(access([Affine.of(0), Affine(8, {i: 8, 1: 1})], (16, 8)), {i})
    elsewhere = swept(access([Affine.of(0), Affine(0, {1: 1})], (16, 8)), {i})
    assert here is not None and there is not None and elsewhere is not None
    assert is_covered(here, [here])
    assert not is_covered(here, [there])
    assert not is_covered(here, [elsewhere])
