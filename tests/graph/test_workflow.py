"""The graph as LangGraph's server and its clients see it."""

from __future__ import annotations

from blockbuster import blockbuster_ctx
from langgraph.checkpoint.memory import InMemorySaver

from graph.workflow import build_graph, graph
from nodes.context import RunContext


async def test_nothing_blocks_the_event_loop(stand_in):
    notices = []
    with blockbuster_ctx():
        async for event in graph.astream(
            {"problem": stand_in.problem}, context=stand_in.quick, stream_mode="custom"
        ):
            notices += [event] if event["event"] == "notice" else []
            last = event
    assert last["event"] == "run_finished" and last["speedup"] > 1.2
    assert not notices


async def test_settings_may_come_as_plain_json(stand_in):
    context = stand_in.quick.model_dump(mode="json")
    end = await graph.ainvoke({"problem": stand_in.problem}, context=context)
    assert end["result"]["iterations"] == 3


async def test_an_error_is_data(stand_in):
    end = await graph.ainvoke({"problem": "silo"}, context=stand_in.quick)
    assert "unknown problem 'silo'" in end["error"] and not end["result"]


async def test_a_second_problem_on_the_same_thread_starts_afresh(stand_in):
    served = build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    first = await served.ainvoke(
        {"problem": stand_in.problem}, {**config, "run_id": "a" * 32}, context=stand_in.quick
    )
    again = await served.ainvoke(
        {"problem": stand_in.problem}, {**config, "run_id": "b" * 32}, context=stand_in.quick
    )
    assert again["result"]["best_kernel_id"] == first["result"]["best_kernel_id"]
    assert again["result"]["run_id"] != first["result"]["run_id"]
    state = await served.aget_state(config)
    assert [message.type for message in state.values["messages"]] == ["ai"] * 8


async def test_state_holds_references_and_no_sources(stand_in):
    served = build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    await served.ainvoke({"problem": stand_in.problem}, config, context=stand_in.quick)
    async for snapshot in served.aget_state_history(config):
        values = {name: value for name, value in snapshot.values.items() if name != "problem"}
        assert "@nki.jit" not in str(values)


def test_the_input_is_one_field_and_every_setting_is_described():
    assert list(graph.get_input_jsonschema()["properties"]) == ["problem"]
    settings = RunContext.model_json_schema()
    described = [
        settings["properties"],
        *(one["properties"] for one in settings["$defs"].values() if "properties" in one),
    ]
    assert all("description" in field for fields in described for field in fields.values())


def test_the_defaults_are_the_papers():
    context = RunContext()
    assert (context.beam, context.plans, context.samples, context.iterations) == (6, 12, 2, 16)
    assert (context.top_k, context.capacity, context.t_pos, context.t_neg) == (8, 16, 1.04, 1.15)
    assert RunContext.preset("paper").memory == "paper"
