"""What the nodes of one run share: its ledger, its purse, its models, its workers, its memory.

Opened by whichever node of a run comes first in a process, so that a run taken up again at any place finds
everything, and closed when the run ends. One set for each run and event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import json
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from memory_store.experience import Experience
from memory_store.home import Home, find_home
from memory_store.ledger import EvaluationRecord, Ledger
from nkibench.problem import Problem
from tools.backends import ArrayType
from tools.evaluation import Evaluation, EvaluationSettings, Evaluator, Stage
from tools.kernel import Kernel
from tools.pool import PoolSettings, WorkerPool

from .budget import Budget, Spent, admission
from .calls import Caller
from .context import OFFLINE, Role, RoleModel, RunContext
from .events import emit
from .facts import Facts, facts_of
from .models import chat_model
from .problems import problem_of
from .record import Record


class KernelEvaluator(Protocol):
    """Compiles, checks and times kernels; a kernel that fails is a result."""

    async def aevaluate(self, kernel: Kernel, problem: Problem, stage: Stage | None = None) -> Evaluation:
        """The evaluation of one kernel, as far as `stage`."""

    def argument_types(self, problem: Problem) -> Sequence[ArrayType | float]:
        """The kernel's arguments without data."""

    def close(self) -> None:
        """End its workers."""


class Memory(Protocol):
    """Experiences of all runs, found by similarity: what `memory_store.chroma.ExperienceStore` offers."""

    def add(self, experiences: Iterable[Experience], *, run_id: str | None = None) -> Any:
        """Keep experiences; one already there stays."""

    def query(self, text: str, k: int, where: Any = None) -> Sequence[Any]:
        """The nearest ones, best first, each with its `experience`."""

    def close(self) -> None:
        """Let go of the store."""


@dataclass(frozen=True)
class Resources:
    """How the expensive parts are made. Replaced as a whole by tests and benchmarks."""

    home: Home | None = None
    make_evaluator: Callable[[EvaluationSettings, int | None, Home], KernelEvaluator] | None = None
    make_memory: Callable[[RunContext, Home], Memory] | None = None
    make_model: Callable[[RoleModel, str, BaseCache | None], BaseChatModel] = chat_model


RESOURCES: contextvars.ContextVar[Resources] = contextvars.ContextVar("resources")
"""What services opened from here on are made of, where it is not the usual."""


def evaluation_settings(context: RunContext, home: Home) -> EvaluationSettings:
    """How this run's kernels are judged."""
    chosen = {
        "target": context.target,
        "backend": _backend(context.backend),
        "timeout_s": context.evaluation_timeout_s,
        "precision": context.precision,
        "small": context.small,
        "cache": home.cache_path / "references",
    }
    if context.memory_mb is not None:
        chosen["memory_mb"] = context.memory_mb
    return EvaluationSettings.model_validate(chosen)


def _backend(asked: str) -> str:
    """`auto` is the device where one can be used."""
    if asked != "auto":
        return asked
    from tools.backends import neuron_available

    return "neuron" if neuron_available() else "simulator"


def digest(value: Any) -> str:
    """A short name for the content of plain JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


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
    period: int
    evaluation_key: dict[str, str]
    open_memory: Callable[[], Memory] | None
    _memory: asyncio.Future[Memory] | None = None
    _evaluating: dict[tuple[str, Stage], asyncio.Future[Evaluation]] = field(default_factory=dict)
    _evaluated: dict[tuple[str, Stage], Evaluation] = field(default_factory=dict)
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

    async def evaluation_of(self, kernel_id: str, stage: Stage = Stage.screen) -> Evaluation:
        """The evaluation of a kept kernel: found in the ledger, or made now, never twice at once.

        `Stage.screen` looks at one input, `Stage.promote` at every seed and regime. What is known from the further
        stage is not done again.

        Raises:
            CapReached: the wall time ends before the evaluation does.
        """
        for known in (Stage.promote, stage):
            if (kernel_id, known) in self._evaluated:
                return self._evaluated[kernel_id, known]
        place = (kernel_id, stage)
        if place not in self._evaluating:
            self._evaluating[place] = asyncio.ensure_future(self._evaluate(kernel_id, stage))
        try:
            return await asyncio.shield(self._evaluating[place])
        finally:
            if place in self._evaluating and self._evaluating[place].done():
                del self._evaluating[place]

    async def _evaluate(self, kernel_id: str, stage: Stage) -> Evaluation:
        known = await self._known(kernel_id, stage)
        if known is not None:
            found = Evaluation.model_validate(known.result)
        else:
            kernel = Kernel.from_source(await self.source(kernel_id))
            try:
                async with asyncio.timeout(self.budget.remaining_s()):
                    found = await self.evaluator.aevaluate(kernel, self.problem, stage)
            except TimeoutError:
                raise self.budget.out_of_time() from None
            await self.record.keep_evaluation(
                kernel_id,
                {**self.evaluation_key, "stage": stage.value},
                status=found.status.value,
                latency_ms=found.latency_ms,
                result=found.model_dump(mode="json"),
            )
            await asyncio.to_thread(self.ledger.touch_period, self.period)
        self._evaluated[kernel_id, stage] = found
        return found

    async def _known(self, kernel_id: str, stage: Stage) -> EvaluationRecord | None:
        """What the ledger knows of a kernel, of the asked stage or the further one."""
        stages = list(dict.fromkeys((Stage.promote, stage)))
        for one in stages:
            known = await self.record.evaluation(kernel_id, {**self.evaluation_key, "stage": one.value})
            if known is not None:
                return known
        if self.context.replay_of:
            for one in stages:
                known = await self.record.recorded_evaluation(kernel_id, one.value)
                if known is not None:
                    return known
        return None

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
        self._evaluated = {place: known for place, known in self._evaluated.items() if place[0] in kept}
        self._sources = {kernel_id: text for kernel_id, text in self._sources.items() if kernel_id in kept}

    async def close(self) -> None:
        """End workers, close stores, and note how long the run has worked."""
        for waiting in self._evaluating.values():
            waiting.cancel()

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
                self.ledger.touch_period(self.period)

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


async def open_ledger() -> tuple[Home, Ledger]:
    """The home that this process works in, writable, and its ledger.

    Raises:
        memory_store.errors.MemoryStoreError: it cannot be made, written or read.
    """

    def opened() -> tuple[Home, Ledger]:
        home = (RESOURCES.get(Resources()).home or find_home()).prepare()
        return home, Ledger(home.ledger_url)

    return await asyncio.to_thread(opened)


async def _open_services(run_id: str, context: RunContext, definition: Mapping[str, Any] | None) -> Services:
    resources = RESOURCES.get(Resources())
    home, ledger = await open_ledger()

    def opened() -> Services:
        with contextlib.ExitStack() as undo:
            undo.callback(ledger.close)
            shared = _assembled(run_id, context, definition, resources, home, ledger, undo)
            undo.pop_all()
        return shared

    return await asyncio.to_thread(opened)


def _assembled(
    run_id: str,
    context: RunContext,
    definition: Mapping[str, Any] | None,
    resources: Resources,
    home: Home,
    ledger: Ledger,
    undo: contextlib.ExitStack,
) -> Services:
    if definition is None:
        (row,) = ledger.problems(run_id)
        definition = row.definition
    problem = problem_of(definition)
    settings = evaluation_settings(context, home)
    make_evaluator = resources.make_evaluator or _make_evaluator
    evaluator = make_evaluator(settings, context.workers, home)
    undo.callback(evaluator.close)
    budget = Budget(context.caps, context.prices, *_spent(ledger, run_id))
    record = Record(ledger, run_id, problem.name)
    make_memory = resources.make_memory or _make_memory
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
            cache=_response_cache(context, home),
            make_model=resources.make_model,
        ),
        evaluator=evaluator,
        facts=facts_of(problem, context, evaluator.argument_types(problem)),
        period=ledger.begin_period(run_id),
        evaluation_key=_evaluation_key(problem, settings),
        open_memory=None if context.memory == "off" else lambda: make_memory(context, home),
    )


def _spent(ledger: Ledger, run_id: str) -> tuple[Spent, set[str]]:
    """What earlier periods of a run have used, and the kernels they sent to evaluation."""
    spending = ledger.total_spending(run_id)
    kernels = {
        admission(done.round, done.slot, fixes)
        for done in ledger.candidates(run_id)
        if done.kernel_id and done.round
        for fixes in range(done.repairs + 1)
    }
    return Spent(spending.usd, spending.tokens, ledger.wall_s(run_id)), kernels


def _response_cache(context: RunContext, home: Home) -> BaseCache | None:
    hosted = any(name != OFFLINE for role in Role for name in context.role(role).models)
    if not hosted or not context.response_cache or context.replay_of:
        return None
    from memory_store.llm_cache import open_llm_cache

    return open_llm_cache(home.llm_cache_path)


def _evaluation_key(problem: Problem, settings: EvaluationSettings) -> dict[str, str]:
    """What an evaluation depends on, beside the kernel; not where it ran or how long it was given."""
    decisive = settings.model_dump(mode="json", include={"target", "seeds", "regimes", "precision", "small"})
    words = {"title", "description", "reference_file", "baseline_file"}
    definition = problem.model_dump(mode="json", exclude=words)
    return {
        "problem": digest([definition, problem.reference_source()]),
        "backend": settings.backend,
        "settings_digest": digest(decisive),
    }


class _SharedPool:
    """One pool of workers for all runs of this process that want the same number, gone with the last of them."""

    _lock = threading.Lock()
    _pools: ClassVar[dict[int, tuple[WorkerPool, int]]] = {}

    @classmethod
    def take(cls, settings: PoolSettings) -> WorkerPool:
        with cls._lock:
            pool, users = cls._pools.get(settings.workers) or (WorkerPool(settings), 0)
            cls._pools[settings.workers] = (pool, users + 1)
            return pool

    @classmethod
    def give_back(cls, settings: PoolSettings) -> None:
        with cls._lock:
            pool, users = cls._pools[settings.workers]
            if users > 1:
                cls._pools[settings.workers] = (pool, users - 1)
                return
            del cls._pools[settings.workers]
        pool.close()


class _PooledEvaluator(Evaluator):
    """An evaluator on the shared pool."""

    def __init__(self, settings: EvaluationSettings, workers: int | None, home: Home) -> None:
        self._pool_settings = PoolSettings(workers=workers or 0, hidden=(str(home.root),))
        super().__init__(settings, _SharedPool.take(self._pool_settings))

    def close(self) -> None:
        super().close()
        _SharedPool.give_back(self._pool_settings)


def _make_evaluator(settings: EvaluationSettings, workers: int | None, home: Home) -> KernelEvaluator:
    return _PooledEvaluator(settings, workers, home)


def _make_memory(context: RunContext, home: Home) -> Memory:
    from memory_store.chroma import ExperienceStore

    return ExperienceStore.open(home.chroma_path, context.embedder)
