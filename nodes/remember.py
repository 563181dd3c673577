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
from .state import Part, State


async def remember(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Admit what was learned, in the order of the lessons, whoever was summarized first.

    With some of it still to be written, nothing is admitted yet: the run ends here, or the lessons come again if it
    was an earlier period of the run that could not pay for them.
    """
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    # Of a lesson that came again, the later word counts.
    by_lesson = {item["index"]: item for item in state["learned"]}
    if any(item.get("refused") for item in by_lesson.values()):
        # The queue and the next round's prompts would not be those of a run without the cap.
        budget = shared.budget
        return {"unfinished": Part.LESSONS.value, "stop": budget.stop, "stop_kind": budget.stop_kind}
    round = state["round"]
    new = [Experience.model_validate(by_lesson[index]["experience"]) for index in sorted(by_lesson)]
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
    return {"queue": queue, "unfinished": ""}
