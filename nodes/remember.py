"""Remember: puts a round's experiences into the memory, under its capacity."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from memory_store.curation import admit
from memory_store.experience import Experience
from memory_store.ledger import Direction

from .context import RunContext
from .seeds import rng
from .services import services
from .state import State


async def remember(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Admit what was learned, in the order of the lessons, whoever was summarized first."""
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    round = state["round"]
    learned = sorted(state["learned"], key=lambda item: item["index"])
    new = [Experience.model_validate(item["experience"]) for item in learned]
    queue = admit(
        state["queue"],
        [experience.id for experience in new],
        capacity=context.capacity,
        policy=context.memory_policy,
        rng=rng(context.seed, "memory", round),
    )
    await shared.record.keep_experience_list(round, Direction.WRITTEN, new)
    kept = await shared.record.experiences(queue)
    await shared.record.keep_experience_list(round, Direction.QUEUE, kept)
    memory = await shared.memory() if new else None
    if memory is not None:
        await asyncio.to_thread(lambda: memory.add(new, run_id=shared.run_id))
    return {"queue": queue}
