"""`accelopt problems`: what there is to optimize."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from .options import AsJson
from .output import console, milliseconds, percent, print_json

if TYPE_CHECKING:
    from nkibench.problem import Problem
    from tools.evaluation import Evaluation

TARGETS = ("trn1", "trn2")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(problems)


def problems(as_json: AsJson = False) -> None:
    """List the problems, with what limits each one and how its first-draft kernel does in the simulator."""
    from nodes.problems import known_names, named_problem

    known = [named_problem(name) for name in known_names()]
    measured = _baselines(known)
    if as_json:
        print_json([_document(problem, measured) for problem in known])
        return
    console().print(_table(known, measured))


def _baselines(known: list[Problem]) -> dict[tuple[str, str], Evaluation]:
    """Each baseline's profile on each target; no data is needed for it."""
    from concurrent.futures import ThreadPoolExecutor

    from tools.evaluation import EvaluationSettings, Evaluator
    from tools.kernel import Kernel
    from tools.pool import PoolSettings, WorkerPool

    found = {}
    with WorkerPool(PoolSettings()) as pool, ThreadPoolExecutor(pool.settings.slots) as threads:
        for target in TARGETS:
            with Evaluator(EvaluationSettings(target=target), pool) as evaluator:
                kernels = [Kernel.from_source(problem.baseline_source()) for problem in known]
                for one in threads.map(evaluator.profile, kernels, known):
                    found[one.problem, target] = one
    return found


def _document(problem: Problem, measured: dict[tuple[str, str], Evaluation]) -> dict[str, Any]:
    return {
        "name": problem.name,
        "operator": problem.operator,
        "shape": problem.shape,
        "bound": problem.bound,
        "baseline_latency_ms": {target: measured[problem.name, target].latency_ms for target in TARGETS},
        "baseline_percent_of_peak": {
            target: measured[problem.name, target].percent_of_peak for target in TARGETS
        },
    }


def _table(known: list[Problem], measured: dict[tuple[str, str], Evaluation]) -> Any:
    from rich.table import Table

    table = Table(
        title="Baselines in the simulator, and how near to the roofline they come", title_justify="left"
    )
    for column in ("problem", "shape", "bound by"):
        table.add_column(column)
    for target in TARGETS:
        table.add_column(target, justify="right")
        table.add_column("peak", justify="right")
    for problem in known:
        cells = [problem.name, " ".join(f"{k}{v}" for k, v in problem.shape.items()), problem.bound]
        for target in TARGETS:
            one = measured[problem.name, target]
            cells += [milliseconds(one.latency_ms), percent(one.percent_of_peak)]
        table.add_row(*cells)
    return table
