"""What an agent works with on one problem: compile, verify, profile, look up the API, list and apply rewrites.

Each tool takes text and returns text that a model can act on. None raises for anything that a kernel does; what is wrong
comes back with its line and its remedy.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from nkibench.errors import NKIBenchError
from nkibench.problem import Problem

from .backends.neuron import BackendUnavailable
from .evaluation import Evaluation, Evaluator, Stage, Status
from .kernel import Dialect, Kernel
from .neuroncore.errors import UnknownApiError
from .neuroncore.frontend.registry import entries, lookup
from .pool import PoolBroken, WorkerLost
from .rewriting import Rewriting
from .worker import Fault

T = TypeVar("T")


class KernelSource(BaseModel):
    """Argument of the tools that take a kernel."""

    source: str = Field(description="The complete Python text of the kernel, imports and @nki.jit included")


class ApiName(BaseModel):
    """Argument of the API lookup."""

    name: str = Field(
        description="A function of NKI, such as nisa.activation or nl.load; empty for a list of all"
    )


class RewriteChoice(BaseModel):
    """Arguments of the tool that applies a rewrite."""

    source: str = Field(description="The kernel's text, exactly as its rewrites were listed for")
    number: int = Field(description="Number of the option in that list")


def kernel_tools(
    evaluator: Evaluator, problem: Problem, dialect: Dialect | str = Dialect.neuronxcc
) -> list[BaseTool]:
    """The six tools, bound to a problem, to the evaluator's settings and to a dialect of NKI."""
    bench = _Bench(evaluator, problem, str(dialect))
    made = (
        (
            "compile_kernel",
            bench.compile,
            KernelSource,
            "Compiles a kernel; returns its latency, or what is wrong.",
        ),
        (
            "verify_kernel",
            bench.verify,
            KernelSource,
            "Runs a kernel on one seed's inputs and compares it with the reference.",
        ),
        (
            "profile_kernel",
            bench.profile,
            KernelSource,
            "Measures a kernel: latency, what bounds it, and the profiler's counters.",
        ),
        (
            "lookup_api",
            bench.lookup_api,
            ApiName,
            "Signature, constraints, engine and cost of one NKI function.",
        ),
        (
            "list_rewrites",
            bench.list_rewrites,
            KernelSource,
            "Lists transformations that keep the kernel's results, as numbered options.",
        ),
        (
            "apply_rewrite",
            bench.apply_rewrite,
            RewriteChoice,
            "Applies one of these; returns the new kernel's text.",
        ),
    )
    return [
        StructuredTool.from_function(
            func=_blocking(coroutine),
            coroutine=coroutine,
            name=name,
            description=description,
            args_schema=schema,
        )
        for name, coroutine, schema, description in made
    ]


def describe(evaluation: Evaluation) -> str:
    """An evaluation as a model should read it."""
    lines = [f"status: {evaluation.status}"]
    if evaluation.error:
        lines.append(f"error: {evaluation.error}")
    if evaluation.verification:
        verification = evaluation.verification
        lines.append(
            f"relative L2 error: {verification.worst_relative_l2:.3g}, allowed {verification.tolerance:.3g} "
            f"(worst tile {verification.worst_tile_relative_l2:.3g})"
        )
    if evaluation.latency_ms is not None:
        share = (
            f", {evaluation.percent_of_peak:.1f} % of peak" if evaluation.percent_of_peak is not None else ""
        )
        lines.append(
            f"latency: {evaluation.latency_ms:.4f} ms on {evaluation.target} ({evaluation.backend}){share}"
        )
    return "\n".join(lines)


class _Bench:
    """The tools' common ground."""

    def __init__(self, evaluator: Evaluator, problem: Problem, dialect: str) -> None:
        self._evaluator = evaluator
        self._problem = problem
        self._dialect = dialect

    async def compile(self, source: str) -> str:
        return await self._evaluated(source, Stage.profile, lambda found: "")

    async def verify(self, source: str) -> str:
        return await self._evaluated(source, Stage.screen, lambda found: "")

    async def profile(self, source: str) -> str:
        def details(found: Evaluation) -> str:
            bounds = f"\n{found.bounds.digest()}" if found.bounds else ""
            if found.profile is None:
                return bounds
            counters = "\n".join(f"{name}: {value:,}" for name, value in found.profile.counters().items())
            return f"{bounds}\n{counters}"

        return await self._evaluated(source, Stage.profile, details)

    async def _evaluated(self, source: str, stage: Stage, details: Callable[[Evaluation], str]) -> str:
        try:
            found = await self._evaluator.aevaluate(Kernel.from_source(source), self._problem, stage)
        except (NKIBenchError, BackendUnavailable, PoolBroken) as error:
            return f"the evaluation itself failed: {error}"
        return describe(found) + (details(found) if found.status in (Status.profiled, Status.correct) else "")

    async def lookup_api(self, name: str) -> str:
        if not name.strip():
            return ", ".join(entry.name for entry in entries(self._dialect))
        try:
            return lookup(name.strip(), self._dialect).card()
        except UnknownApiError as error:
            return str(error)

    async def list_rewrites(self, source: str) -> str:
        try:
            options = await self._working(lambda rewriting: rewriting.options(source))
        except (Fault, WorkerLost, PoolBroken) as error:
            return f"no rewrites: {_one_line(error)}"
        if not options:
            return "no rewrite applies"
        return "\n".join(
            f"{number}. {option.rewrite} ({', '.join(option.targets)}): {option.what}"
            for number, option in enumerate(options)
        )

    async def apply_rewrite(self, source: str, number: int) -> str:
        try:
            return await self._working(lambda rewriting: rewriting.apply(source, number))
        except (Fault, WorkerLost, PoolBroken) as error:
            return f"not applied: {_one_line(error)}"

    async def _working(self, work: Callable[[Rewriting], T]) -> T:
        evaluator = self._evaluator

        def run() -> T:
            arguments = tuple(evaluator.argument_types(self._problem))
            return work(Rewriting(evaluator.pool, arguments, evaluator.settings.target))

        return await asyncio.wrap_future(evaluator.pool.executor.submit(run))


def _one_line(error: Exception) -> str:
    if isinstance(error, Fault):
        where = f"line {error.line}: " if error.line else ""
        fix = f" (fix: {error.remedy})" if error.remedy else ""
        return f"{where}{error.name}: {error.message}{fix}"
    return str(error)


def _blocking(coroutine: Callable[..., Awaitable[str]]) -> Callable[..., str]:
    """The same tool for callers without an event loop."""

    def run(**arguments: Any) -> str:
        async def call() -> str:
            return await coroutine(**arguments)

        return asyncio.run(call())

    return run
