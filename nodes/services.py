"""What the nodes of one run share: its ledger, its purse, its models, its workers, its memory.

Opened by whichever node of a run comes first in a process, so that a run taken up again at any place finds
everything, and closed when the run ends. One set for each run and event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from memory_store.errors import MemoryStoreError
from memory_store.home import Home
from memory_store.ledger import Ledger
from nkibench.problem import Problem
from tools.evaluation import Evaluator, Stage
from tools.kernel import Kernel
from tools.pool import PoolBroken

from .budget import NOT_EVALUATED, Budget, CapReached, Recording, Spent, admission
from .calls import Caller
from .context import Caps, RoleModel, RunContext
from .evaluations import Evaluations, evaluation_key, evaluation_settings
from .events import emit
from .facts import Facts, facts_of
from .offline import OfflineChatModel, Workshop
from .problems import problem_of
from .record import ENDED, Record
from .resources import KernelEvaluator, MakeModel, Memory, Resources, open_ledger, resources, response_cache
from .state import Stop

_SURROUNDINGS = (MemoryStoreError, PoolBroken, OSError)
"""What fails when the disk is full, the home is gone or no worker can be started."""


@dataclass
class Services:
    """The shared parts of one run on one problem."""

    context: RunContext
    home: Home
    ledger: Ledger
    record: Record
    problem: Problem
    budget: Budget
    caller: Caller
    evaluator: KernelEvaluator
    facts: Facts
    evaluations: Evaluations
    open_memory: Callable[[], Memory] | None
    _memory: asyncio.Future[Memory] | None = None
    _sources: dict[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The run's key in the ledger."""
        return self.record.run_id

    @property
    def first_stage(self) -> Stage:
        """How far a new kernel is checked before it is known whether it will be kept."""
        return Stage.screen if self.context.screen else Stage.promote

    async def source(self, kernel_id: str) -> str:
        """A kernel's text."""
        if kernel_id not in self._sources:
            self._sources[kernel_id] = await self.record.source(kernel_id)
        return self._sources[kernel_id]

    async def keep(self, source: str) -> Kernel:
        """Put a kernel's text into the ledger."""
        kernel = Kernel.from_source(source)
        await self.record.keep_kernel(kernel.id, kernel.source, kernel.dialect)
        self._sources[kernel.id] = kernel.source
        return kernel

    @contextlib.contextmanager
    def faults_end_the_run(self) -> Iterator[None]:
        """Within it, trouble with disk or workers is a reason to let nothing more start.

        No plan could help it, so that the round is finished when there is room to work again.

        Raises:
            CapReached: in the place of the trouble.
        """
        try:
            yield
        except _SURROUNDINGS as error:
            why = " ".join(str(error).split()) or type(error).__name__
            self.budget.end(why, Stop.FAULT)
            raise CapReached(why) from error

    def tools(self) -> list[BaseTool]:
        """What an agentic executor works with on this problem."""
        from tools.nki import kernel_tools

        assert isinstance(self.evaluator, Evaluator)
        return list(kernel_tools(self.evaluator, self.problem, self.facts.dialect))

    async def memory(self) -> Memory | None:
        """The experiences of all runs, opened on first use; None where the run keeps no memory.

        Raises:
            memory_store.errors.MemoryStoreError: the store cannot be opened.
        """
        if self.open_memory is None:
            return None
        if self._memory is None:
            self._memory = asyncio.ensure_future(asyncio.to_thread(self.open_memory))
        return await asyncio.shield(self._memory)

    def forget(self, kept: set[str]) -> None:
        """Let go of kernels that are no longer on the frontier; the ledger has them."""
        self.evaluations.forget(kept)
        self._sources = {kernel_id: text for kernel_id, text in self._sources.items() if kernel_id in kept}

    async def close(self) -> None:
        """End workers, close stores, and note how long the run has worked."""
        self.evaluations.cancel()
        memory: Memory | None = None
        if self._memory is not None:
            with contextlib.suppress(Exception):
                memory = await self._memory

        def shut() -> None:
            with contextlib.ExitStack() as ending:
                ending.callback(self.ledger.close)
                ending.callback(self.evaluator.close)
                if memory is not None:
                    ending.callback(memory.close)

        await self.record.keep_time(at_once=True)
        await asyncio.to_thread(shut)


_open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[Services]]] = (
    weakref.WeakKeyDictionary()
)


async def services(run_id: str, context: RunContext, definition: Mapping[str, Any] | None = None) -> Services:
    """The services of a run on this event loop, opened on first use.

    Args:
        run_id: the run's key in the ledger.
        context: its settings.
        definition: of its problem, while the ledger does not know it yet.

    Raises:
        memory_store.errors.MemoryStoreError: the home, the ledger or the store cannot be opened, or there is no
            such run.
        nkibench.errors.NKIBenchError: the problem cannot be read.
    """
    mine = _open.setdefault(asyncio.get_running_loop(), {})
    if run_id not in mine:
        mine[run_id] = asyncio.ensure_future(_open_services(run_id, context, definition))
    try:
        return await asyncio.shield(mine[run_id])
    except BaseException:
        if run_id in mine and mine[run_id].done():
            del mine[run_id]
        raise


async def close_services(run_id: str) -> None:
    """Close the services of a run on this event loop, if they are open."""
    opened = _open.get(asyncio.get_running_loop(), {}).pop(run_id, None)
    if opened is not None:
        with contextlib.suppress(Exception):
            await (await opened).close()


async def _open_services(run_id: str, context: RunContext, definition: Mapping[str, Any] | None) -> Services:
    made_of = resources()
    home, ledger = await open_ledger()

    def opened() -> Services:
        with contextlib.ExitStack() as undo:
            undo.callback(ledger.close)
            shared = _assembled(run_id, context, definition, made_of, home, ledger, undo)
            undo.pop_all()
        return shared

    return await asyncio.to_thread(opened)


def _assembled(
    run_id: str,
    context: RunContext,
    definition: Mapping[str, Any] | None,
    made_of: Resources,
    home: Home,
    ledger: Ledger,
    undo: contextlib.ExitStack,
) -> Services:
    if definition is None:
        (row,) = ledger.problems(run_id)
        definition = row.definition
    problem = problem_of(definition)
    settings = evaluation_settings(context, home)
    evaluator = made_of.make_evaluator(settings, context.workers, home)
    undo.callback(evaluator.close)
    budget = _budget(context, ledger, run_id)
    record = Record(ledger, run_id, problem.name, ledger.begin_period(run_id))
    key = evaluation_key(problem, settings)
    return Services(
        context=context,
        home=home,
        ledger=ledger,
        record=record,
        problem=problem,
        budget=budget,
        caller=Caller(
            context,
            record,
            budget,
            notify=lambda kind, message: emit(kind, message=message),
            cache=response_cache(context, home),
            make_model=_models(made_of, evaluator),
        ),
        evaluator=evaluator,
        facts=facts_of(problem, context, evaluator.argument_types(problem)),
        evaluations=Evaluations(
            evaluator, problem, key, record, budget, is_replay=context.replay_of is not None
        ),
        open_memory=None if context.memory == "off" else lambda: made_of.make_memory(context, home),
    )


def _models(made_of: Resources, evaluator: KernelEvaluator) -> MakeModel:
    """How models are made; the built-in one rewrites kernels in the workers that judge them."""
    if not isinstance(evaluator, Evaluator):
        return made_of.make_model
    workshop = Workshop(evaluator.pool)

    def made(settings: RoleModel, name: str, cache: BaseCache | None) -> BaseChatModel:
        model = made_of.make_model(settings, name, cache)
        return model.working_in(workshop) if isinstance(model, OfflineChatModel) else model

    return made


def _budget(context: RunContext, ledger: Ledger, run_id: str) -> Budget:
    """A run's purse; a replay spends nothing, and is kept from what kept its original."""
    spent, kernels = spent_by(ledger, run_id)
    if context.replay_of is None:
        return Budget(context.caps, context.prices, spent, kernels)
    return Budget(Caps(), context.prices, spent, kernels, _recording(ledger, context.replay_of))


def _recording(ledger: Ledger, run_id: str) -> Recording:
    lost = [one for one in ledger.candidates(run_id) if one.status == NOT_EVALUATED]
    run = ledger.run(run_id)
    ended = {status: stop for stop, status in ENDED.items()}.get(run.status)
    return Recording(
        refused=frozenset(
            admission(one.round, one.slot, one.repairs) for one in lost if one.kernel_id is None
        ),
        unchecked=frozenset(one.kernel_id for one in lost if one.kernel_id is not None),
        cut_round=None if ended is None else ledger.problems(run_id)[0].rounds_done + 1,
        stop=run.note,
        stop_kind=ended.value if ended else "",
    )


def spent_by(ledger: Ledger, run_id: str) -> tuple[Spent, set[str]]:
    """What earlier periods of a run have used, and the kernels they sent to evaluation."""
    spending = ledger.total_spending(run_id)
    kernels = {
        admission(done.round, done.slot, fixes)
        for done in ledger.candidates(run_id)
        if done.kernel_id and done.round
        for fixes in range(done.repairs + 1)
    }
    return Spent(spending.usd, spending.tokens, ledger.wall_s(run_id)), kernels
