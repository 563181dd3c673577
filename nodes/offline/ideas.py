"""What could be done to a kernel: the rewrites that apply, and their order under a profile and past experience."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.gate import inspect
from tools.neuroncore import ArraySpec, NKIError, trace
from tools.rewrites import applicable
from tools.rewrites.printer import print_kernel

from .reading import Request

THEN = ". Then: "
"""Between the two steps of a plan that has two."""

MOST_FIRST_STEPS = 4
"""First steps for which second ones are looked for, once all single steps are used up."""


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


_lock = threading.Lock()
"""Tracing is quick but not free, and every plan of a candidate asks about the same kernel."""


def ideas(source: str, arguments: tuple[ArraySpec | float, ...], target: str) -> tuple[Idea, ...]:
    """Every rewrite that applies to a kernel, in program order; none for a kernel that cannot be traced."""
    with _lock:
        return tuple(
            Idea(option.describe(), rewrite.name, rewrite.summary, tuple(rewrite.targets))
            for rewrite, option in _applicable(source, arguments, target)
        )


@functools.lru_cache(maxsize=64)
def _applicable(
    source: str, arguments: tuple[ArraySpec | float, ...], target: str
) -> tuple[tuple[Any, Any], ...]:
    kernel = _traced(source, arguments, target)
    return () if kernel is None else tuple(applicable(kernel))


@functools.lru_cache(maxsize=64)
def _traced(source: str, arguments: tuple[ArraySpec | float, ...], target: str) -> Any:
    """The kernel's IR. The text came out of a prompt, so it passes the same gate as any model's answer first."""
    if inspect(source):
        return None
    try:
        return trace(source, list(arguments), target=target)
    except NKIError:
        return None


def carried_out(
    source: str, arguments: tuple[ArraySpec | float, ...], target: str, sentences: Sequence[str]
) -> str | None:
    """The kernel after the steps with these sentences, one after the other; None if one of them does not apply."""
    with _lock:
        for sentence in sentences:
            kernel = _traced(source, arguments, target)
            options = _applicable(source, arguments, target)
            found = next(((r, o) for r, o in options if o.describe() == sentence), None)
            if kernel is None or found is None:
                return None
            source = print_kernel(found[0].apply(kernel, found[1]))
    return source


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


def proposals(request: Request) -> Iterator[Idea]:
    """Everything to propose for the kernel of a prompt, best first, what was tried before left out.

    Single steps first, interleaved so that neighbours in the list are different rewrites; then pairs.
    """
    source, arguments, target = request.text("Kernel"), request.arguments, request.target
    tried = request.tried

    def is_new(idea: Idea) -> bool:
        return not any(line.startswith(f"{idea.title}:") for line in tried)

    singles = ranked(request, ideas(source, arguments, target))
    yield from filter(is_new, interleaved(singles))
    for first in interleaved(singles)[:MOST_FIRST_STEPS]:
        after = carried_out(source, arguments, target, [first.sentence])
        if after is None:
            continue
        for second in interleaved(ranked(request, ideas(after, arguments, target))):
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
