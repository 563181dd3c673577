"""How the expensive parts of a run are made: evaluator, memory, models, and the home that they live in."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel

from memory_store.experience import Experience
from memory_store.home import Home, find_home
from memory_store.ledger import Ledger
from nkibench.problem import Problem
from tools.backends import ArrayType
from tools.evaluation import Evaluation, EvaluationSettings, Evaluator, Stage
from tools.kernel import Kernel
from tools.pool import PoolSettings, WorkerPool

from .context import OFFLINE, Role, RoleModel, RunContext
from .models import chat_model


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


class PooledEvaluator(Evaluator):
    """An evaluator on the shared pool."""

    def __init__(self, settings: EvaluationSettings, workers: int | None, home: Home) -> None:
        """Take a share of the pool with so many workers, one a core for None; they cannot read the home."""
        self._pool_settings = PoolSettings(workers=workers or 0, hidden=(str(home.root),))
        super().__init__(settings, _SharedPool.take(self._pool_settings))

    def close(self) -> None:
        """Give it back."""
        super().close()
        _SharedPool.give_back(self._pool_settings)


def stored_memory(context: RunContext, home: Home) -> Memory:
    """The vector store of the home. Chroma is imported here, which takes a second."""
    from memory_store.chroma import ExperienceStore

    return ExperienceStore.open(home.chroma_path, context.embedder)


MakeModel = Callable[[RoleModel, str, BaseCache | None], BaseChatModel]
"""Makes a model from a role's settings, the model's name, the response cache."""


@dataclass(frozen=True)
class Resources:
    """How the expensive parts are made. Replaced as a whole by tests and benchmarks."""

    home: Home | None = None
    """Where everything is kept; None for the home that the environment names."""
    make_evaluator: Callable[[EvaluationSettings, int | None, Home], KernelEvaluator] = PooledEvaluator
    """From settings, number of workers, home."""
    make_memory: Callable[[RunContext, Home], Memory] = stored_memory
    make_model: MakeModel = chat_model


RESOURCES: contextvars.ContextVar[Resources] = contextvars.ContextVar("resources")
"""What services opened from here on are made of, where it is not the usual."""


def resources() -> Resources:
    """What this task's services are made of."""
    return RESOURCES.get(_USUAL)


_USUAL = Resources()


async def open_ledger() -> tuple[Home, Ledger]:
    """The home that this process works in, writable, and its ledger.

    Raises:
        memory_store.errors.MemoryStoreError: it cannot be made, written or read.
    """

    def opened() -> tuple[Home, Ledger]:
        home = (resources().home or find_home()).prepare()
        return home, Ledger(home.ledger_url)

    return await asyncio.to_thread(opened)


def response_cache(context: RunContext, home: Home) -> BaseCache | None:
    """Answers of hosted models kept on disk; None where none are asked or none shall be kept."""
    hosted = any(name != OFFLINE for role in Role for name in context.role(role).models)
    if not hosted or not context.response_cache or context.replay_of:
        return None
    from memory_store.llm_cache import open_llm_cache

    return open_llm_cache(home.llm_cache_path)
