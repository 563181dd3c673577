"""Optimizing a kernel from Python.

from graph.run import optimize
result = optimize("silu")
print(result.speedup, result.best_kernel_path)
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_store.checkpoint import open_checkpointer
from memory_store.errors import UnknownRun
from memory_store.home import Home, find_home
from memory_store.ledger import Ledger, RunRecord, RunStatus
from nodes.complaint import complaint
from nodes.context import Caps, RunContext, Series
from nodes.endpoint import EndpointError
from nodes.finish import summed_up
from nodes.prepare import begin_run, check_endpoints
from nodes.problems import definition_of, known_names
from nodes.resources import RESOURCES, resources
from nodes.services import close_services, services
from nodes.state import Part, Stop, UserProblem

from .workflow import STEPS_A_ROUND, build_graph

OnEvent = Callable[[Mapping[str, Any]], None]
"""Hears what a run tells while it works; `nodes.events` lists the kinds."""

OnQuestion = Callable[[Mapping[str, Any]], Any]
"""Answers what a run asks a person; `nodes.review` describes questions and answers."""


class Result(BaseModel):
    """What a run came to. Percentages run from 0 to 100."""

    model_config = ConfigDict(frozen=True)

    problem: str
    target: str
    baseline_latency_ms: float
    best_latency_ms: float
    speedup: float = Field(description="Baseline's latency over the best one")
    baseline_percent_of_peak: float
    best_percent_of_peak: float
    kernels_evaluated: int
    kernels_correct: int
    iterations: int = Field(description="Rounds done; one that was cut short is not")
    tokens: int = Field(description="In and out, every role")
    usd: float
    wall_s: float = Field(description="Seconds worked, over all periods of the run")
    best_kernel_path: str
    run_id: str
    best_kernel_id: str
    stopped: str = Field(
        default="", description="Why the run ended before its last round; empty if it did not"
    )


class RunError(Exception):
    """A run cannot start or go on. One line says why."""


class RunStopped(RunError):
    """A run was asked to stop, and can be resumed. `result` is how it stands, if it has begun to search."""

    def __init__(self, run_id: str, result: Result | None) -> None:
        """Keep what was found."""
        super().__init__(f"stopped; go on with: accelopt resume {run_id}")
        self.run_id = run_id
        self.result = result


class RunPaused(RunError):
    """A run waits for a person's answer to `questions`, and nobody was there to ask."""

    def __init__(self, run_id: str, questions: list[Mapping[str, Any]]) -> None:
        """Keep what it asks."""
        super().__init__(f"waits for an answer; go on with: accelopt resume {run_id}")
        self.run_id = run_id
        self.questions = questions


def optimize(
    problem: str | UserProblem | Mapping[str, Any], context: RunContext | None = None, **options: Any
) -> Result:
    """Make a kernel faster, and wait for it. Takes what `aoptimize` takes.

    Raises:
        RunError: as `aoptimize`.
    """
    return asyncio.run(aoptimize(problem, context, **options))


def resume(run_id: str, **options: Any) -> Result:
    """Take up a run where it stopped, and wait for it. Takes what `aresume` takes.

    Raises:
        RunError: as `aresume`.
    """
    return asyncio.run(aresume(run_id, **options))


async def aoptimize(
    problem: str | UserProblem | Mapping[str, Any],
    context: RunContext | None = None,
    *,
    on_event: OnEvent | None = None,
    on_question: OnQuestion | None = None,
    control: RunControl | None = None,
    handle_signals: bool = False,
    run_id: str | None = None,
    home: Home | None = None,
) -> Result:
    """Make a kernel faster.

    Args:
        problem: a benchmark problem's name, or a kernel and its reference (`UserProblem`, or a dict of its fields).
        context: settings; the paper's by default.
        on_event: hears the run's events, on the event loop.
        on_question: answers for a person, where the settings ask for one.
        control: `control.request_drain()` ends the run in order after the step it is in.
        handle_signals: let the first Ctrl-C drain the run and the second one stop it at once.
        run_id: a new run's id; made from the problem and the time by default.
        home: where the run is kept; `ACCELOPT_HOME` or the user data folder by default.

    Raises:
        RunStopped: it was asked to stop.
        RunPaused: it asks something and there is no `on_question`.
        RunError: it cannot start.
        memory_store.errors.MemoryStoreError: the home cannot be used.
    """
    given = problem.model_dump() if isinstance(problem, UserProblem) else problem
    name = given if isinstance(given, str) else str(given.get("name", "user"))
    drive = _Drive(
        run_id or new_run_id(name),
        context or RunContext(),
        on_event,
        on_question,
        control,
        handle_signals,
        home,
    )
    return await drive.go({"problem": given if isinstance(given, str) else dict(given)})


async def aresume(
    run_id: str,
    *,
    on_event: OnEvent | None = None,
    on_question: OnQuestion | None = None,
    control: RunControl | None = None,
    handle_signals: bool = False,
    iterations: int | None = None,
    caps: Caps | None = None,
    series: Series | None = None,
    home: Home | None = None,
) -> Result:
    """Take up a run with the settings it was begun with. A finished one only tells its result again.

    Args:
        run_id: the id, its beginning, or `last`.
        on_event: as in `aoptimize`.
        on_question: as in `aoptimize`.
        control: as in `aoptimize`.
        handle_signals: as in `aoptimize`.
        iterations: go on to this many rounds, also after the run had finished.
        caps: other limits than it was begun with, also after it had reached them.
        series: what it is a part of, where the limits of that have changed.
        home: as in `aoptimize`.

    Raises:
        RunError: as `aoptimize`, or a change makes no sense.
        memory_store.errors.MemoryStoreError: as `aoptimize`, or there is no such run.
    """
    record = await asyncio.to_thread(_find, _home(home), run_id)
    context = RunContext.model_validate(record.settings)
    changes: dict[str, Any] = {}
    if iterations is not None:
        changes["iterations"] = iterations
    if caps is not None:
        changes["caps"] = caps
    if series is not None:
        changes["series"] = series
    # The same limits again are no reason to begin a round that they leave no room for.
    extended = iterations is not None or (caps is not None and caps != context.caps)
    try:
        # Before it is kept: a run whose settings cannot be read could never be resumed again.
        context = RunContext.model_validate(dict(context) | changes)
    except ValidationError as error:
        raise RunError(complaint(error, RunContext)) from error
    if changes:
        await asyncio.to_thread(_keep_settings, _home(home), record.id, context)
    drive = _Drive(record.id, context, on_event, on_question, control, handle_signals, home)
    return await drive.go(None, extend=extended)


def new_run_id(problem: str) -> str:
    """An id that people can read and that no other run has."""
    return f"{problem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _home(given: Home | None) -> Home:
    return given or resources().home or find_home()


def _find(home: Home, run_id: str) -> RunRecord:
    with Ledger(home.prepare().ledger_url) as ledger:
        return ledger.find_run(run_id)


def _keep_settings(home: Home, run_id: str, context: RunContext) -> None:
    with Ledger(home.ledger_url) as ledger:
        ledger.set_run_settings(run_id, context.model_dump(mode="json"))


class _Drive:
    """One period of work on one run."""

    def __init__(
        self,
        run_id: str,
        context: RunContext,
        on_event: OnEvent | None,
        on_question: OnQuestion | None,
        control: RunControl | None,
        handle_signals: bool,
        home: Home | None,
    ) -> None:
        self._run_id = run_id
        self._context = context
        self._on_event = on_event or (lambda event: None)
        self._on_question = on_question
        self._control = control or RunControl()
        self._handle_signals = handle_signals
        self._home = home
        self._pressed_twice = False
        self._config: RunnableConfig = {
            "configurable": {"thread_id": run_id},
            "recursion_limit": STEPS_A_ROUND * (context.iterations + 2),
        }

    async def go(self, given: dict[str, Any] | None, *, extend: bool = False) -> Result:
        """Work until the run ends, stops or asks."""
        home = await asyncio.to_thread(lambda: _home(self._home).prepare())
        token = RESOURCES.set(dataclasses.replace(resources(), home=home))
        claim = home.claim_run(self._run_id)
        await asyncio.to_thread(claim.__enter__)
        try:
            async with open_checkpointer(home) as saver:
                graph = build_graph(saver)
                with self._signals():
                    return await self._until_end(graph, given, extend)
        finally:
            await close_services(self._run_id)
            claim.__exit__(None, None, None)
            RESOURCES.reset(token)

    async def _until_end(self, graph: Any, given: Any, extend: bool) -> Result:
        step: Any = given
        if given is None:
            step = await self._taken_up(graph, extend)
        else:
            # Before anything else, so that a run is never without a record to be resumed by.
            await begin_run(self._run_id, definition_of(given["problem"])[0], self._context)
        while True:
            try:
                await self._stream(graph, step)
            except GraphDrained as error:
                raise await self._stopped(graph) from error
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._pressed_twice or task is None:
                    raise
                task.uncancel()
                raise await self._stopped(graph) from None
            state = await graph.aget_state(self._config)
            questions = [one.value for task in state.tasks for one in task.interrupts]
            if not questions:
                return self._result(state.values)
            if self._on_question is None:
                await self._note(RunStatus.PAUSED, "waits for a person")
                raise RunPaused(self._run_id, questions)
            step = Command(resume=await asyncio.to_thread(self._on_question, questions[0]))

    async def _stream(self, graph: Any, step: Any) -> None:
        async for event in graph.astream(
            step,
            self._config,
            context=self._context,
            control=self._control,
            stream_mode="custom",
        ):
            self._on_event(event)

    async def _taken_up(self, graph: Any, extend: bool) -> Any:
        """What to go on with: nothing where a run was cut off, the input where it had not even begun."""
        state = await graph.aget_state(self._config)
        if state.values.get("error"):
            # It could not start. What was in the way may be gone.
            await self._note(RunStatus.RUNNING)
            return {"problem": state.values["problem"]}
        if not state.values and not state.next:
            return await self._from_the_start()
        # A run that a cap ended needs a higher one to go on; one that a fault or a person ended does not.
        broken_off = state.values.get("stop_kind") in (Stop.FAULT, Stop.PERSON)
        has_work = state.values.get("round", 0) < self._context.iterations or state.values.get("unfinished")
        goes_on = (extend or broken_off) and has_work
        if state.next or goes_on:
            try:
                await check_endpoints(self._context)
            except EndpointError as error:
                raise RunError(str(error)) from error
        if not state.next and goes_on and state.values.get("result"):
            # Back to where a round begins, or to what the last one has still to teach.
            teaches = state.values.get("unfinished") == Part.LESSONS
            fresh: dict[str, Any] = {
                "stop": "",
                "stop_kind": "",
                "result": {},
                "unfinished": "",
                "learned": None,
            }
            last = "selector" if teaches else "budget_review"
            await graph.aupdate_state(self._config, fresh, as_node=last)
        if any(task.interrupts for task in state.tasks) and self._on_question is None:
            raise RunPaused(self._run_id, [one.value for task in state.tasks for one in task.interrupts])
        if any(task.interrupts for task in state.tasks):
            question = next(one.value for task in state.tasks for one in task.interrupts)
            assert self._on_question is not None
            return Command(resume=await asyncio.to_thread(self._on_question, question))
        if state.next or goes_on:
            await self._note(RunStatus.RUNNING)
        return None

    async def _from_the_start(self) -> dict[str, Any]:
        """The input of a run that was cut off before its first checkpoint."""
        home = resources().home
        assert home is not None
        (problem,) = (await asyncio.to_thread(_find, home, self._run_id)).problems
        if problem not in known_names():
            raise RunError(f"run {self._run_id} was cut off before it began; start it again")
        return {"problem": problem}

    def _result(self, values: Mapping[str, Any]) -> Result:
        if values.get("error"):
            raise RunError(values["error"])
        return Result.model_validate(values["result"])

    async def _stopped(self, graph: Any) -> RunStopped:
        values = (await graph.aget_state(self._config)).values
        result = None
        if values.get("frontier"):
            shared = await services(self._run_id, self._context)
            result = Result.model_validate(await summed_up(shared, values | {"stop": "asked to stop"}))
        await self._note(RunStatus.STOPPED, "asked to stop")
        return RunStopped(self._run_id, result)

    async def _note(self, status: RunStatus, note: str = "") -> None:
        """Say in the ledger how the run stands, if it got as far as being in there."""

        def write() -> None:
            home = resources().home
            assert home is not None
            with Ledger(home.ledger_url) as ledger, contextlib.suppress(UnknownRun):
                ledger.set_run_status(self._run_id, status, note)

        await asyncio.to_thread(write)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C drains, the second one cancels."""
        if not self._handle_signals:
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def pressed() -> None:
            if self._control.drain_requested:
                assert task is not None
                self._pressed_twice = True
                task.cancel()
                return
            self._control.request_drain("Ctrl-C")
            message = "finishing what is under way; press Ctrl-C again to stop at once"
            self._on_event({"event": "draining", "message": message})

        loop.add_signal_handler(signal.SIGINT, pressed)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
