"""Summarizer: turns a slow and a fast kernel into an experience."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict

from langgraph.runtime import Runtime
from pydantic import BaseModel, ConfigDict, Field

from memory_store.experience import Experience, Kind

from .answers import same_program
from .budget import CapReached
from .calls import CallKey, NoAnswer
from .context import Role, RunContext
from .events import emit
from .features import features
from .prompt import summarizer_prompt
from .services import Services, services
from .state import Lesson, Plan


class SummaryAnswer(BaseModel):
    """What the difference between two kernels teaches."""

    model_config = ConfigDict(extra="ignore")

    found: bool = Field(default=True, description="Whether there is anything to learn.")
    title: str = Field(default="", description="The transformation in at most twelve words.")
    description: str = Field(default="", description="What to look for, what to change, why it matters.")
    slow_code: str = Field(default="", description="Pseudocode of the slow segment.")
    fast_code: str = Field(default="", description="Pseudocode of the fast segment.")


class Summary(TypedDict):
    """One lesson to be put into words."""

    run_id: str
    index: int
    lesson: dict[str, Any]


async def summarizer(state: Summary, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Write one experience; none where two kernels do the same, or no answer came.

    Where the call may not be made, the experience is still to be written: its entry is `refused`.
    """
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    lesson = Lesson.model_validate(state["lesson"])
    slow, fast = await shared.source(lesson.slow_kernel_id), await shared.source(lesson.fast_kernel_id)
    if same_program(slow, fast):
        return {"learned": []}
    plan = lesson.plan
    if not plan.is_edited:
        kept = await shared.record.plan(lesson.round, lesson.parent_id, lesson.plan_index)
        plan = Plan.model_validate(kept)
    key = CallKey(role=Role.SUMMARIZER, round=lesson.round, kernel_id=lesson.parent_id, plan=state["index"])
    prompt = summarizer_prompt(
        shared.facts,
        slow=slow,
        fast=fast,
        plan=plan,
        outcome=_outcome(lesson),
        budget_tokens=context.summarizer.prompt_tokens,
    )
    try:
        answer = await shared.caller.fields(key, prompt, SummaryAnswer, state["index"])
    except CapReached:
        return {"learned": [{"index": state["index"], "refused": True}]}
    except NoAnswer as error:
        emit("notice", message=f"an experience was not written: {error}")
        return {"learned": []}
    if not answer.found or not answer.title.strip():
        return {"learned": []}
    experience = await _experience(shared, lesson, plan, answer)
    emit(
        "learned",
        round=lesson.round,
        lesson=lesson.kind,
        title=experience.title,
        speedup=lesson.speedup,
    )
    return {"learned": [{"index": state["index"], "experience": experience.model_dump(mode="json")}]}


def _outcome(lesson: Lesson) -> str:
    helped = lesson.kind == Kind.POSITIVE.value
    verb = "helped" if helped else "hurt"
    return (
        f"The plan {verb}: {lesson.slow_latency_ms:.4f} ms for the slow kernel, "
        f"{lesson.fast_latency_ms:.4f} ms for the fast one. "
        + (
            "The fast kernel is what the plan led to."
            if helped
            else "The slow kernel is what the plan led to; say what not to do."
        )
    )


async def _experience(shared: Services, lesson: Lesson, plan: Plan, answer: SummaryAnswer) -> Experience:
    parent = await shared.evaluations.of(lesson.parent_id)
    return Experience(
        kind=Kind(lesson.kind),
        title=answer.title.strip(),
        description=answer.description.strip(),
        slow_code=answer.slow_code.strip("\n"),
        fast_code=answer.fast_code.strip("\n"),
        speedup=lesson.speedup,
        problem=shared.problem.name,
        operator=shared.problem.operator,
        target=shared.context.target,
        bottleneck=parent.bounds.limiting if parent.bounds else "",
        rewrite=plan.rewrite,
        features=features(await shared.source(lesson.parent_id)),
        run_id=shared.run_id,
        round=lesson.round,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        slow_kernel_id=lesson.slow_kernel_id,
        fast_kernel_id=lesson.fast_kernel_id,
    )
