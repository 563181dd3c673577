"""The rules of the optimization memory, against figures worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_store.curation import Child, Group, admit, curate, pair_of
from memory_store.experience import Kind

PAPER = {"t_pos": 1.04, "t_neg": 1.15}


def group(key: str, parent_ms: float, *children_ms: float, parent: str = "parent") -> Group:
    children = tuple(Child(kernel_id=f"{key}-{i}", latency_ms=ms) for i, ms in enumerate(children_ms))
    return Group(key=key, parent_id=parent, parent_latency_ms=parent_ms, children=children)


def test_a_group_that_beats_its_parent_offers_parent_and_best_child():
    pair = pair_of(group("a", 10.0, 9.0, 8.0, 12.0), **PAPER)
    assert pair is not None
    assert (pair.kind, pair.slow_kernel_id, pair.fast_kernel_id) == (Kind.POSITIVE, "parent", "a-1")
    assert pair.speedup == pytest.approx(1.25)
    assert (pair.slow_latency_ms, pair.fast_latency_ms) == (10.0, 8.0)


def test_a_group_whose_best_still_loses_offers_its_slowest_child_and_the_parent():
    # Best speedup 10/12 = 0.833 < 1/1.15 = 0.870; the slowest child is the lesson: 10/20 = 0.5.
    pair = pair_of(group("a", 10.0, 12.0, 20.0), **PAPER)
    assert pair is not None
    assert (pair.kind, pair.slow_kernel_id, pair.fast_kernel_id) == (Kind.NEGATIVE, "a-1", "parent")
    assert pair.speedup == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("children", "why"),
    [
        ((), "no correct child"),
        ((10.4 / 1.04,), "a speedup of 1.04 exactly does not exceed t_pos"),
        ((10.2,), "neither"),
        ((10.4 * 1.15,), "a slowdown of 1.15 exactly does not exceed t_neg"),
        ((10.4, 99.0), "one bad child beside an even one"),
    ],
)
def test_a_group_between_the_thresholds_offers_nothing(children, why):
    assert pair_of(group("a", 10.4, *children), **PAPER) is None, why


def test_a_child_identical_to_its_parent_is_no_step():
    same = Group(
        key="a",
        parent_id="k",
        parent_latency_ms=10.0,
        children=(Child(kernel_id="k", latency_ms=5.0),),
    )
    assert pair_of(same, **PAPER) is None


def test_positives_take_at_most_half_and_negatives_what_is_left():
    # Speedups 2, 1.25, 1.111, 1.053 and, by slowest child, 0.25, 0.5, 0.8.
    groups = [
        group("p3", 10.0, 9.0),
        group("p1", 10.0, 5.0),
        group("n2", 10.0, 20.0),
        group("p2", 10.0, 8.0),
        group("n3", 10.0, 12.5),
        group("p4", 10.0, 9.5),
        group("n1", 10.0, 15.0, 40.0),
    ]
    assert [pair.key for pair in curate(groups, **PAPER, top_k=4)] == ["p1", "p2", "n1", "n2"]
    assert [pair.key for pair in curate(groups, **PAPER, top_k=8)] == [
        "p1",
        "p2",
        "p3",
        "p4",
        "n1",
        "n2",
        "n3",
    ]
    assert [pair.key for pair in curate(groups, **PAPER, top_k=5)] == ["p1", "p2", "n1", "n2", "n3"]
    assert curate(groups, **PAPER, top_k=0) == []


def test_without_positives_negatives_may_fill_every_place_but_not_the_other_way_round():
    negatives = [group(f"n{i}", 10.0, 20.0 + i) for i in range(6)]
    positives = [group(f"p{i}", 10.0, 5.0 + i / 10) for i in range(6)]
    assert [p.key for p in curate(negatives, **PAPER, top_k=4)] == ["n5", "n4", "n3", "n2"]
    assert [p.key for p in curate(positives, **PAPER, top_k=4)] == ["p0", "p1"]


def test_two_plans_that_lead_to_the_same_kernel_are_one_lesson():
    child = Child(kernel_id="fast", latency_ms=5.0)
    twins = [Group(key=key, parent_id="p", parent_latency_ms=10.0, children=(child,)) for key in ("b", "a")]
    assert [pair.key for pair in curate(twins, **PAPER, top_k=8)] == ["a"]


@given(st.permutations(range(8)))
def test_the_order_in_which_groups_arrive_does_not_matter(order):
    groups = [group(f"g{i}", 10.0, 5.0 + i % 3, 14.0 + i) for i in range(4)]
    groups += [group(f"h{i}", 10.0, 20.0) for i in range(4)]
    expected = curate(groups, **PAPER, top_k=6)
    assert curate([groups[i] for i in order], **PAPER, top_k=6) == expected


@pytest.mark.parametrize("bad", [{"t_pos": 0.9}, {"t_neg": 0.9}, {"top_k": -1}])
def test_thresholds_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError):
        curate([], **{**PAPER, "top_k": 8, **bad})


def test_three_rounds_of_the_paper_queue():
    queue: list[str] = []
    queue = admit(queue, ["a1", "a2"], capacity=4)
    assert queue == ["a1", "a2"]
    queue = admit(queue, ["b1"], capacity=4)
    assert queue == ["b1", "a1", "a2"]
    queue = admit(queue, ["c1", "c2"], capacity=4)
    assert queue == ["c1", "c2", "b1", "a1"]


def test_what_is_learned_again_moves_to_the_head_and_is_there_once():
    assert admit(["a", "b", "c"], ["c"], capacity=4) == ["c", "a", "b"]
    assert admit([], ["x", "x"], capacity=4) == ["x"]


def test_new_experiences_beyond_the_capacity_leave_no_room_for_old_ones():
    assert admit(["old"], ["n1", "n2", "n3"], capacity=2) == ["n1", "n2"]
    assert admit(["old"], ["n1"], capacity=0) == []


def test_the_random_policy_keeps_all_new_ones_and_a_sample_of_the_old_in_order():
    old = [f"old{i}" for i in range(10)]
    kept = admit(old, ["new"], capacity=5, policy="random", rng=random.Random(7))
    assert kept[0] == "new"
    assert len(kept) == 5
    assert kept[1:] == sorted(kept[1:])
    assert kept == admit(old, ["new"], capacity=5, policy="random", rng=random.Random(7))
    samples = {
        tuple(admit(old, ["new"], capacity=5, policy="random", rng=random.Random(i))) for i in range(9)
    }
    assert len(samples) > 1


@given(
    queue=st.lists(st.integers(0, 30), unique=True, max_size=12),
    new=st.lists(st.integers(0, 30), max_size=6),
    capacity=st.integers(0, 8),
    policy=st.sampled_from(["fifo", "random"]),
)
def test_the_queue_never_outgrows_its_capacity_nor_repeats_itself(queue, new, capacity, policy):
    kept = admit(queue, new, capacity=capacity, policy=policy, rng=random.Random(0))
    assert len(kept) <= capacity
    assert len(set(kept)) == len(kept)
    assert set(kept) <= set(queue) | set(new)
    assert len(kept) == min(capacity, len(set(queue) | set(new)))


def test_a_policy_that_needs_chance_asks_for_its_source():
    with pytest.raises(ValueError, match="random.Random"):
        admit(["a"], [], capacity=1, policy="random")
    with pytest.raises(ValueError, match="negative"):
        admit(["a"], [], capacity=-1)
    with pytest.raises(ValueError, match="lifo"):
        admit(["a"], [], capacity=1, policy="lifo")
