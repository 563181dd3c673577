"""The evaluations of one run: looked up in the ledger, made where they are missing, kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from memory_store.home import Home
from memory_store.ledger import EvaluationRecord
from nkibench.problem import Problem
from tools.evaluation import Evaluation, EvaluationSettings, Stage
from tools.kernel import Kernel
from tools.neuroncore.machine import machine_for

from .budget import Budget
from .context import RunContext
from .record import Record
from .resources import KernelEvaluator


class Evaluations:
    """What is known of kernels, each under the same conditions."""

    def __init__(
        self,
        evaluator: KernelEvaluator,
        problem: Problem,
        key: dict[str, str],
        record: Record,
        budget: Budget,
        *,
        is_replay: bool = False,
    ) -> None:
        """Judge kernels of `problem` with `evaluator`, whose conditions are named by `key`."""
        self._evaluator = evaluator
        self._problem = problem
        self._key = key
        self._record = record
        self._budget = budget
        self._is_replay = is_replay
        self._evaluating: dict[tuple[str, Stage], asyncio.Future[Evaluation]] = {}
        self._evaluated: dict[tuple[str, Stage], Evaluation] = {}

    async def of(self, kernel_id: str, stage: Stage = Stage.screen) -> Evaluation:
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
            kernel = Kernel.from_source(await self._record.source(kernel_id))
            try:
                async with asyncio.timeout(self._budget.remaining_s()):
                    found = await self._evaluator.aevaluate(kernel, self._problem, stage)
            except TimeoutError:
                raise self._budget.out_of_time() from None
            await self._record.keep_evaluation(
                kernel_id,
                {**self._key, "stage": stage.value},
                status=found.status.value,
                latency_ms=found.latency_ms,
                result=found.model_dump(mode="json"),
            )
            await self._record.keep_time()
        self._evaluated[kernel_id, stage] = found
        return found

    async def _known(self, kernel_id: str, stage: Stage) -> EvaluationRecord | None:
        """What the ledger knows of a kernel, of the asked stage or the further one."""
        stages = list(dict.fromkeys((Stage.promote, stage)))
        for one in stages:
            known = await self._record.evaluation(kernel_id, {**self._key, "stage": one.value})
            if known is not None:
                return known
        if self._is_replay:
            for one in stages:
                known = await self._record.recorded_evaluation(kernel_id, one.value)
                if known is not None:
                    return known
        return None

    def forget(self, kept: set[str]) -> None:
        """Let go of all other kernels; the ledger has them."""
        self._evaluated = {place: known for place, known in self._evaluated.items() if place[0] in kept}

    def cancel(self) -> None:
        """End what is under way."""
        for waiting in self._evaluating.values():
            waiting.cancel()


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


def _digest(value: Any) -> str:
    """A short name for the content of plain JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def evaluation_key(problem: Problem, settings: EvaluationSettings) -> dict[str, str]:
    """What an evaluation depends on, beside the kernel; not where it ran or how long it was given."""
    decisive = settings.model_dump(mode="json", include={"target", "seeds", "regimes", "precision", "small"})
    if settings.backend == "simulator":
        # Another model of the machine gives other times; no run may mix them.
        decisive["machine"] = {name: float(fact) for name, fact in machine_for(settings.target).facts()}
    words = {"title", "description", "reference_file", "baseline_file"}
    definition = problem.model_dump(mode="json", exclude=words)
    return {
        "problem": _digest([definition, problem.reference_source()]),
        "backend": settings.backend,
        "settings_digest": _digest(decisive),
    }
