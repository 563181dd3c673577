"""A run in a few figures, as plain JSON for tables, scripts and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any

from memory_store.home import find_home
from memory_store.ledger import Grouping, Ledger, RunRecord, RunStatus
from nkibench.errors import NKIBenchError
from nkibench.roofline import percent_of_peak
from nodes.problems import named_problem

_GAIN = (
    "problem",
    "baseline_latency_ms",
    "best_latency_ms",
    "speedup",
    "best_percent_of_peak",
    "rounds_done",
)


def models_of(settings: dict[str, Any]) -> list[str]:
    """The models that a run's settings name, each once."""
    named: list[str] = []
    for role in ("planner", "executor", "fixer", "summarizer"):
        named += [one for one in (settings.get(role) or {}).get("models", ()) if one not in named]
    return named


def as_it_stands(run: RunRecord) -> RunRecord:
    """A run with the status that is true: one whose process was killed could not write down that it ended."""
    home = find_home()
    # Where the ledger is shared, the process may be another machine's.
    if run.status is not RunStatus.RUNNING or home.postgres_url or not home.is_abandoned(run.id):
        return run
    note = f"cut off; go on with: accelopt resume {run.id}"
    return run.model_copy(update={"status": RunStatus.STOPPED, "note": note})


def run_summary(ledger: Ledger, run: RunRecord) -> dict[str, Any]:
    """One run as plain JSON: how it stands, what it gained and what it cost."""
    run = as_it_stands(run)
    gains = _gains(ledger, run)
    spent = ledger.total_spending(run.id)
    counts = ledger.counts(run.id)
    return {
        "run_id": run.id,
        "status": run.status.value,
        "note": run.note,
        "problems": gains,
        "target": run.target,
        "backend": run.backend,
        "models": models_of(run.settings),
        "seed": run.seed,
        "iterations": run.settings.get("iterations"),
        "kernels_evaluated": counts.evaluated,
        "kernels_correct": counts.correct,
        "tokens": spent.tokens,
        "usd": spent.usd,
        "wall_s": round(ledger.wall_s(run.id), 3),
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


def _gains(ledger: Ledger, run: RunRecord) -> list[dict[str, Any]]:
    begun = ledger.problems(run.id)
    if not begun:
        # It could not start, or has only just: what it is about is known all the same.
        return [{**dict.fromkeys(_GAIN), "problem": name, "rounds_done": 0} for name in run.problems]
    rows = []
    for row in begun:
        best = ledger.best(run.id, row.problem)
        base_ms, best_ms = row.baseline_latency_ms, best.latency_ms if best else None
        reached = None
        if best_ms:
            try:
                work = named_problem(row.problem).work(bool(run.settings.get("small")))
                reached = percent_of_peak(work, best_ms, run.target)
            except NKIBenchError:
                # A user's own problem: the search wrote the percentage beside its kernels.
                fit = ledger.candidates(run.id, problem=row.problem, status="correct")
                reached = next((c.percent_of_peak for c in fit if c.latency_ms == best_ms), None)
        rows.append(
            {
                "problem": row.problem,
                "baseline_latency_ms": base_ms,
                "best_latency_ms": best_ms,
                "speedup": base_ms / best_ms if base_ms and best_ms else None,
                "best_percent_of_peak": reached,
                "rounds_done": row.rounds_done,
            }
        )
    return rows


def runs_cost(ledger: Ledger, name: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """What runs spent together, and what they got for it: USD for each percent of geometric mean speedup.

    Args:
        ledger: where they are.
        name: what to call them: the id of the one run, or of a series.
        runs: one or more.
    """
    gains = [gain for run in runs for gain in _gains(ledger, run)]
    speedups = [one["speedup"] for one in gains if one["speedup"]]
    speedup = exp(sum(map(log, speedups)) / len(speedups)) if speedups else None
    gained = 100 * (speedup - 1) if speedup else 0.0
    parts = {by: _parts(ledger, runs, by) for by in PARTS}
    usd = sum(one["usd"] for one in parts["role"])
    return {
        "run_id": name,
        "problems": [one["problem"] for one in gains],
        "models": list(dict.fromkeys(model for run in runs for model in models_of(run.settings))),
        "speedup": speedup,
        **{field: sum(one[field] for one in parts["role"]) for field in _COUNTED},
        "usd": usd,
        "usd_per_percent_gained": usd / gained if gained > 0 else None,
        **{f"by_{by}": found for by, found in parts.items()},
    }


PARTS: tuple[Grouping, ...] = ("role", "model", "round")
"""What spending can be told apart by."""

_COUNTED = ("calls", "failed_calls", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def _parts(ledger: Ledger, runs: Sequence[RunRecord], by: Grouping) -> list[dict[str, Any]]:
    sums: dict[Any, dict[str, Any]] = {}
    for run in runs:
        for one in ledger.spending(run.id, by=(by,)):
            part = sums.setdefault(getattr(one, by), dict.fromkeys((*_COUNTED, "usd"), 0))
            for field in part:
                part[field] += getattr(one, field)
    return [{by: value, **sums[value]} for value in sorted(sums)]
