"""Finish: the figures of a run, its best kernel as a file, and everything closed."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.runtime import Runtime

from memory_store.ledger import RunStatus

from .context import RunContext
from .events import emit
from .record import ENDED
from .services import Services, close_services, services
from .state import Candidate, State, Stop


async def finish(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Sum the run up: `problem, target, baseline_latency_ms, best_latency_ms, speedup,
    baseline_percent_of_peak, best_percent_of_peak, kernels_evaluated, kernels_correct, iterations, tokens, usd,
    wall_s, best_kernel_path, run_id`, and why it stopped.
    """  # noqa: D205
    if state["error"]:
        await close_services(state["run_id"])
        message = AIMessage(f"The run cannot start: {state['error']}", id=f"{state['run_id']}-error")
        return {"messages": [message]}
    context = runtime.context or RunContext()
    shared = await services(state["run_id"], context)
    try:
        result = await summed_up(shared, state)
        status = ENDED[Stop(state["stop_kind"])] if state["stop_kind"] else RunStatus.FINISHED
        await shared.record.set_status(status, result["stopped"])
    finally:
        await close_services(state["run_id"])
    emit("run_finished", **result)
    line = (
        f"{result['problem']}: {result['baseline_latency_ms']:.4f} ms to {result['best_latency_ms']:.4f} ms, "
        f"{result['speedup']:.2f}x, {result['best_percent_of_peak']:.1f} % of peak."
    )
    return {"result": result, "messages": [AIMessage(line, id=f"{state['run_id']}-finish")]}


async def summed_up(shared: Services, state: State) -> dict[str, Any]:
    """The figures of a run as it stands."""
    baseline = Candidate.model_validate(state["baseline"])
    # A run that was begun by an earlier version has no `best`.
    best = Candidate.model_validate(state.get("best") or state["frontier"][0])
    counts = await shared.record.counts()
    spent = shared.budget.spent
    path = await asyncio.to_thread(_write_kernel, shared, await shared.source(best.kernel_id))
    return {
        "problem": shared.problem.name,
        "target": shared.context.target,
        "baseline_latency_ms": baseline.latency_ms,
        "best_latency_ms": best.latency_ms,
        "speedup": baseline.latency_ms / best.latency_ms,
        "baseline_percent_of_peak": baseline.percent_of_peak,
        "best_percent_of_peak": best.percent_of_peak,
        "kernels_evaluated": counts.evaluated,
        "kernels_correct": counts.correct,
        # Not the state's round: that one may just have begun when a person stops the run.
        "iterations": await shared.record.rounds_done(),
        "tokens": spent.tokens,
        "usd": round(spent.usd, 6),
        "wall_s": round(spent.wall_s, 3),
        "best_kernel_path": str(path),
        "best_kernel_id": best.kernel_id,
        "run_id": state["run_id"],
        "stopped": state["stop"],
    }


def _write_kernel(shared: Services, source: str) -> Path:
    """The best kernel beside the run's reports, whole or not at all."""
    path = shared.home.run_path(shared.run_id) / f"{shared.problem.name}.py"
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as draft:
        draft.write(source)
    os.replace(draft.name, path)
    return path
