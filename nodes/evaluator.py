"""Evaluator: has kernels compiled, checked and timed, and writes down what came of them."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from tools.evaluation import Evaluation

from .budget import NOT_EVALUATED, CapReached, admission, slot
from .context import RunContext
from .events import emit
from .services import Services, services
from .state import Candidate, Draft, Exploration, Plan, PlanGroup

NO_KERNEL = "no_kernel"
"""Status in the ledger of a draft whose answer held no kernel."""


async def evaluator(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Judge every draft that has a kernel and no verdict yet, all at once."""
    shared = await services(state["run_id"], runtime.context or RunContext())
    drafts = [Draft.model_validate(draft) for draft in state["drafts"]]
    fresh = [draft for draft in drafts if draft.status is None]
    judged = await asyncio.gather(*(_judge(shared, state, draft) for draft in fresh))
    return {"drafts": [draft.plain() for draft in judged]}


async def _judge(shared: Services, state: Exploration, draft: Draft) -> Draft:
    place = slot(state["candidate_index"], state["plan_index"], draft.sample)
    if draft.kernel_id is None:
        draft = draft.model_copy(update={"status": NO_KERNEL, "error": draft.failure})
    else:
        try:
            shared.budget.admit_kernel(admission(state["round"], place, draft.fixes))
            found = await shared.evaluations.of(draft.kernel_id, shared.first_stage)
            draft = draft.model_copy(update=verdict(found))
        except CapReached as error:
            lost = {"kernel_id": None, "status": NOT_EVALUATED, "error": str(error), "refused": True}
            draft = draft.model_copy(update=lost)
    group = group_of(state, (draft,))
    await keep_verdict(shared, group, draft)
    emit(
        "evaluated",
        round=group.round,
        candidate=group.candidate_index,
        plan=group.plan_index,
        sample=draft.sample,
        kernel_id=draft.kernel_id,
        status=draft.status,
        latency_ms=draft.latency_ms,
        speedup=speedup(group, draft),
        error=draft.error,
        repairs=draft.fixes,
    )
    return draft


def verdict(found: Evaluation) -> dict[str, Any]:
    """What a draft needs to know of its evaluation."""
    return {
        "status": found.status.value,
        "latency_ms": found.latency_ms,
        "percent_of_peak": found.percent_of_peak,
        "error": str(found.error) if found.error is not None else None,
    }


def group_of(state: Exploration, drafts: tuple[Draft, ...], failure: str | None = None) -> PlanGroup:
    """An exploration as the selector takes it."""
    plan = state.get("plan")
    return PlanGroup(
        round=state["round"],
        parent=Candidate.model_validate(state["candidate"]),
        candidate_index=state["candidate_index"],
        plan_index=state["plan_index"],
        plan=Plan.model_validate(plan).brief() if plan else None,
        drafts=drafts,
        failure=failure,
        refused=state.get("refused", False),
    )


def speedup(group: PlanGroup, draft: Draft) -> float | None:
    """Of a draft over its parent."""
    return group.parent.latency_ms / draft.latency_ms if draft.latency_ms else None


async def keep_verdict(shared: Services, group: PlanGroup, draft: Draft) -> None:
    """Write down what became of a draft."""
    await shared.record.keep_candidate(
        round=group.round,
        slot=slot(group.candidate_index, group.plan_index, draft.sample),
        kernel_id=draft.kernel_id,
        parent_id=group.parent.kernel_id,
        plan_index=group.plan_index,
        status=draft.status,
        latency_ms=draft.latency_ms,
        speedup=speedup(group, draft),
        percent_of_peak=draft.percent_of_peak,
        repairs=draft.fixes,
        error=draft.error or "",
    )
