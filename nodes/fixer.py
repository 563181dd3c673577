"""Fixer: takes failing kernels back to a model with their errors."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from tools.evaluation import Evaluation

from .budget import CapReached, admission, slot
from .calls import CallKey, NoAnswer
from .cards import cards
from .context import Role, RunContext
from .executor import keep_draft
from .prompt import fixer_prompt
from .services import Services, services
from .state import Candidate, Draft, Exploration, Plan

FIXABLE = frozenset({"rejected", "compile_error", "runtime_error", "incorrect"})
"""What a repair can help: a kernel that hangs or cheats is not worth another call."""


def needs_fix(draft: Draft, fixes: int) -> bool:
    """Whether a draft failed in a way that a repair can help, and has repairs left."""
    return draft.status in FIXABLE and draft.fixes < fixes and not draft.given_up


async def fixer(state: Exploration, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Repair every draft that needs it, all at once; a repaired draft is one that is not yet evaluated."""
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    drafts = [Draft.model_validate(draft) for draft in state["drafts"]]
    failing = [draft for draft in drafts if needs_fix(draft, context.fixes)]
    repaired = await asyncio.gather(*(_repair(shared, context, state, draft) for draft in failing))
    return {"drafts": [draft.plain() for draft in repaired]}


async def _repair(shared: Services, context: RunContext, state: Exploration, draft: Draft) -> Draft:
    candidate, plan = Candidate.model_validate(state["candidate"]), Plan.model_validate(state["plan"])
    assert draft.kernel_id is not None
    number = draft.fixes + 1
    key = CallKey(
        role=Role.FIXER,
        round=state["round"],
        kernel_id=candidate.kernel_id,
        plan=state["plan_index"],
        sample=draft.sample,
        fix=number,
    )
    failing = await shared.source(draft.kernel_id)
    evaluation = await shared.evaluations.of(draft.kernel_id)
    parent = await shared.source(candidate.kernel_id)
    prompt = fixer_prompt(
        shared.facts,
        kernel=parent,
        plan=plan,
        failing=failing,
        error=error_text(evaluation, failing),
        cards=cards(failing, shared.facts.dialect),
        number=number,
        count=context.fixes,
        budget_tokens=context.role(Role.FIXER).prompt_tokens,
    )
    draw = (state["candidate_index"] * context.plans + state["plan_index"]) * context.samples + draft.sample
    place = slot(state["candidate_index"], state["plan_index"], draft.sample)
    promised: list[str] = []
    try:
        with shared.faults_end_the_run():
            promised = shared.budget.promise_kernels([admission(state["round"], place, number)])
            source = await shared.caller.code(key, prompt, failing, draw)
            return await keep_draft(shared, draft.sample, source, fixes=number)
    except (CapReached, NoAnswer) as error:
        shared.budget.forgo_kernels(promised)
        # What it was before stands.
        return draft.model_copy(update={"given_up": True, "refused": isinstance(error, CapReached)})


def error_text(evaluation: Evaluation, source: str) -> str:
    """What went wrong in a few lines: the error, the line of source it points to, the remedy."""
    lines = [f"Status: {evaluation.status.value}"]
    error = evaluation.error
    if error is not None:
        lines.append(f"{error.name}: {error.message}")
        text = source.splitlines()
        if error.line is not None and 1 <= error.line <= len(text):
            first, last = max(1, error.line - 2), min(len(text), error.line + 1)
            for number in range(first, last + 1):
                mark = ">" if number == error.line else " "
                lines.append(f"{mark} {number:4d} | {text[number - 1]}")
        if error.remedy:
            lines.append(f"Remedy: {error.remedy}")
    check = evaluation.verification
    if check is not None and not check.passed:
        lines.append(
            f"Relative L2 error {check.worst_relative_l2:.3g}, allowed are {check.tolerance:.3g}; "
            f"{check.failure or 'the output differs from the reference'}"
        )
    return "\n".join(lines)
