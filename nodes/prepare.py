"""Prepare: reads the problem, sees that models answer, and evaluates the kernel to start from."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import uuid
from typing import Any

from langgraph.runtime import Runtime
from pydantic import ValidationError

from memory_store.errors import MemoryStoreError
from memory_store.ledger import RunStatus
from nkibench.errors import NKIBenchError
from tools.backends.neuron import BackendUnavailable
from tools.evaluation import Stage
from tools.kernel import Kernel
from tools.pool import PoolBroken

from .complaint import complaint
from .context import Role, RunContext
from .endpoint import EndpointError
from .evaluator import verdict
from .events import emit
from .models import check_endpoint
from .problems import definition_of, problem_of
from .resources import open_ledger
from .services import Services, services
from .state import Candidate, State, UserProblem


class CannotStart(Exception):
    """The run has nothing to start from. One line says why."""


_FORESEEN = (CannotStart, EndpointError, MemoryStoreError, NKIBenchError, PoolBroken, BackendUnavailable)


async def prepare(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Set the table; where that fails, the run ends at once with an `error`."""
    context = runtime.context or RunContext()
    fresh: dict[str, Any] = {
        "run_id": _run_id(runtime),
        "round": 0,
        "frontier": [],
        "best": {},
        "unfinished": "",
        "recalled": {},
        "plans": None,
        "reviewed": [],
        "approved_usd": 0.0,
        "explored": None,
        "lessons": [],
        "learned": None,
        "queue": [],
        "tried": {},
        "stop": "",
        "stop_kind": "",
        "result": {},
        "error": "",
    }
    try:
        return fresh | await _start(state, context, fresh["run_id"])
    except _FORESEEN as error:
        why = " ".join(str(error).split())
    except ValidationError as error:
        why = f"problem: {complaint(error, UserProblem)}"
    await _note_failure(fresh["run_id"], why)
    return fresh | {"error": why}


def _run_id(runtime: Runtime[RunContext]) -> str:
    """The id of the server's run, else of the thread: the same when this node runs again."""
    info = runtime.execution_info
    return (info and (info.run_id or info.thread_id)) or str(uuid.uuid4())


async def _start(state: State, context: RunContext, run_id: str) -> dict[str, Any]:
    given = state.get("problem")
    if given is None:
        raise CannotStart("the input has no `problem`: give a problem's name, or a kernel and its reference")
    name, definition = definition_of(given.model_dump() if hasattr(given, "model_dump") else given)
    await asyncio.to_thread(problem_of, definition)
    await check_endpoints(context)
    await begin_run(run_id, name, context)
    shared = await services(run_id, context, definition)
    return await _baseline(shared, definition)


async def _note_failure(run_id: str, why: str) -> None:
    """Say in the ledger why a run cannot start, if it is in there; what is broken may be the ledger itself."""
    with contextlib.suppress(MemoryStoreError):
        _, ledger = await open_ledger()

        def note() -> None:
            with ledger:
                ledger.set_run_status(run_id, RunStatus.FAILED, why)

        await asyncio.to_thread(note)


async def check_endpoints(context: RunContext) -> None:
    """See that every role's model answers, before anything is spent.

    Raises:
        EndpointError: one does not; one line.
    """
    if context.replay_of:
        return
    checked = {context.role(role).model_dump_json(): context.role(role) for role in Role}
    await asyncio.gather(*(check_endpoint(settings) for settings in checked.values()))


async def begin_run(run_id: str, problem: str, context: RunContext) -> None:
    """Write the run down, so that it can be found again whatever happens next; once is enough.

    Raises:
        memory_store.errors.MemoryStoreError: the home or the ledger cannot be used.
    """
    _, ledger = await open_ledger()

    def begin() -> None:
        with ledger:
            ledger.start_run(
                run_id,
                problems=[problem],
                settings=context.model_dump(mode="json"),
                seed=context.seed,
                target=context.target,
                backend=context.backend,
                version=_version(),
            )

    await asyncio.to_thread(begin)


async def _baseline(shared: Services, definition: dict[str, Any]) -> dict[str, Any]:
    kernel: Kernel = await shared.keep(await asyncio.to_thread(shared.problem.baseline_source))
    found = await shared.evaluations.of(kernel.id, Stage.promote)
    if found.status.value != "correct" or found.latency_ms is None:
        why = f": {found.error}" if found.error else ""
        raise CannotStart(f"the kernel to start from: {found.status.value.replace('_', ' ')}{why}")
    baseline = Candidate(
        kernel_id=kernel.id, latency_ms=found.latency_ms, percent_of_peak=found.percent_of_peak or 0.0
    )
    await shared.record.keep_problem(definition, kernel.id, baseline.latency_ms)
    await shared.record.keep_candidate(round=0, slot="baseline", kernel_id=kernel.id, **_columns(found))
    best = {"kernel_id": kernel.id, "latency_ms": baseline.latency_ms, "round": 0, "rounds_done": 0}
    await shared.record.keep_selection(0, ["baseline"], best)
    emit(
        "run_started",
        run_id=shared.run_id,
        problem=shared.problem.name,
        target=shared.context.target,
        baseline_latency_ms=baseline.latency_ms,
        baseline_percent_of_peak=baseline.percent_of_peak,
        iterations=shared.context.iterations,
    )
    return {"baseline": baseline.plain(), "frontier": [baseline.plain()], "best": baseline.plain()}


def _columns(found: Any) -> dict[str, Any]:
    fields = verdict(found)
    return {name: fields[name] for name in ("status", "latency_ms", "percent_of_peak")}


def _version() -> str:
    try:
        return importlib.metadata.version("accelopt")
    except importlib.metadata.PackageNotFoundError:
        return ""
