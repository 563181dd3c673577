"""Planner: reads a candidate's profile and proposes one step."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from langgraph.runtime import Runtime
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tools.evaluation import Evaluation

from .answers import nothing_said
from .budget import CapReached, admission, slot
from .calls import CallKey, NoAnswer
from .cards import cards
from .context import Role, RunContext
from .events import emit
from .experiences import prompt_text
from .prompt import planner_prompt
from .seeds import derive
from .services import services
from .state import Candidate, Exploration, Plan


class PlanAnswer(BaseModel):
    """One change to one kernel."""

    model_config = ConfigDict(extra="ignore")

    bottleneck: str = Field(default="", description="What limits the kernel, from the profile.")
    title: str = Field(min_length=1, description="The change in at most ten words.")
    change: str = Field(min_length=1, description="What to change, where, and why the result stays the same.")
    expected: str = Field(default="", description="Which bound moves, and by how much.")
    rewrite: Annotated[str | None, BeforeValidator(nothing_said)] = Field(
        default=None, description="Name of a known rewrite, if it is one."
    )


async def planner(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Propose one plan for the candidate, unless a person has already settled it."""
    if state.get("plan") is not None:
        return {}
    context = runtime.context or RunContext()
    budget = (await services(state["run_id"], context)).budget
    place = state["round"], state["candidate_index"], state["plan_index"]
    try:
        promised = budget.promise_kernels(
            admission(place[0], slot(*place[1:], sample)) for sample in range(context.samples)
        )
    except CapReached as error:
        return {"plan": None, "failure": str(error), "refused": True}
    proposal = await propose(state, context)
    if proposal["plan"] is None:
        budget.forgo_kernels(promised)
    return proposal


async def propose(state: Exploration, context: RunContext) -> dict[str, Any]:
    """The plan for a candidate and a plan index, or why there is none: `plan`, `failure`, `refused`."""
    shared = await services(state["run_id"], context)
    candidate = Candidate.model_validate(state["candidate"])
    index, round = state["plan_index"], state["round"]
    key = CallKey(role=Role.PLANNER, round=round, kernel_id=candidate.kernel_id, plan=index)
    source = await shared.source(candidate.kernel_id)
    evaluation = await shared.evaluations.of(candidate.kernel_id)
    recalled = await shared.record.experiences(state["recalled"])
    prompt = planner_prompt(
        shared.facts,
        kernel=source,
        counters=counter_lines(evaluation),
        bounds=evaluation.bounds.digest() if evaluation.bounds else "",
        experiences=[prompt_text(experience) for experience in recalled],
        tried=state["tried"],
        cards=cards(source, shared.facts.dialect),
        number=index + 1,
        count=context.plans,
        round=round,
        shuffle=derive(context.seed, key.text(0)),
        budget_tokens=context.planner.prompt_tokens,
    )
    draw = state["candidate_index"] * context.plans + index
    try:
        answer = await shared.caller.fields(key, prompt, PlanAnswer, draw)
    except (CapReached, NoAnswer) as error:
        return {"plan": None, "failure": str(error), "refused": isinstance(error, CapReached)}
    plan = _plan(answer)
    await shared.record.keep_plan(round, candidate.kernel_id, index, plan.plain(), key.text(0))
    emit("planned", round=round, candidate=state["candidate_index"], plan=index, title=plan.title)
    return {"plan": plan.plain(), "failure": None, "refused": False}


def _plan(answer: PlanAnswer) -> Plan:
    content = answer.model_dump_json()
    return Plan(id=hashlib.sha256(content.encode()).hexdigest()[:16], **answer.model_dump())


def counter_lines(evaluation: Evaluation) -> list[str]:
    """The profile as the paper's planner sees it: latency and sixteen counters, one a line."""
    if evaluation.profile is None:
        return []
    lines = [f"latency: {evaluation.profile.latency_ms:.4f} ms"]
    for name, value in evaluation.profile.counters().items():
        lines.append(f"{name}: {value if isinstance(value, int) else format(value, '.4g')}")
    return lines
