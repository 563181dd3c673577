"""Recall: opens a round, and finds for every candidate the experiences that its planners should know."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from memory_store.experience import Experience, situation
from memory_store.ledger import Direction

from .context import RunContext
from .events import emit
from .features import features
from .services import Services, services
from .state import Candidate, State


async def recall(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Begin the next round with an empty table and a full memory."""
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    round = state["round"] + 1
    frontier = [Candidate.model_validate(candidate) for candidate in state["frontier"]]
    recalled: dict[str, list[str]] = {}
    for candidate in frontier:
        recalled[candidate.kernel_id] = await _recalled(shared, context, state, round, candidate)
    emit(
        "round_started",
        round=round,
        candidates=len(frontier),
        experiences=len({one for ids in recalled.values() for one in ids}),
    )
    return {
        "round": round,
        "unfinished": "",
        "recalled": recalled,
        "plans": None,
        "reviewed": [],
        "explored": None,
        "lessons": [],
        "learned": None,
    }


async def _recalled(
    shared: Services, context: RunContext, state: State, round: int, candidate: Candidate
) -> list[str]:
    if context.memory == "off" or context.capacity == 0:
        return []
    if context.memory == "paper":
        return state["queue"]
    # What a round recalled is settled by its first attempt, and for a replay by the run that it replays: the store
    # may know more by now.
    found = await shared.record.experience_list(round, Direction.USED, candidate.kernel_id)
    if found is None and context.replay_of:
        found = await shared.record.experience_list(
            round, Direction.USED, candidate.kernel_id, context.replay_of
        )
    if found is None:
        found = await _similar(shared, context, candidate)
    return await shared.record.keep_experience_list(round, Direction.USED, found, candidate.kernel_id)


async def _similar(shared: Services, context: RunContext, candidate: Candidate) -> list[Experience]:
    """The experiences nearest to a candidate's operator, bottleneck and structure, from every run."""
    memory = await shared.memory()
    if memory is None:
        return []
    evaluation = await shared.evaluations.of(candidate.kernel_id)
    text = situation(
        shared.problem.operator,
        evaluation.bounds.limiting if evaluation.bounds else "",
        features(await shared.source(candidate.kernel_id)),
    )

    def nearest() -> list[Experience]:
        from memory_store.chroma import Where

        found = memory.query(text, context.capacity, Where(target=context.target))
        return [one.experience for one in found]

    return await asyncio.to_thread(nearest)
