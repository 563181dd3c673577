"""A run as a report tells it, read from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_store.experience import Experience
from memory_store.ledger import CandidateRecord, Counts, Direction, Ledger, RunRecord, Spending
from nkibench.errors import NKIBenchError, WorkUnknown
from nkibench.problem import Problem, Work
from nkibench.roofline import peak_ms
from nodes.problems import named_problem
from tools.profile import Bounds, Profile

from .summary import as_it_stands, models_of


@dataclass(frozen=True)
class Step:
    """One kernel the search looked at, and the plan it was written for."""

    round: int
    slot: str
    kernel_id: str | None
    parent_id: str | None
    title: str
    """The plan's title; `baseline` for the kernel the run started from."""
    change: str
    """What the plan said to do."""
    status: str
    latency_ms: float | None
    speedup: float | None
    """Over its parent."""
    percent_of_peak: float | None
    repairs: int
    selected: bool
    error: str

    @property
    def is_correct(self) -> bool:
        """Whether it passed every check and was timed."""
        return self.status == "correct" and self.latency_ms is not None


@dataclass(frozen=True)
class Measured:
    """A kernel with its text and what the profiler said of it."""

    kernel_id: str
    source: str
    latency_ms: float
    percent_of_peak: float | None
    """From 0 to 100; None where the work of the problem is not known."""
    profile: Profile | None
    bounds: Bounds | None


@dataclass(frozen=True)
class ProblemStory:
    """What a run did for one problem."""

    name: str
    title: str
    work: Work | None
    """None where the problem cannot be read any more."""
    peak_ms: float | None
    """The roofline's latency."""
    rounds_done: int
    baseline: Measured | None
    """None while the baseline is not evaluated."""
    best: Measured | None
    steps: tuple[Step, ...]
    """Every kernel, by round and place; the baseline first."""
    lineage: tuple[Step, ...]
    """From the baseline to the best kernel."""
    sources: dict[str, str]
    """Texts of the lineage's kernels, by id."""
    counts: Counts
    spending: Spending
    by_role: tuple[Spending, ...]
    by_round: tuple[Spending, ...]
    learned: tuple[Experience, ...]
    """Experiences that this run wrote, in order."""
    recalled: tuple[Experience, ...]
    """Experiences that stood in its prompts, most often used first."""

    @property
    def speedup(self) -> float | None:
        """Baseline latency over best latency."""
        if self.baseline is None or self.best is None:
            return None
        return self.baseline.latency_ms / self.best.latency_ms

    @property
    def best_by_round(self) -> dict[int, float]:
        """The best latency known after each round, in ms; round 0 is the baseline."""
        best: dict[int, float] = {}
        lowest = float("inf")
        for step in sorted(self.steps, key=lambda step: step.round):
            if step.is_correct and step.latency_ms is not None:
                lowest = min(lowest, step.latency_ms)
            if lowest < float("inf"):
                best[step.round] = lowest
        return best


@dataclass(frozen=True)
class Story:
    """One run."""

    run: RunRecord
    wall_s: float
    problems: tuple[ProblemStory, ...]
    read_at: datetime

    @property
    def models(self) -> list[str]:
        """The models that the settings name, each once."""
        return models_of(self.run.settings)


def read_story(ledger: Ledger, run_id: str) -> Story:
    """A run with everything a report tells of it.

    Raises:
        memory_store.errors.UnknownRun: there is no such run, or more than one goes by this text.
    """
    from memory_store.ledger.records import now

    run = as_it_stands(ledger.find_run(run_id))
    names = [row.problem for row in ledger.problems(run.id)]
    return Story(
        run=run,
        wall_s=ledger.wall_s(run.id),
        problems=tuple(_problem_story(ledger, run, name) for name in names),
        read_at=now(),
    )


def _problem_story(ledger: Ledger, run: RunRecord, name: str) -> ProblemStory:
    row = ledger.problem(run.id, name)
    assert row is not None
    problem = _read_problem(name, row.definition)
    small = bool(run.settings.get("small"))
    work = _work(problem, small)
    plans = {
        (plan.round, plan.parent_id, plan.index): plan.plan for plan in ledger.plans(run.id, problem=name)
    }
    candidates = ledger.candidates(run.id, problem=name)
    steps = [_step(candidate, plans) for candidate in candidates]
    peak = _peak_ms(work, run.target, steps)
    best = ledger.best(run.id, name)
    baseline_step = next((step for step in steps if step.round == 0), None)
    baseline = None
    if row.baseline_kernel_id and row.baseline_latency_ms:
        baseline = _measured(ledger, run, row.baseline_kernel_id, row.baseline_latency_ms, peak)
    elif baseline_step and baseline_step.kernel_id and baseline_step.latency_ms:
        baseline = _measured(ledger, run, baseline_step.kernel_id, baseline_step.latency_ms, peak)
    fastest = _measured(ledger, run, best.kernel_id, best.latency_ms, peak) if best else baseline
    lineage = (
        [_step(one, plans) for one in ledger.lineage(run.id, name, fastest.kernel_id)] if fastest else []
    )
    kernels = ledger.kernels([step.kernel_id for step in lineage if step.kernel_id])
    return ProblemStory(
        name=name,
        title=problem.title if problem is not None else "",
        work=work,
        peak_ms=peak,
        rounds_done=row.rounds_done,
        baseline=baseline,
        best=fastest,
        steps=tuple(steps),
        lineage=tuple(lineage),
        sources={kernel_id: kernel.source for kernel_id, kernel in kernels.items()},
        counts=ledger.counts(run.id, problem=name),
        spending=ledger.total_spending(run.id, problem=name),
        by_role=tuple(ledger.spending(run.id, by=("role", "model"), problem=name)),
        by_round=tuple(ledger.spending(run.id, by=("round",), problem=name)),
        learned=tuple(_experiences(ledger, run.id, name, Direction.WRITTEN)),
        recalled=tuple(_experiences(ledger, run.id, name, Direction.USED)),
    )


def _read_problem(name: str, definition: dict[str, Any]) -> Problem | None:
    # A user's own problem is known by its text, and reading its traffic off would run that text here.
    if set(definition) - {"name"}:
        return None
    try:
        return named_problem(name)
    except NKIBenchError:
        # An imported problem may be gone by the time its run is read.
        return None


def _work(problem: Problem | None, small: bool) -> Work | None:
    try:
        return problem.work(small) if problem is not None else None
    except WorkUnknown:
        return None


def _peak_ms(work: Work | None, target: str, steps: Sequence[Step]) -> float | None:
    if work is not None:
        return peak_ms(work, target)
    for step in steps:
        if step.percent_of_peak and step.latency_ms:
            return step.latency_ms * step.percent_of_peak / 100
    return None


def _step(candidate: CandidateRecord, plans: dict[tuple[int, str, int], dict[str, Any]]) -> Step:
    key = (candidate.round, candidate.parent_id or "", candidate.plan_index or 0)
    plan = plans.get(key, {})
    return Step(
        round=candidate.round,
        slot=candidate.slot,
        kernel_id=candidate.kernel_id,
        parent_id=candidate.parent_id,
        title=str(plan.get("title") or ("baseline" if candidate.round == 0 else "")),
        change=str(plan.get("change") or ""),
        status=candidate.status,
        latency_ms=candidate.latency_ms,
        speedup=candidate.speedup,
        percent_of_peak=candidate.percent_of_peak,
        repairs=candidate.repairs,
        selected=candidate.selected,
        error=candidate.error,
    )


def _measured(
    ledger: Ledger, run: RunRecord, kernel_id: str, latency_ms: float, peak: float | None
) -> Measured:
    kernel = ledger.kernel(kernel_id)
    # The same kernel may have been judged for another problem, target or backend;
    # this run's is the one with its latency.
    results = [
        record.result
        for record in ledger.evaluations_of(kernel_id)
        if record.latency_ms == latency_ms and record.result.get("target", run.target) == run.target
    ]
    result = results[-1] if results else {}
    profile, bounds = result.get("profile"), result.get("bounds")
    return Measured(
        kernel_id=kernel_id,
        source=kernel.source if kernel is not None else "",
        latency_ms=latency_ms,
        percent_of_peak=100 * peak / latency_ms if peak is not None else None,
        profile=Profile.model_validate(profile) if profile else None,
        bounds=Bounds.model_validate(bounds) if bounds else None,
    )


def _experiences(ledger: Ledger, run_id: str, problem: str, direction: Direction) -> Sequence[Experience]:
    uses: dict[str, int] = {}
    for ids in ledger.experience_ids(run_id, direction, problem=problem).values():
        for one in ids:
            uses[one] = uses.get(one, 0) + 1
    ordered = list(uses) if direction is Direction.WRITTEN else sorted(uses, key=lambda one: -uses[one])
    return ledger.experiences(ordered)
