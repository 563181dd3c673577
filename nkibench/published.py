"""Published measurements of NKIBench's kernels on Trainium; `measured/SOURCES.md` says whose they are."""

import csv
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

_MEASURED = Path(__file__).parent / "measured"


class PublishedResult(BaseModel):
    """What the AccelOpt paper reports for one problem."""

    model_config = ConfigDict(frozen=True)

    problem: str
    """Our problem of the same operator and shape."""
    target: str
    """The machine it was measured on."""
    baseline_latency_ms: float = Field(gt=0)
    """Latency of upstream's baseline kernel."""
    baseline_percent_of_peak: float = Field(gt=0, le=100)
    """Percent of peak of upstream's baseline kernel."""
    accelopt_percent_of_peak: float = Field(gt=0, le=100)
    """Best kernel that the paper's system found, gpt-oss-120b behind every agent."""
    sonnet4_percent_of_peak: float = Field(gt=0, le=100)
    """Best kernel of repeated sampling from Claude Sonnet 4."""


@cache
def published_results() -> dict[str, PublishedResult]:
    """The paper's table, by problem."""
    rows = _rows("nkibench_paper.csv")
    return {row["problem"]: PublishedResult.model_validate(row) for row in rows}


@cache
def trn1_profiles() -> dict[str, dict[str, float]]:
    """Measured latency (`latency`, in ms) and profile counters of upstream's baselines on Trn1, by problem.

    Counters are named as `neuron-profile` names them; those that it left empty are absent.
    """
    profiles = {}
    for row in _rows("trn1_profiles.csv"):
        counters = {key: value for key, value in row.items() if key not in ("problem", "values")}
        profiles[row["problem"]] = {key: float(value) for key, value in counters.items() if value}
    return profiles


def _rows(file: str) -> list[dict[str, str]]:
    with (_MEASURED / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
