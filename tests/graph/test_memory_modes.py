"""What planners are shown of earlier rounds, in each memory mode."""

from __future__ import annotations

from graph.run import aoptimize
from memory_store.ledger import Direction, Ledger
from nodes.context import RunContext
from nodes.offline.reading import Request, read


def by_step(parent: str, planned: str, number: int) -> str:
    """Step 1 gains a tenth, Step 2 loses a half, whatever the kernel."""
    from .stand_in import LATENCY

    found = LATENCY.search(parent)
    assert found is not None
    factor = 0.9 if planned.startswith("Step 1") else 1.5
    return f"{float(found.group(1)) * factor:.6f}"


CONTEXT = RunContext(beam=1, plans=2, samples=1, iterations=4, top_k=2, capacity=3, memory="paper")


def planners(stand_in, run_id, round) -> list[Request]:
    from langchain_core.messages import HumanMessage, SystemMessage

    with Ledger(stand_in.home.ledger_url) as ledger:
        calls = ledger.model_calls(run_id, role="planner", round=round)
    kinds = {"system": SystemMessage, "human": HumanMessage}
    return [read([kinds[m["role"]](m["content"]) for m in call.prompt]) for call in calls]


async def test_the_papers_queue_is_shown_whole_newest_first(stand_in):
    stand_in.write = by_step
    result = await aoptimize(stand_in.problem, CONTEXT)
    # Each round teaches one positive and one negative pair; the queue holds three.
    shown = {
        round: {
            tuple((one.helped, one.speedup) for one in request.lessons)
            for request in planners(stand_in, result.run_id, round)
        }
        for round in (1, 2, 3, 4)
    }
    helped, hurt = (True, 1.11), (False, 0.67)
    assert shown == {1: {()}, 2: {(helped, hurt)}, 3: {(helped, hurt, helped)}, 4: {(helped, hurt, helped)}}
    with Ledger(stand_in.home.ledger_url) as ledger:
        queues = ledger.experience_ids(result.run_id, Direction.QUEUE)
        written = ledger.experience_ids(result.run_id, Direction.WRITTEN)
    key = ("stand-in", 2, "")
    assert queues[key] == [*written[key], written["stand-in", 1, ""][0]]


async def test_the_papers_mode_does_not_tell_what_was_tried(stand_in):
    result = await aoptimize(stand_in.problem, CONTEXT)
    assert not any(request.tried for request in planners(stand_in, result.run_id, 2))


async def test_recall_tells_what_was_tried_on_a_kernel_that_stays(stand_in):
    stand_in.write = lambda parent, planned, number: "2.0"
    context = CONTEXT.model_copy(update={"memory": "recall"})
    result = await aoptimize(stand_in.problem, context)
    tried = planners(stand_in, result.run_id, 3)[0].tried
    assert [line.split(":")[1] for line in tried] == [" 0.50x", " 0.50x"]


async def test_a_random_queue_keeps_new_ones_and_a_sample_of_the_old(stand_in):
    stand_in.write = by_step
    context = CONTEXT.model_copy(update={"memory_policy": "random", "iterations": 5})
    first = await aoptimize(stand_in.problem, context)
    again = await aoptimize(stand_in.problem, context)
    with Ledger(stand_in.home.ledger_url) as ledger:
        queues = ledger.experience_ids(first.run_id, Direction.QUEUE)
        written = ledger.experience_ids(first.run_id, Direction.WRITTEN)
        assert ledger.experience_ids(again.run_id, Direction.QUEUE) == queues
    for place, queue in queues.items():
        assert len(queue) <= 3 and queue[: len(written[place])] == written[place]


async def test_what_is_remembered_twice_is_one_experience(stand_in):
    stand_in.write = by_step
    first = await aoptimize(stand_in.problem, CONTEXT)
    count = len({one.id for one in stand_in.remembered})
    await aoptimize(stand_in.problem, CONTEXT)
    assert len({one.id for one in stand_in.remembered}) == count
    assert first.iterations == 4
