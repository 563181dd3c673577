"""Executor: writes one kernel for a plan, in a single answer or with tools in hand."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from .agent import work_with_tools
from .budget import CapReached, admission, slot
from .calls import CallKey, NoAnswer
from .cards import cards
from .context import Role, RunContext
from .prompt import executor_prompt
from .services import Services, services
from .state import Candidate, Draft, Exploration, Plan


async def executor(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Write one draft of the plan's kernel; a draft without a kernel says why."""
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    candidate, plan = Candidate.model_validate(state["candidate"]), Plan.model_validate(state["plan"])
    sample = state["sample"]
    key = CallKey(
        role=Role.EXECUTOR,
        round=state["round"],
        kernel_id=candidate.kernel_id,
        plan=state["plan_index"],
        sample=sample,
    )
    parent = await shared.source(candidate.kernel_id)
    prompt = executor_prompt(
        shared.facts,
        kernel=parent,
        plan=plan,
        cards=cards(parent, shared.facts.dialect),
        number=sample + 1,
        count=context.samples,
        budget_tokens=context.executor.prompt_tokens,
    )
    draw = (state["candidate_index"] * context.plans + state["plan_index"]) * context.samples + sample
    promised: list[str] = []
    try:
        # Here too, for an exception would cancel the calls of the other samples.
        with shared.faults_end_the_run():
            promised = shared.budget.promise_kernels(
                [admission(state["round"], slot(state["candidate_index"], state["plan_index"], sample))]
            )
            if context.agentic and shared.caller.knows_tools(Role.EXECUTOR, draw):
                source = await work_with_tools(shared, context, key, prompt, parent, draw)
            else:
                source = await shared.caller.code(key, prompt, parent, draw)
            drafted = await keep_draft(shared, sample, source)
    except (CapReached, NoAnswer) as error:
        shared.budget.forgo_kernels(promised)
        drafted = Draft(sample=sample, failure=str(error), refused=isinstance(error, CapReached))
    return {"drafts": [drafted.plain()]}


async def keep_draft(shared: Services, sample: int, source: str, fixes: int = 0) -> Draft:
    """Put a kernel's text into the ledger and refer to it."""
    kernel = await shared.keep(source)
    return Draft(sample=sample, kernel_id=kernel.id, fixes=fixes)
