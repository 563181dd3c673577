"""The paper's experiments: the same search under several settings, over problems and seeds, and one table of it.

Every variant and seed has a home of its own, so that no variant learns from another. A run that is finished
there is not done again: an ablation that was stopped goes on where it was.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_store.errors import UnknownRun
from memory_store.home import Home
from memory_store.ledger import Ledger, RunRecord, RunStatus
from nodes.budget import cap_text
from nodes.complaint import complaint
from nodes.context import PRESETS, Caps, RunContext
from nodes.problems import known_names, named_problem

from .limits import LimitReached, Used, left_of, used_by
from .run import Result, RunError, optimize, resume

NEAR = 0.95
"""A run is as good as done when it has reached this share of its final speed; the paper's measure of how soon."""

_NAME = r"^[A-Za-z0-9_.-]+$"


class Spec(BaseModel):
    """What to compare, as a TOML file says it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=_NAME, description="Names the folder that the runs are kept in.")
    problems: list[str] = Field(min_length=1, description="Problems by name, or `all`.")
    seeds: list[int] = Field(default=[0], min_length=1, description="Every variant is run once with each.")
    preset: str = Field(default="quick", description="The settings that all variants begin with.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Settings that all variants share.")
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Settings of each variant, by its name."
    )
    grid: dict[str, list[Any]] = Field(
        default_factory=dict, description="Settings with several values; each combination is a variant."
    )
    caps: Caps = Field(default_factory=Caps, description="Limits that all runs together never pass.")

    def contexts(self) -> dict[str, RunContext]:
        """The settings of every variant by its name: variants times combinations of the grid.

        Raises:
            RunError: a setting is unknown or out of range; says of which variant.
        """
        if self.preset not in PRESETS:
            raise RunError(f"no preset {self.preset!r}; there are {', '.join(sorted(PRESETS))}")
        named = self.variants or {"": {}}
        found = {}
        for label, changes in named.items():
            for values in itertools.product(*self.grid.values()):
                chosen = dict(zip(self.grid, values, strict=True))
                parts = [label] if label else []
                parts += [f"{setting}={value}" for setting, value in chosen.items()]
                name = ",".join(parts) or "default"
                try:
                    found[name] = RunContext.preset(self.preset, **{**self.settings, **changes, **chosen})
                except ValidationError as error:
                    raise RunError(f"variant {name}: {complaint(error, RunContext)}") from error
        return found

    def problem_names(self) -> list[str]:
        """The problems, `all` spelled out.

        Raises:
            nkibench.errors.NKIBenchError: one is unknown.
        """
        names = known_names() if self.problems == ["all"] else list(dict.fromkeys(self.problems))
        for name in names:
            named_problem(name)
        return names


@dataclass(frozen=True)
class CellHome(Home):
    """The home of one variant and seed. Only what can be computed again is shared with the others."""

    shared_cache: Path = Path()

    @property
    def cache_path(self) -> Path:
        """The cache of the home that the ablation lies in."""
        return self.shared_cache

    @property
    def llm_cache_path(self) -> Path:
        """A response cache of its own: an answer that another variant has paid would count as free here."""
        return self.root / "llm.sqlite"


@dataclass(frozen=True)
class Cell:
    """One run of an ablation."""

    variant: str
    seed: int
    problem: str
    context: RunContext
    home: Home


@dataclass(frozen=True)
class Outcome:
    """A finished cell."""

    cell: Cell
    result: Result
    kernels_to_near: int
    """Kernels tried until the run had 95 % of its final speed."""


@dataclass(frozen=True)
class Row:
    """A variant over all problems and seeds. Spreads are standard deviations over the seeds, 0 for one seed."""

    variant: str
    seeds: int
    problems: int
    speedup: float
    """Geometric mean over the problems, mean over the seeds."""
    speedup_spread: float
    percent_of_peak: float
    """Geometric mean over the problems, mean over the seeds; 0 to 100."""
    percent_of_peak_spread: float
    kernels_to_near: float
    """Mean over problems and seeds."""
    kernels_to_near_spread: float
    kernels: float
    """Tried for all problems, mean over the seeds."""
    tokens: float
    """For all problems, mean over the seeds."""
    usd: float
    """For all problems, mean over the seeds."""


def read_spec(path: Path) -> Spec:
    """The ablation that a TOML file describes.

    Raises:
        RunError: it cannot be read, or is not one; says where.
    """
    try:
        return Spec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise RunError(f"cannot read the ablation {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise RunError(f"{path}: {complaint(error, Spec)}") from error


def cells(spec: Spec, home: Home) -> list[Cell]:
    """Every run of an ablation in order: seeds within problems within variants.

    Raises:
        RunError: a setting is unknown or out of range.
        nkibench.errors.NKIBenchError: a problem is unknown.
    """
    problems = spec.problem_names()
    return [
        Cell(
            variant=variant,
            seed=seed,
            problem=problem,
            context=context.model_copy(update={"seed": seed}),
            home=CellHome(
                root=folder(spec, home) / re.sub(r"[^A-Za-z0-9_.=,-]", "_", variant) / f"seed-{seed}",
                shared_cache=home.cache_path,
            ),
        )
        for variant, context in spec.contexts().items()
        for seed in spec.seeds
        for problem in problems
    ]


def folder(spec: Spec, home: Home) -> Path:
    """Where an ablation's runs and tables are kept."""
    return home.root / "ablations" / spec.name


def run_cell(cell: Cell, caps: Caps | None = None, **options: Any) -> Outcome:
    """Run a cell, go on with it, or take its result if it is done. Takes the options of `graph.run.optimize`.

    Args:
        cell: the run.
        caps: its limits, if they are narrower than those of its settings.
        options: of `graph.run.optimize`.

    Raises:
        RunError: it cannot run, was stopped, or was begun under other settings.
    """
    begun = _begun(cell)
    context = cell.context.model_copy(update={"caps": caps or cell.context.caps})
    if begun is None:
        result = optimize(cell.problem, context, run_id=cell.problem, home=cell.home, **options)
    else:
        # Limits may change: they decide how far a run goes, not where.
        if RunContext.model_validate(begun.settings).model_copy(update={"caps": context.caps}) != context:
            raise RunError(
                f"{cell.home.root} holds a run of {cell.problem} under other settings; "
                "give the ablation another name"
            )
        limits = None if _is_done(cell, begun) else context.caps
        result = resume(cell.problem, home=cell.home, caps=limits, **options)
    return Outcome(cell, result, _kernels_to_near(cell, result))


def run_all(
    todo: Sequence[Cell],
    on_cell: Callable[[int, Cell], Mapping[str, Any]] | None = None,
    caps: Caps | None = None,
) -> Iterator[Outcome]:
    """Run cells one after the other.

    Args:
        todo: what `cells` gave.
        on_cell: hears the number of the cell that begins, and gives the options to run it with.
        caps: limits that all of them together never pass.

    Raises:
        RunError: as `run_cell`.
        LimitReached: after all outcomes that there are, if the common limits kept others from being had.
    """
    shared = caps or Caps()
    used = [_used(cell) for cell in todo]
    reached: LimitReached | None = None
    for number, cell in enumerate(todo):
        begun = _begun(cell)
        limits = cell.context.caps
        if begun is None or not _is_done(cell, begun):
            try:
                limits = _narrower(limits, left_of(shared, used[:number] + used[number + 1 :], _WHOM))
            except LimitReached as error:
                reached = error
                continue
        outcome = run_cell(cell, limits, **(on_cell(number, cell) if on_cell else {}))
        used[number] = _used(cell)
        now = _begun(cell)
        if now is not None and now.status is RunStatus.CAPPED and not _is_done(cell, now):
            name = _named(limits, now.note)
            limit = (
                f"the cap of {cap_text(name, getattr(shared, name))} for {_WHOM} is reached"
                if name
                else now.note
            )
            reached = LimitReached(limit)
            continue
        yield outcome
    if reached is not None:
        raise reached


_WHOM = "the whole ablation"


def _is_done(cell: Cell, record: RunRecord) -> bool:
    """Whether a run has ended as far as its own settings let it."""
    if record.status is not RunStatus.CAPPED:
        return record.status is RunStatus.FINISHED
    return _named(cell.context.caps, record.note) is not None


def _named(caps: Caps, note: str) -> str | None:
    """Which of these limits a run's note says that it has reached."""
    limits = caps.model_dump(exclude_none=True)
    return next(
        (name for name in limits if note.startswith(f"the cap of {cap_text(name, limits[name])}")), None
    )


def _narrower(first: Caps, second: Caps) -> Caps:
    both = [caps.model_dump(exclude_none=True) for caps in (first, second)]
    return Caps.model_validate(
        {name: min(one[name] for one in both if name in one) for name in both[0] | both[1]}
    )


def _used(cell: Cell) -> Used:
    if _begun(cell) is None:
        return Used()
    with Ledger(cell.home.ledger_url) as ledger:
        return used_by(ledger, cell.problem)


def table(outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows of the paper's table, one a variant, in the order of the runs."""
    by_variant: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_variant.setdefault(outcome.cell.variant, []).append(outcome)
    return [_row(variant, found) for variant, found in by_variant.items()]


def whole(outcomes: Sequence[Outcome], todo: Sequence[Cell]) -> list[Outcome]:
    """The outcomes of variants that all of their runs are done of: means over fewer would not compare."""
    missing = {cell.variant for cell in todo if cell not in [outcome.cell for outcome in outcomes]}
    return [outcome for outcome in outcomes if outcome.cell.variant not in missing]


def as_csv(rows: Sequence[Row]) -> str:
    """The table as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(Row.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(row) for row in rows)
    return text.getvalue()


def _row(variant: str, outcomes: Sequence[Outcome]) -> Row:
    by_seed: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        by_seed.setdefault(outcome.cell.seed, []).append(outcome)
    seeds = list(by_seed.values())
    speedups = [_geomean([one.result.speedup for one in found]) for found in seeds]
    peaks = [_geomean([one.result.best_percent_of_peak for one in found]) for found in seeds]
    soon = [float(one.kernels_to_near) for one in outcomes]
    return Row(
        variant=variant,
        seeds=len(seeds),
        problems=max(len(found) for found in seeds),
        speedup=mean(speedups),
        speedup_spread=_spread(speedups),
        percent_of_peak=mean(peaks),
        percent_of_peak_spread=_spread(peaks),
        kernels_to_near=mean(soon),
        kernels_to_near_spread=_spread(soon),
        kernels=mean(sum(one.result.kernels_evaluated for one in found) for found in seeds),
        tokens=mean(sum(one.result.tokens for one in found) for found in seeds),
        usd=mean(sum(one.result.usd for one in found) for found in seeds),
    )


def _geomean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _begun(cell: Cell) -> RunRecord | None:
    if not cell.home.root.exists():
        return None
    with Ledger(cell.home.prepare().ledger_url) as ledger:
        try:
            return ledger.run(cell.problem)
        except UnknownRun:
            return None


def _kernels_to_near(cell: Cell, result: Result) -> int:
    enough_ms = result.best_latency_ms / NEAR
    if result.baseline_latency_ms <= enough_ms:
        return 0
    with Ledger(cell.home.ledger_url) as ledger:
        candidates = ledger.candidates(cell.problem, problem=result.problem)
    tried = 0
    for one in candidates:
        if one.round == 0 or one.kernel_id is None:
            continue
        tried += 1
        if one.status == "correct" and one.latency_ms is not None and one.latency_ms <= enough_ms:
            return tried
    return tried
