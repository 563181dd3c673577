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
from .state import Candidate, Lesson, Part, PlanGroup, State, Stop

MOST_TRIED = 36
"""Lines kept of what was tried on one kernel: three rounds of the paper's twelve plans."""


async def selector(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Close the search part of a round."""
    shared = await services(state["run_id"], runtime.context or RunContext())
    round = state["round"]
    frontier = [Candidate.model_validate(candidate) for candidate in state["frontier"]]
    explored = ordered([PlanGroup.model_validate(group) for group in state["explored"]])
    drafted = [PlanGroup.model_validate(group) for group in state["plans"]]
    is_cut = _is_cut_short(shared, [*explored, *drafted], round)
    if is_cut and not any(_end(shared, round, is_cut)):
        # It was an earlier period of the run that could not do it all: what is left is done now.
        return {"round": round - 1, "unfinished": Part.SEARCH.value}
    if is_cut and shared.context.replay_of:
        recording = shared.budget.recording
        lost = {kernel: _lost(recording.stop) for kernel in recording.unchecked}
        explored = await _with_verdicts(shared, explored, lost)
    groups, kept, lessons = await promoted(shared, frontier, explored, round, is_last=is_cut)
    is_cut = is_cut or _is_cut_short(shared, groups, round)
    best = kept[0]
    new = {candidate.kernel_id for candidate in kept if candidate.round == round}
    await shared.record.keep_selection(
        round,
        chosen_slots(groups, new),
        {
            "kernel_id": best.kernel_id,
            "latency_ms": best.latency_ms,
            "round": best.round,
            "rounds_done": round - is_cut,
        },
    )
    drafts = [draft for group in groups for draft in group.drafts]
    correct = sum(draft.is_correct for draft in drafts)
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
    line = (
        f"Round {round}: {correct} of {len(drafts)} kernels correct, best {best.latency_ms:.4f} ms, "
        f"{baseline.latency_ms / best.latency_ms:.2f}x the baseline."
    )
    found: dict[str, Any] = {
        "best": best.plain(),
        "messages": [AIMessage(line, id=f"{state['run_id']}-round-{round}")],
    }
    if is_cut:
        emit("round_cut_short", round=round, **told)
        stop, kind = _end(shared, round, is_cut)
        # Frontier and lessons of a part would not be those of the whole: they wait until the rest is done.
        return found | {"round": round - 1, "unfinished": Part.SEARCH.value, "stop": stop, "stop_kind": kind}
    emit("round_finished", round=round, **told)
    await shared.record.tell(f"round {round}", "round_finished", round, told)
    if groups and all(group.plan is None for group in groups):
        shared.budget.end(f"round {round} came to no plan: {groups[0].failure}", Stop.FAULT)
    stop, kind = _end(shared, round, is_cut)
    return found | {
        "frontier": [candidate.plain() for candidate in kept],
        "lessons": [lesson.plain() for lesson in lessons],
        "tried": {candidate.kernel_id: _tried(state, groups, candidate) for candidate in kept},
        "unfinished": "",
        "stop": stop,
        "stop_kind": kind,
    }


def _is_cut_short(shared: Services, groups: Sequence[PlanGroup], round: int) -> bool:
    """Whether some of the round is still to be done; in a replay, whether it was in the run that is replayed."""
    if shared.context.replay_of:
        return round == shared.budget.recording.cut_round
    return any(group.is_cut_short for group in groups)


def _end(shared: Services, round: int, is_cut: bool) -> tuple[str, str]:
    """Why this is the last round, and which kind of reason that is; empty if it is not."""
    budget = shared.budget
    # After the last round there is nothing that it could keep from being done.
    is_over = not is_cut and round >= shared.context.iterations
    full = "" if is_over else budget.no_more_kernels()
    if budget.stop:
        return budget.stop, budget.stop_kind
    if is_cut and shared.context.replay_of:
        return budget.recording.stop, budget.recording.stop_kind
    if full:
        # Nothing refuses calls: what a whole round has to teach may still be put into words.
        return full, Stop.CAP.value
    return "", ""


async def promoted(
    shared: Services, frontier: Sequence[Candidate], groups: list[PlanGroup], round: int, is_last: bool
) -> tuple[list[PlanGroup], list[Candidate], list[Lesson]]:
    """Select, with every kernel that is kept or taught checked on all seeds and regimes before.

    One that fails there counts as the failure it is, and the selection is made again without it. If the round
    `is_last` for now, only the best kernel is wanted, and nothing is taught.
    """
    context = shared.context
    while True:
        kept = select(frontier, groups, context.beam)
        lessons = [] if is_last or context.memory == "off" else lessons_of(groups, context, round)
        # After the last round nobody builds on the others any more.
        standing = kept[:1] if is_last or round >= context.iterations else kept
        wanted = {candidate.kernel_id for candidate in standing}
        # What a slow kernel teaches, it teaches by being slow.
        wanted |= {lesson.fast_kernel_id for lesson in lessons if lesson.kind == Kind.POSITIVE.value}
        ids = sorted(wanted)
        found = await asyncio.gather(*(_full_verdict(shared, one) for one in ids))
        failed = {one: it for one, it in zip(ids, found, strict=True) if it["status"] != Status.correct.value}
        if not failed:
            return groups, kept, lessons
        groups = await _with_verdicts(shared, groups, failed)


async def _with_verdicts(
    shared: Services, groups: Sequence[PlanGroup], failed: Mapping[str, dict[str, Any]]
) -> list[PlanGroup]:
    """The groups with other verdicts on some kernels, which are written down."""
    changed = [without(group, failed) for group in groups]
    for group in changed:
        for draft in group.drafts:
            if draft.kernel_id in failed:
                await keep_verdict(shared, group, draft)
    return changed


async def _full_verdict(shared: Services, kernel_id: str) -> dict[str, Any]:
    """A kernel's verdict on all seeds and regimes; one that there is no time left for is not kept."""
    try:
        return verdict(await shared.evaluations.of(kernel_id, Stage.promote))
    except CapReached as error:
        return _lost(str(error))


def _lost(reason: str) -> dict[str, Any]:
    """The verdict on a kernel that there was no time left to check in full."""
    figures = {"latency_ms": None, "percent_of_peak": None}
    return {"status": NOT_EVALUATED, **figures, "error": reason, "refused": True}


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
