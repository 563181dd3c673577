from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.context import RunContext
from nodes.selector import chosen_slots, lessons_of, outcomes, select, without
from nodes.state import Candidate, Draft, Plan, PlanGroup


def candidate(name, latency, **more):
    return Candidate(kernel_id=name, latency_ms=latency, percent_of_peak=10 / latency, **more)


def plan(index):
    return Plan(id=f"plan{index}", title=f"Step {index}", change="do it")


def group(parent, index, *drafts, candidate_index=0, round=1):
    """A plan's kernels, each as (name, latency) or (name, status)."""
    made = []
    for sample, (name, outcome) in enumerate(drafts):
        if isinstance(outcome, str):
            made.append(Draft(sample=sample, kernel_id=name, status=outcome))
        else:
            made.append(
                Draft(
                    sample=sample,
                    kernel_id=name,
                    status="correct",
                    latency_ms=outcome,
                    percent_of_peak=10 / outcome,
                )
            )
    return PlanGroup(
        round=round,
        parent=parent,
        candidate_index=candidate_index,
        plan_index=index,
        plan=plan(index),
        drafts=tuple(made),
    )


BASE = candidate("base", 1.0)


def names(frontier):
    return [one.kernel_id for one in frontier]


def test_a_group_stands_by_its_fastest_correct_kernel_only():
    groups = [group(BASE, 0, ("a", 0.9), ("b", 0.8)), group(BASE, 1, ("c", 0.85), ("d", "incorrect"))]
    assert names(select([BASE], groups, 6)) == ["b", "c", "base"]


def test_parents_compete_so_the_best_never_gets_worse():
    groups = [group(BASE, 0, ("a", 1.2)), group(BASE, 1, ("b", 1.1))]
    assert names(select([BASE], groups, 2)) == ["base", "b"]


def test_a_group_without_a_correct_kernel_adds_nothing():
    groups = [group(BASE, 0, ("a", "compile_error"), ("b", "suspect")), group(BASE, 1)]
    assert select([BASE], groups, 6) == [BASE]


def test_kernels_equal_by_content_are_one():
    other = candidate("other", 0.95)
    groups = [
        group(BASE, 0, ("a", 0.9)),
        group(other, 0, ("a", 0.9), candidate_index=1),
        group(BASE, 1, ("other", 0.95)),
    ]
    kept = select([BASE, other], groups, 6)
    assert names(kept) == ["a", "other", "base"]
    assert kept[0].parent_id == "base" and kept[1].parent_id is None


def test_equal_latencies_go_to_the_older_one():
    groups = [group(BASE, 0, ("a", 1.0)), group(BASE, 1, ("b", 1.0))]
    assert names(select([BASE], groups, 3)) == ["base", "a", "b"]


def test_the_order_of_arrival_does_not_matter():
    groups = [group(BASE, index, (f"k{index}", 0.9)) for index in range(6)]
    assert select([BASE], groups, 4) == select([BASE], groups[::-1], 4)


def test_a_kept_kernel_knows_its_parent_plan_and_round():
    kept = select([BASE], [group(BASE, 3, ("a", 0.5), round=7)], 1)[0]
    assert (kept.parent_id, kept.plan_id, kept.round) == ("base", "plan3", 7)


latencies = st.one_of(
    st.floats(min_value=0.1, max_value=10), st.sampled_from(["incorrect", "timeout", "suspect", "rejected"])
)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), latencies), max_size=3), max_size=12),
    st.integers(1, 8),
)
def test_the_frontier_is_sorted_distinct_correct_and_within_the_beam(drafts, beam):
    groups = [group(BASE, index, *one) for index, one in enumerate(drafts)]
    kept = select([BASE], groups, beam)
    assert 1 <= len(kept) <= beam
    assert names(kept) == list(dict.fromkeys(names(kept)))
    assert [one.latency_ms for one in kept] == sorted(one.latency_ms for one in kept)
    assert kept[0].latency_ms <= BASE.latency_ms
    correct = {d.kernel_id for g in groups for d in g.drafts if d.is_correct} | {"base"}
    assert set(names(kept)) <= correct


def test_slots_name_where_kept_kernels_came_from():
    groups = [
        group(BASE, 0, ("x", "timeout"), ("a", 0.9)),
        group(BASE, 1, ("a", 0.9)),
        group(BASE, 2, ("b", 0.8)),
    ]
    assert chosen_slots(groups, {"a", "b"}) == ["0.0.1", "0.2.0"]


def test_what_was_tried_is_told_with_its_outcome():
    groups = [
        group(BASE, 0, ("a", 0.5)),
        group(BASE, 1, ("b", "incorrect")),
        group(candidate("other", 1.0), 0, ("c", 0.5), candidate_index=1),
    ]
    assert outcomes(groups, BASE) == ["Step 0: 2.00x", "Step 1: incorrect"]


def test_a_full_check_can_take_a_verdict_back():
    failed = without(
        group(BASE, 0, ("a", 0.5), ("b", 0.8)), {"a": {"status": "incorrect", "latency_ms": 0.5}}
    )
    assert [draft.kernel_id for draft in failed.correct] == ["b"]


class TestThePapersRulesByHand:
    """Three rounds worked out on paper: B=2, N=2, K=2, TopK=2, ExpN=3, t_pos=1.04, t_neg=1.15."""

    context = RunContext(beam=2, plans=2, samples=2, top_k=2, capacity=3, memory="paper")

    def lessons(self, groups, round):
        return [
            (lesson.kind, lesson.slow_kernel_id, lesson.fast_kernel_id, round_to(lesson.speedup))
            for lesson in lessons_of(groups, self.context, round)
        ]

    def test_round_one(self):
        # Plan 0: 1.0 / 0.8 = 1.25 > 1.04, so positive, base -> a. Plan 1: best is 1.3, 1.0 / 1.3 = 0.769 < 1 / 1.15,
        # so negative: the slowest child d (2.0, speedup 0.5) is what not to do. One place each: TopK/2 and the rest.
        groups = [
            group(BASE, 0, ("a", 0.8), ("b", 0.9)),
            group(BASE, 1, ("c", 1.3), ("d", 2.0)),
        ]
        assert names(select([BASE], groups, 2)) == ["a", "base"]
        assert self.lessons(groups, 1) == [("positive", "base", "a", 1.25), ("negative", "d", "base", 0.5)]

    def test_round_two(self):
        # Frontier a (0.8), base (1.0). a/0: best 0.78, 1.026 neither. a/1: no correct kernel. base/0: 0.7, 1.43
        # positive. base/1: 0.79, 1.27 positive but TopK/2 = 1 place is taken by the better one; no negatives fill up.
        a = candidate("a", 0.8)
        groups = [
            group(a, 0, ("e", 0.78), ("f", 0.9), round=2),
            group(a, 1, ("g", "compile_error"), ("h", "incorrect"), round=2),
            group(BASE, 0, ("i", 0.7), ("j", "timeout"), candidate_index=1, round=2),
            group(BASE, 1, ("k", 0.79), ("l", 0.79), candidate_index=1, round=2),
        ]
        assert names(select([a, BASE], groups, 2)) == ["i", "e"]
        assert self.lessons(groups, 2) == [("positive", "base", "i", 1.429)]

    def test_round_three(self):
        # Frontier i (0.7), e (0.78). i/0: best 0.84, 0.833 < 0.8696 negative by its slowest, 0.9 (0.778).
        # i/1: 0.7 / 0.68 = 1.029 nothing. e/0: 0.78 / 0.95 = 0.821 negative by 1.56 (0.5). e/1: 0.78 / 0.75 = 1.04,
        # which does not exceed 1.04. Negatives ascending fill both places: 0.5 first, then 0.778.
        i, e = candidate("i", 0.7), candidate("e", 0.78)
        groups = [
            group(i, 0, ("m", 0.84), ("n", 0.9), round=3),
            group(i, 1, ("o", 0.68), ("p", 0.71), round=3),
            group(e, 0, ("q", 0.95), ("r", 1.56), candidate_index=1, round=3),
            group(e, 1, ("s", 0.75), ("t", 0.8), candidate_index=1, round=3),
        ]
        assert names(select([i, e], groups, 2)) == ["o", "i"]
        assert self.lessons(groups, 3) == [("negative", "r", "e", 0.5), ("negative", "n", "i", 0.778)]


def round_to(value):
    return pytest.approx(value, abs=5e-4)
