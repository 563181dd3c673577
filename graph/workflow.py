"""The search as a graph; read it beside docs/search.md.

    prepare -> recall -> [draft x B·N -> review] -> explore x B·N -> selector -> summarizer x pairs -> remember
                  ^                                                                                       |
                  +---------------------- budget_review <- next round or finish <-------------------------+

A round that a cap cuts short goes from selector to finish; taken up again it begins anew, and finds what it has in
the ledger.

`explore` is a graph of its own: planner -> executor x K -> evaluator (-> fixer -> evaluator ...), so that a slow
plan holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import Send

from nodes.budget import CapReached
from nodes.context import RunContext
from nodes.evaluator import evaluator, group_of
from nodes.events import emit, forwarded
from nodes.executor import executor
from nodes.finish import finish
from nodes.fixer import fixer, needs_fix
from nodes.planner import planner
from nodes.prepare import prepare
from nodes.recall import recall
from nodes.remember import remember
from nodes.review import budget_review, draft, review
from nodes.selector import selector
from nodes.services import services
from nodes.state import Draft, Exploration, Input, Output, Part, State
from nodes.summarizer import summarizer

STEPS_A_ROUND = 16
"""Supersteps of one round at most, for LangGraph's recursion limit; twice those of a round that is not cut short."""


def write_all_samples(state: Exploration, runtime: Runtime[RunContext]) -> Sequence[Send] | str:
    """After planning: one executor for each of the K samples; without a plan there is nothing to write."""
    if state["plan"] is None:
        return END
    samples = (runtime.context or RunContext()).samples
    return [Send("executor", {**state, "sample": sample, "drafts": []}) for sample in range(samples)]


def fix_or_leave(state: Exploration, runtime: Runtime[RunContext]) -> str:
    """After evaluation: back to the fixer while a draft fails and has repairs left."""
    fixes = (runtime.context or RunContext()).fixes
    failing = any(needs_fix(Draft.model_validate(one), fixes) for one in state["drafts"])
    return "fixer" if failing else END


def build_explore() -> CompiledStateGraph[Any, Any, Any, Any]:
    """One candidate, one plan, K kernels. Keeps no checkpoints of its own: the ledger has every finished step."""
    builder = StateGraph(Exploration, context_schema=RunContext)
    builder.add_node("planner", planner)
    builder.add_node("executor", executor)
    builder.add_node("evaluator", evaluator)
    builder.add_node("fixer", fixer)
    builder.add_edge(START, "planner")
    builder.add_conditional_edges("planner", write_all_samples, ["executor", END])
    builder.add_edge("executor", "evaluator")
    builder.add_conditional_edges("evaluator", fix_or_leave, ["fixer", END])
    builder.add_edge("fixer", "evaluator")
    return builder.compile(checkpointer=False, name="explore")


def explorations(state: State, count: int) -> list[Exploration]:
    """What every (candidate, plan index) of a round starts from."""
    return [
        Exploration(
            run_id=state["run_id"],
            round=state["round"],
            candidate=candidate,
            candidate_index=index,
            plan_index=plan_index,
            recalled=state["recalled"].get(candidate["kernel_id"], []),
            tried=state["tried"].get(candidate["kernel_id"], []),
            plan=None,
            failure=None,
            drafts=[],
        )
        for index, candidate in enumerate(state["frontier"])
        for plan_index in range(count)
    ]


def spread(state: State, runtime: Runtime[RunContext]) -> list[Send]:
    """After recall: every candidate's N plans at once, past a person first where the run asks for one."""
    context = runtime.context or RunContext()
    node = "draft" if context.review_plans else "explore"
    return [Send(node, exploration) for exploration in explorations(state, context.plans)]


def carry_out(state: State, runtime: Runtime[RunContext]) -> list[Send] | str:
    """After review: the plans that a person let through."""
    kept = {(group["candidate_index"], group["plan_index"]): group["plan"] for group in state["reviewed"]}
    count = (runtime.context or RunContext()).plans
    chosen = [
        {**exploration, "plan": kept[place]}
        for exploration in explorations(state, count)
        if (place := (exploration["candidate_index"], exploration["plan_index"])) in kept
    ]
    return [Send("explore", exploration) for exploration in chosen] or "selector"


def summarize_all(state: State) -> list[Send] | str:
    """After selection: one summarizer for each pair; none after a round that was cut short."""
    if state["unfinished"] == Part.SEARCH:
        return "finish" if state["stop"] else "recall"
    sends = [
        Send("summarizer", {"run_id": state["run_id"], "index": index, "lesson": lesson})
        for index, lesson in enumerate(state["lessons"])
    ]
    return sends or "remember"


def begin_or_end(state: State, runtime: Runtime[RunContext]) -> list[Send] | str:
    """After prepare and after each round: whether a further round begins; before it, what there is still to learn."""
    if state["unfinished"] == Part.LESSONS and not state["stop"]:
        return summarize_all(state)
    context = runtime.context or RunContext()
    over = state["error"] or state["stop"] or state["round"] >= context.iterations
    return "finish" if over else "budget_review"


def spend_or_end(state: State) -> str:
    """After budget_review: a person may have said no."""
    return "finish" if state["stop"] else "recall"


def build_graph(
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The whole search.

    Args:
        checkpointer: keeps the run's state between steps, so that it can be resumed; LangGraph's server brings its
            own.
    """
    exploring = build_explore()

    async def explore(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Explore one plan to its end. Whatever fails in it is its result: an exception would cancel the others."""
        end: dict[str, Any] = {}
        shared = await services(state["run_id"], runtime.context or RunContext())
        try:
            # A control of its own: when the run is asked to stop, explorations under way are finished.
            with shared.faults_end_the_run(), forwarded(runtime.stream_writer):
                end = await exploring.ainvoke(state, context=runtime.context, control=RunControl())
        except CapReached as error:
            end = {"failure": str(error), "refused": True}
        except Exception as error:
            end = {"failure": f"{type(error).__name__}: {error}"}
            with forwarded(runtime.stream_writer):
                emit("notice", message=f"an exploration failed: {end['failure']}")
        drafts = tuple(Draft.model_validate(one) for one in end.get("drafts", []))
        told: dict[str, Any] = {"plan": end.get("plan"), "refused": end.get("refused", False)}
        group = group_of({**state, **told}, drafts, end.get("failure"))  # type: ignore[typeddict-item]
        # What a cap refused is told once, by the end of the run.
        if group.failure and not group.refused:
            place = f"candidate {group.candidate_index}, plan {group.plan_index}"
            emit("notice", message=f"{place} came to nothing: {' '.join(group.failure.split())}")
        return {"explored": [group.plain()]}

    builder = StateGraph(State, context_schema=RunContext, input_schema=Input, output_schema=Output)
    builder.add_node("prepare", prepare)
    builder.add_node("budget_review", budget_review)
    builder.add_node("recall", recall)
    builder.add_node("draft", draft)
    builder.add_node("review", review)
    builder.add_node("explore", explore)
    builder.add_node("selector", selector)
    builder.add_node("summarizer", summarizer)
    builder.add_node("remember", remember)
    builder.add_node("finish", finish)
    builder.add_edge(START, "prepare")
    builder.add_conditional_edges("prepare", begin_or_end, ["budget_review", "finish"])
    builder.add_conditional_edges("budget_review", spend_or_end, ["recall", "finish"])
    builder.add_conditional_edges("recall", spread, ["draft", "explore"])
    builder.add_edge("draft", "review")
    builder.add_conditional_edges("review", carry_out, ["explore", "selector"])
    builder.add_edge("explore", "selector")
    builder.add_conditional_edges("selector", summarize_all, ["summarizer", "remember", "recall", "finish"])
    builder.add_edge("summarizer", "remember")
    builder.add_conditional_edges("remember", begin_or_end, ["budget_review", "summarizer", "finish"])
    builder.add_edge("finish", END)
    return builder.compile(checkpointer=checkpointer, name="accelopt")


graph = build_graph()
"""The graph that LangGraph's server brings its own checkpointer to."""
