"""What could be done to a kernel: the rewrites that apply, and their order under a profile and past experience."""

from __future__ import annotations

import atexit
import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.backends import ArrayType
from tools.pool import PoolSettings, WorkerLost, WorkerPool
from tools.rewriting import Rewriting
from tools.worker import Fault

from .reading import Request

THEN = ". Then: "
"""Between the two steps of a plan that has two."""

MOST_FIRST_STEPS = 4
"""First steps for which second ones are looked for, once all single steps are used up."""

MOST_REMEMBERED = 512
"""Answers of the workers that are kept: those on a round's kernels, and on the steps from them."""


@dataclass(frozen=True)
class Subject:
    """A kernel, and what it is compiled for."""

    source: str
    arguments: tuple[ArrayType | float, ...]
    target: str


@dataclass(frozen=True)
class Idea:
    """One step, or two that are taken together."""

    sentence: str
    rewrite: str
    summary: str
    targets: tuple[str, ...]
    first: str | None = None
    """The sentence of the step before this one, where there are two."""

    @property
    def title(self) -> str:
        """As a plan names it, and as an executor finds it again."""
        return f"{self.first}{THEN}{self.sentence}" if self.first else self.sentence


class Workshop:
    """Where kernels are looked at and rewritten; what was asked before is remembered.

    The text came out of a prompt, so it is traced by confined workers, as every kernel is.
    """

    def __init__(self, pool: WorkerPool | None = None) -> None:
        """Use the workers of `pool`, or of one that this process keeps for it."""
        self._pool = pool
        self._remembered: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def ideas(self, kernel: Subject) -> tuple[Idea, ...]:
        """Every rewrite that applies to a kernel, in program order; none for a kernel that cannot be traced."""

        def listed() -> tuple[Idea, ...]:
            try:
                options = self._rewriting(kernel).options(kernel.source)
            except (Fault, WorkerLost):
                return ()
            return tuple(Idea(one.what, one.rewrite, one.summary, one.targets) for one in options)

        found: tuple[Idea, ...] = self._once(("ideas", kernel), listed)
        return found

    def carried_out(self, kernel: Subject, sentences: Sequence[str]) -> Subject | None:
        """The kernel after the steps with these sentences, one after the other; None if one does not apply."""

        def stepped() -> Subject | None:
            try:
                source = self._rewriting(kernel).carry_out(kernel.source, sentences)
            except (Fault, WorkerLost):
                return None
            return replace(kernel, source=source)

        found: Subject | None = self._once(("carried_out", kernel, *sentences), stepped)
        return found

    def _rewriting(self, kernel: Subject) -> Rewriting:
        with self._lock:
            if self._pool is None:
                self._pool = _own_pool()
        return Rewriting(self._pool, kernel.arguments, kernel.target)

    def _once(self, key: Any, work: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._remembered:
                self._remembered.move_to_end(key)
                return self._remembered[key]
        found = work()
        with self._lock:
            self._remembered[key] = found
            while len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return found


@functools.cache
def _own_pool() -> WorkerPool:
    """Workers for models that belong to no run."""
    pool = WorkerPool(PoolSettings(preload=("tools.rewrite_service",)))
    atexit.register(pool.close)
    return pool


def subject(request: Request) -> Subject:
    """The kernel that a prompt is about."""
    return Subject(request.text("Kernel"), request.arguments, request.target)


def ranked(request: Request, found: Sequence[Idea]) -> list[Idea]:
    """The most promising first: by the bottleneck they help, then by what helped and hurt before."""
    weights = request.weights
    lessons = request.lessons

    def score(idea: Idea) -> float:
        need = max((weights.get(target, 0.0) for target in idea.targets), default=0.0)
        past = sum(
            math.log(max(lesson.speedup, 0.05)) for lesson in lessons if lesson.rewrite == idea.rewrite
        )
        return need + max(-1.0, min(1.0, past))

    return sorted(found, key=score, reverse=True)


def proposals(request: Request, workshop: Workshop) -> Iterator[Idea]:
    """Everything to propose for the kernel of a prompt, best first, what was tried before left out.

    Single steps first, interleaved so that neighbours in the list are different rewrites; then pairs.
    """
    kernel = subject(request)
    tried = request.tried

    def is_new(idea: Idea) -> bool:
        return not any(line.startswith(f"{idea.title}:") for line in tried)

    singles = ranked(request, workshop.ideas(kernel))
    yield from filter(is_new, interleaved(singles))
    for first in interleaved(singles)[:MOST_FIRST_STEPS]:
        after = workshop.carried_out(kernel, [first.sentence])
        if after is None:
            continue
        for second in interleaved(ranked(request, workshop.ideas(after))):
            pair = Idea(second.sentence, second.rewrite, second.summary, second.targets, first.sentence)
            if is_new(pair):
                yield pair


def interleaved(found: Sequence[Idea]) -> list[Idea]:
    """In turn one option of every rewrite, then another one of each, and so on.

    Rewrites list small steps before large ones: the largest comes first, then the smallest, then those between.
    """
    by_rewrite: dict[str, list[Idea]] = {}
    for idea in found:
        by_rewrite.setdefault(idea.rewrite, []).append(idea)
    for name, options in by_rewrite.items():
        by_rewrite[name] = [options[-1], *options[:-1]]
    turns = max(map(len, by_rewrite.values()), default=0)
    return [column[turn] for turn in range(turns) for column in by_rewrite.values() if turn < len(column)]
