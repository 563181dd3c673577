"""Selector: the beam for the next round, and what this round has to teach. The choice itself is pure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.runtime import Runtime

from memory_store.curation import Child, Group, curate
from memory_store.experience import Kind
from tools.evaluation import Stage, Status

from .budget import NOT_EVALUATED, CapReached, slot
from .context import RunContext
from .evaluator import keep_verdict, verdict
from .events import emit
from .services import Services, services
from .state import Candidate, Lesson, PlanGroup, State, Stop

MOST_TRIED = 36
"""Lines kept of what was tried on one kernel: three rounds of the paper's twelve plans."""


async def selector(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Close the search part of a round."""
    shared = await services(state["run_id"], runtime.context or RunContext())
    round = state["round"]
    frontier = [Candidate.model_validate(candidate) for candidate in state["frontier"]]
    explored = ordered([PlanGroup.model_validate(group) for group in state["explored"]])
    groups, kept, lessons = await promoted(shared, frontier, explored, round)
    best = kept[0]
    new = {candidate.kernel_id for candidate in kept if candidate.round == round}
    await shared.record.keep_selection(
        round,
        chosen_slots(groups, new),
        {
            "kernel_id": best.kernel_id,
            "latency_ms": best.latency_ms,
            "round": best.round,
            "rounds_done": round,
        },
    )
    stop, kind = _end(shared, groups, round)
    drafts = [draft for group in groups for draft in group.drafts]
    correct = sum(draft.is_correct for draft in drafts)
    tried = {candidate.kernel_id: _tried(state, groups, candidate) for candidate in kept}
    shared.forget(
        {candidate.kernel_id for candidate in kept}
        | {kernel for lesson in lessons for kernel in (lesson.slow_kernel_id, lesson.fast_kernel_id)}
    )
    baseline = Candidate.model_validate(state["baseline"])
    told = {
        "best_kernel_id": best.kernel_id,
        "best_latency_ms": best.latency_ms,
        "best_percent_of_peak": best.percent_of_peak,
        "tried": len(drafts),
        "correct": correct,
    }
    emit("round_finished", round=round, **told)
    await shared.record.tell(f"round {round}", "round_finished", round, told)
    line = (
        f"Round {round}: {correct} of {len(drafts)} kernels correct, best {best.latency_ms:.4f} ms, "
        f"{baseline.latency_ms / best.latency_ms:.2f}x the baseline."
    )
    return {
        "frontier": [candidate.plain() for candidate in kept],
        "lessons": [lesson.plain() for lesson in lessons],
        "tried": tried,
        "stop": stop,
        "stop_kind": kind,
        "messages": [AIMessage(line, id=f"{state['run_id']}-round-{round}")],
    }


def _end(shared: Services, groups: Sequence[PlanGroup], round: int) -> tuple[str, str]:
    """Why this is the last round, and which kind of reason that is; empty if it is not."""
    budget = shared.budget
    full = budget.no_more_kernels()
    if not budget.stop and full:
        # Nothing refuses calls: what the round has to teach may still be put into words.
        return full, Stop.CAP.value
    if groups and all(group.plan is None for group in groups):
        budget.end(f"round {round} came to no plan: {groups[0].failure}", Stop.FAULT)
    return budget.stop, budget.stop_kind


async def promoted(
    shared: Services, frontier: Sequence[Candidate], groups: list[PlanGroup], round: int
) -> tuple[list[PlanGroup], list[Candidate], list[Lesson]]:
    """Select, with every kernel that is kept or taught checked on all seeds and regimes before.

    One that fails there counts as the failure it is, and the selection is made again without it.
    """
    context = shared.context
    while True:
        kept = select(frontier, groups, context.beam)
        lessons = [] if context.memory == "off" else lessons_of(groups, context, round)
        # After the last round nobody builds on the others any more.
        standing = kept[:1] if round >= context.iterations else kept
        wanted = {candidate.kernel_id for candidate in standing}
        # What a slow kernel teaches, it teaches by being slow.
        wanted |= {lesson.fast_kernel_id for lesson in lessons if lesson.kind == Kind.POSITIVE.value}
        ids = sorted(wanted)
        found = await asyncio.gather(*(_full_verdict(shared, one) for one in ids))
        failed = {one: it for one, it in zip(ids, found, strict=True) if it["status"] != Status.correct.value}
        if not failed:
            return groups, kept, lessons
        groups = [without(group, failed) for group in groups]
        for group in groups:
            for draft in group.drafts:
                if draft.kernel_id in failed:
                    await keep_verdict(shared, group, draft)


async def _full_verdict(shared: Services, kernel_id: str) -> dict[str, Any]:
    """A kernel's verdict on all seeds and regimes; one that there is no time left for is not kept."""
    try:
        return verdict(await shared.evaluations.of(kernel_id, Stage.promote))
    except CapReached as error:
        return {"status": NOT_EVALUATED, "latency_ms": None, "percent_of_peak": None, "error": str(error)}


def without(group: PlanGroup, failed: Mapping[str, dict[str, Any]]) -> PlanGroup:
    """A group in which drafts have the verdicts of the full check."""
    drafts = tuple(draft.model_copy(update=failed.get(draft.kernel_id or "", {})) for draft in group.drafts)
    return group.model_copy(update={"drafts": drafts})


def ordered(groups: Sequence[PlanGroup]) -> list[PlanGroup]:
    """By candidate and plan, whatever order they finished in."""
    return sorted(groups, key=lambda group: (group.candidate_index, group.plan_index))


def select(frontier: Sequence[Candidate], groups: Sequence[PlanGroup], beam: int) -> list[Candidate]:
    """The next frontier: parents and the groups' representatives, fastest first, at most `beam`.

    A group stands by its fastest correct kernel. One without would stand by its parent with an infinite latency,
    behind the parent itself and therefore never kept. Kernels equal by content are one; of equal latencies the
    older one goes first, then the one of the earlier group.
    """
    contenders = list(frontier)
    for group in ordered(groups):
        if not group.correct:
            continue
        best = group.correct[0]
        assert best.kernel_id is not None and best.latency_ms is not None
        contenders.append(
            Candidate(
                kernel_id=best.kernel_id,
                latency_ms=best.latency_ms,
                percent_of_peak=best.percent_of_peak or 0.0,
                parent_id=group.parent.kernel_id,
                plan_id=group.plan.id if group.plan else None,
                round=group.round,
            )
        )
    distinct: dict[str, Candidate] = {}
    for candidate in sorted(contenders, key=lambda one: one.latency_ms):
        distinct.setdefault(candidate.kernel_id, candidate)
    return list(distinct.values())[:beam]


def chosen_slots(groups: Sequence[PlanGroup], kernels: set[str]) -> list[str]:
    """The places of this round's kernels that the beam keeps, each kernel at its first place."""
    slots: dict[str, str] = {}
    for group in groups:
        for draft in group.correct[:1]:
            if draft.kernel_id in kernels:
                slots.setdefault(draft.kernel_id, slot(group.candidate_index, group.plan_index, draft.sample))
    return list(slots.values())


def lessons_of(groups: Sequence[PlanGroup], context: RunContext, round: int) -> list[Lesson]:
    """The pairs of the round that are worth an experience, in the paper's order."""
    by_key = {f"{group.candidate_index:04d}/{group.plan_index:04d}": group for group in groups}
    offered = [
        Group(
            key=key,
            parent_id=group.parent.kernel_id,
            parent_latency_ms=group.parent.latency_ms,
            children=tuple(
                Child(kernel_id=draft.kernel_id or "", latency_ms=draft.latency_ms or 0.0)
                for draft in group.correct
            ),
        )
        for key, group in by_key.items()
    ]
    pairs = curate(offered, t_pos=context.t_pos, t_neg=context.t_neg, top_k=context.top_k)
    lessons = []
    for pair in pairs:
        group = by_key[pair.key]
        assert group.plan is not None
        lessons.append(
            Lesson(
                kind=pair.kind.value,
                slow_kernel_id=pair.slow_kernel_id,
                fast_kernel_id=pair.fast_kernel_id,
                slow_latency_ms=pair.slow_latency_ms,
                fast_latency_ms=pair.fast_latency_ms,
                speedup=pair.speedup,
                parent_id=group.parent.kernel_id,
                plan_index=group.plan_index,
                plan=group.plan,
                round=round,
            )
        )
    return lessons


def _tried(state: State, groups: Sequence[PlanGroup], candidate: Candidate) -> list[str]:
    lines = [*state["tried"].get(candidate.kernel_id, []), *outcomes(groups, candidate)]
    return list(dict.fromkeys(lines))[-MOST_TRIED:]


def outcomes(groups: Sequence[PlanGroup], candidate: Candidate) -> list[str]:
    """What this round tried on a kernel, a line for each plan."""
    lines = []
    for group in groups:
        if group.parent.kernel_id != candidate.kernel_id or group.plan is None:
            continue
        if group.correct:
            speedup = candidate.latency_ms / (group.correct[0].latency_ms or candidate.latency_ms)
            outcome = f"{speedup:.2f}x"
        else:
            outcome = next((d.status for d in group.drafts if d.status), None) or "no kernel"
        lines.append(f"{group.plan.title}: {outcome}")
    return list(dict.fromkeys(lines))
