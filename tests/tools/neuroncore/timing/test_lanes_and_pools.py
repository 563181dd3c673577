"""Time on engines and queues, bytes in a crowded memory, masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.neuroncore.ir import Affine, LoopVar
from tools.neuroncore.timing.lanes import DmaLane, DmaQueues, EngineLane
from tools.neuroncore.timing.masks import Mask
from tools.neuroncore.timing.pools import Pool

WORK = st.lists(st.tuples(st.floats(0, 1000), st.floats(1, 50)), min_size=1, max_size=40)


@given(WORK)
def test_an_engine_never_runs_two_instructions_at_once_nor_any_too_early(jobs):
    lane = EngineLane()
    spans = []
    for earliest, duration in jobs:
        start = lane.place(earliest, duration)
        assert start >= earliest
        spans.append((start, start + duration))
    spans.sort()
    assert all(a[1] <= b[0] + 1e-9 for a, b in zip(spans, spans[1:], strict=False))


def test_an_instruction_moves_up_into_an_idle_gap():
    lane = EngineLane()
    assert lane.place(100, 10) == 100
    assert lane.place(0, 50) == 0
    assert lane.place(0, 60) == 110
    assert lane.place(0, 50) == 50


@given(WORK)
def test_queues_do_no_more_work_than_time_allows(jobs):
    lane = DmaLane()
    last = 0.0
    for earliest, work in jobs:
        start, end = lane.place(earliest, work, 0.0)
        assert earliest <= start <= end + 1e-9
        last = max(last, end)
    assert sum(work for _, work in jobs) <= last + 1e-6
    assert lane.placed == pytest.approx(sum(work for _, work in jobs))


def test_a_read_overtakes_half_of_the_writes_before_it():
    queues = DmaQueues()
    for _ in range(10):
        queues.place(0, 10, 0, read=False)
    assert queues.place(0, 10, 0, read=True) == (50, 60)
    assert queues.place(0, 10, 0, read=False) == (110, 120)


def test_skipped_transfers_use_up_older_gaps_first():
    lane = DmaLane()
    lane.place(100, 10, 0)
    lane.place(0, 10, 0)
    overflow = lane.warp(advance=0, work=5, skip=10)
    assert overflow == 0 and lane.tail == 110
    assert lane.warp(advance=0, work=10, skip=10) == pytest.approx(60)
    assert lane.tail == pytest.approx(170)


@given(st.lists(st.floats(100, 4000), min_size=1, max_size=30))
def test_a_pool_never_gives_bytes_before_they_were_freed(sizes):
    pool = Pool(10_000)
    held: list[tuple[float, float]] = []
    clock = 0.0
    for size in sizes:
        while sum(s for s, _ in held) + 2 * size > 10_000 and held:
            old, _ = held.pop(0)
            clock += 10
            pool.free(old, clock)
        time = pool.allocate(size)
        assert time <= clock
        held.append((size, time))


def test_a_full_pool_makes_the_next_tile_wait_for_the_first_one_freed():
    pool = Pool(1000)
    assert pool.allocate(600) == 0
    assert pool.allocate(400) == 0
    pool.free(400, 70)
    pool.free(600, 90)
    assert pool.allocate(300) == 70
    assert pool.allocate(600) == 90


def test_a_mask_on_rows_cuts_rows_and_one_on_columns_cuts_columns():
    i = LoopVar("i", 3)
    rows = Mask([Affine(299, {i: -128, 0: -1})], (128, 512), lambda v: 0)
    assert rows.shares([0]) == (1, 1)
    assert rows.shares([2]) == (44 / 128, 1)
    columns = Mask([Affine(699, {i: -512, 1: -1})], (128, 512), lambda v: 0)
    assert columns.shares([1]) == (1, 188 / 512)
    assert columns.shares([2]) == (1, 0)


def test_the_average_of_a_mask_is_the_mean_over_its_iterations():
    i = LoopVar("i", 3)
    mask = Mask([Affine(299, {i: -128, 0: -1})], (128, 512))
    share, rows, some = mask.average()
    assert share == rows == pytest.approx(np.mean([1, 1, 44 / 128]))
    assert some == 1


def test_a_triangle_is_half_a_tile():
    mask = Mask([Affine(0, {0: 1, 1: -1})], (128, 128))
    assert mask.average()[0] == pytest.approx(0.5, abs=0.03)


def test_saying_a_condition_again_leaves_no_less_of_a_tile():
    upper, lower = Affine(0, {0: 4, 1: -1}), Affine(-1, {0: -4, 1: 1})
    once, often = Mask([upper], (128, 512)), Mask([upper] * 50, (128, 512))
    assert often.average() == once.average()
    both = once.average()[0] + Mask([lower], (128, 512)).average()[0]
    assert both == pytest.approx(1, abs=0.05)
    # A condition that another one already implies takes nothing away.
    assert Mask([upper, Affine(10, {0: 4, 1: -1})], (128, 512)).average()[0] == once.average()[0]


@given(st.integers(-600, 200), st.integers(1, 3))
def test_no_piece_of_a_tile_is_too_thin_to_be_paid_for(diagonal, width):
    strip = Mask([Affine(diagonal, {0: -1, 1: 1}), Affine(width - 1 - diagonal, {0: 1, 1: -1})], (128, 512))
    grid = np.arange(512)[None, :] - np.arange(128)[:, None] + diagonal
    held = ((grid >= 0) & (grid < width)).any()
    assert (strip.average()[0] > 0) or not held


def test_the_parts_of_a_tile_cut_by_an_edge_and_a_diagonal_add_up():
    inside = Affine(99, {1: -1})
    whole = Mask([inside], (128, 512)).average()[0]
    parts = [
        Mask([inside, Affine(0, {0: 1, 1: -1})], (128, 512)).average()[0],
        Mask([inside, Affine(-1, {0: -1, 1: 1})], (128, 512)).average()[0],
    ]
    assert sum(parts) == pytest.approx(whole, rel=0.05)


def test_an_engine_walks_the_box_around_a_triangle_and_dma_only_its_rows():
    triangle = Mask([Affine(0, {0: 1, 1: -1})], (128, 128), lambda v: 0).left([])
    assert triangle.walked == triangle.inner == 1 and triangle.free == pytest.approx(0.5, abs=0.03)
    strip = Mask(
        [Affine(0, {0: -1, 1: 1}), Affine(7, {0: 1, 1: -1}), Affine(63, {0: -1})], (128, 512), lambda v: 0
    )
    assert strip.left([]).walked == pytest.approx(71 / 512)


@given(st.integers(-300, 300), st.integers(-5, 5), st.integers(-5, 5), st.integers(0, 511))
def test_a_box_holds_all_that_a_mask_leaves(base, down, along, edge):
    held = base + down * np.arange(128)[:, None] + along * np.arange(512)[None, :] >= 0
    held &= np.arange(512)[None, :] <= edge
    terms = {axis: step for axis, step in ((0, down), (1, along)) if step}
    left = Mask([Affine(base, terms), Affine(edge, {1: -1})], (128, 512), lambda v: 0).left([])
    columns = np.flatnonzero(held.any(axis=0))
    assert left.walked * 512 >= (columns[-1] - columns[0] + 1 if columns.size else 0) - 1e-9


def test_loops_of_very_many_iterations_are_averaged_over_all_of_them():
    i, j = LoopVar("i", 4096), LoopVar("j", 4096)
    late = Mask([Affine(-2048, {i: 1}), Affine(0, {j: 1})], (128, 512))
    assert late.average()[0] == pytest.approx(0.5, abs=0.01)
