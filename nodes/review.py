"""Review: the places where a person may look before the run goes on."""

from __future__ import annotations

import hashlib
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from .context import RunContext
from .planner import propose
from .services import services
from .state import Candidate, Exploration, Plan, PlanGroup, State, Stop


async def draft(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Plan ahead of the exploration, so that all plans of a round can be looked at together."""
    context = runtime.context or RunContext()
    proposal = await propose(state, context)
    group = PlanGroup(
        round=state["round"],
        parent=Candidate.model_validate(state["candidate"]),
        candidate_index=state["candidate_index"],
        plan_index=state["plan_index"],
        **proposal,
    )
    return {"plans": [group.plain()]}


async def review(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Show the round's plans to a person and take back which to carry out.

    The interrupt's value is `{"ask": "plans", "round": r, "plans": [{"candidate": c, "plan": p, "title": ...,
    "change": ...}, ...]}`. The answer is `"approve"`, or a list of such entries: those that are missing are dropped,
    `title` and `change` may be edited. To any other answer the question comes back with a `complaint`.
    """
    groups = sorted(
        (PlanGroup.model_validate(group) for group in state["plans"]),
        key=lambda group: (group.candidate_index, group.plan_index),
    )
    shown = [
        {
            "candidate": group.candidate_index,
            "plan": group.plan_index,
            "title": group.plan.title,
            "change": group.plan.change,
        }
        for group in groups
        if group.plan is not None
    ]
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    round = state["round"]
    recorded = await shared.record.told("reviewed", round, context.replay_of)
    entries = [entry for one in recorded for entry in one["kept"]]
    # In a round that a cap cut short, what was decided then is not asked again.
    seen = {tuple(place) for one in recorded for place in one.get("shown", [])}
    unseen = [entry for entry in shown if _place(entry) not in seen]
    if unseen and not (recorded and context.replay_of):
        question = {"ask": "plans", "round": round, "plans": unseen}
        answer = interrupt(question)
        while (decided := _entries(answer, unseen)) is None:
            answer = interrupt({**question, "complaint": 'answer "approve", or a list of plans to keep'})
        recorded = [*recorded, {"kept": decided, "shown": [_place(entry) for entry in unseen]}]
        entries += decided
    for number, one in enumerate(recorded):
        await shared.record.tell(f"reviewed {round}" + f".{number}" * bool(number), "reviewed", round, one)
    chosen = {_place(entry): entry for entry in entries}
    kept = []
    for group in groups:
        entry = chosen.get((group.candidate_index, group.plan_index))
        if entry is not None and group.plan is not None:
            kept.append(group.model_copy(update={"plan": _edited(group.plan, entry)}).plain())
    return {"reviewed": kept}


def _place(entry: dict[str, Any]) -> tuple[int, int]:
    return entry["candidate"], entry["plan"]


def _entries(answer: Any, shown: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The plans that an answer keeps; None for an answer that makes no sense."""
    if answer == "approve":
        return shown
    places = {(entry["candidate"], entry["plan"]) for entry in shown}
    if not isinstance(answer, list):
        return None
    for entry in answer:
        if not isinstance(entry, dict) or (entry.get("candidate"), entry.get("plan")) not in places:
            return None
        if not all(isinstance(entry.get(field, ""), str) for field in ("title", "change")):
            return None
    return answer


def _edited(plan: Plan, entry: dict[str, Any]) -> Plan:
    title, change = entry.get("title", plan.title), entry.get("change", plan.change)
    if (title, change) == (plan.title, plan.change):
        return plan
    name = hashlib.sha256(f"{title}\n{change}".encode()).hexdigest()[:16]
    # An edited plan is no longer the known rewrite that it may have been.
    return plan.model_copy(
        update={"id": name, "title": title, "change": change, "rewrite": None, "is_edited": True}
    )


async def budget_review(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Ask a person whether to go on once the soft cap is spent. Answers: `"continue"`, or anything else to stop.

    A round in which nothing could be evaluated is not begun.
    """
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    if full := shared.budget.no_more_kernels():
        return {"stop": full, "stop_kind": Stop.CAP.value}
    spent = shared.budget.spent.usd
    if context.soft_usd is None or spent < context.soft_usd or state["approved_usd"] > spent:
        return {}
    answer = interrupt({"ask": "budget", "spent_usd": spent, "soft_usd": context.soft_usd})
    if answer == "continue":
        # Asked again when as much again is spent.
        return {"approved_usd": spent + context.soft_usd}
    return {"stop": f"stopped by a person after {spent:.4f} USD", "stop_kind": Stop.PERSON.value}
