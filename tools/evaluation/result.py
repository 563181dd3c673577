"""What an evaluation says: a status, the reason for it, the numbers behind it."""

import math
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from nkibench.regime import Regime

from ..profile import BackendName, Bounds, Profile
from ..verification import Check


class Status(StrEnum):
    """The verdict on one kernel."""

    rejected = "rejected"
    """The gate refused its text."""
    compile_error = "compile_error"
    runtime_error = "runtime_error"
    timeout = "timeout"
    incorrect = "incorrect"
    """Its results are wrong, or not exact enough, or not reproducible."""
    suspect = "suspect"
    """Its results are right and its speed is not possible; never kept."""
    profiled = "profiled"
    """It compiles and was measured; nobody has looked at its results."""
    correct = "correct"


class Stage(StrEnum):
    """How far an evaluation goes; each stage contains those before it."""

    profile = "profile"
    """Gate, compile, measure; no data needed."""
    screen = "screen"
    """One seed of the benchmark's own distribution."""
    promote = "promote"
    """Every seed and every regime, in a process of its own: for what is kept or reported."""


class EvaluationError(BaseModel):
    """Why a kernel is not correct."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="Short and stable: a gate rule, an NKI error name, a check")
    message: str = Field(description="What was found, and what would be allowed")
    line: int | None = Field(default=None, description="Line of the kernel's source")
    remedy: str | None = Field(default=None, description="What to do about it")

    def __str__(self) -> str:
        """One line: `line 12: name: message (fix: remedy)`."""
        where = f"line {self.line}: " if self.line else ""
        fix = f" (fix: {self.remedy})" if self.remedy else ""
        return " ".join(f"{where}{self.name}: {self.message}{fix}".split())


def _finite_or_text(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


# JSON has neither NaN nor infinity; as the texts "nan" and "inf" they survive the way into a database and back.
AnyFloat = Annotated[float, PlainSerializer(_finite_or_text, return_type=float | str, when_used="json")]


class Failure(BaseModel):
    """The first check that failed, and where."""

    model_config = ConfigDict(frozen=True)

    check: Check
    seed: int | None = Field(default=None, description="Seed of the inputs, where inputs mattered")
    regime: Regime | None = Field(
        default=None, description="Distribution of the inputs, where inputs mattered"
    )
    output: int | None = Field(default=None, description="Which output")
    index: tuple[int, ...] | None = Field(
        default=None, description="Element of that output that is furthest off"
    )
    expected: AnyFloat | None = Field(default=None, description="The reference's value there")
    got: AnyFloat | None = Field(default=None, description="The kernel's value there")
    message: str = Field(description="The finding in one line")


class RegimeResult(BaseModel):
    """The errors of one run."""

    model_config = ConfigDict(frozen=True)

    seed: int
    regime: Regime
    relative_l2: AnyFloat = Field(description="Error norm over the reference's norm, worst output")
    tile_relative_l2: AnyFloat = Field(description="The same for the worst tile")


class Verification(BaseModel):
    """What comparing a kernel with its reference gave."""

    model_config = ConfigDict(frozen=True)

    seeds: list[int] = Field(description="Seeds that were run")
    regimes: list[Regime] = Field(default_factory=list, description="Distributions that were run")
    worst_relative_l2: AnyFloat = Field(
        description="Largest relative L2 error over runs and outputs, in float64"
    )
    worst_tile_relative_l2: AnyFloat = Field(
        default=0.0, description="Largest relative L2 error of any output tile"
    )
    tolerance: float = Field(description="Largest relative L2 error that counts as correct")
    precision: str = Field(
        default="strict", description="strict, or relaxed where the run allowed narrower types"
    )
    narrowed: list[str] = Field(default_factory=list, description="Types below fp32 in the compiled kernel")
    passed: bool
    failure: Failure | None = None
    runs: list[RegimeResult] = Field(default_factory=list, description="Each run, in order")


class Evaluation(BaseModel):
    """Everything known about one kernel on one problem and machine."""

    model_config = ConfigDict(frozen=True)

    kernel_id: str
    problem: str
    target: str
    backend: BackendName
    stage: Stage = Field(description="How far the evaluation was asked to go")
    status: Status
    error: EvaluationError | None = None
    verification: Verification | None = None
    profile: Profile | None = None
    bounds: Bounds | None = None
    latency_ms: float | None = None
    percent_of_peak: float | None = Field(default=None, description="0 to 100")
    wall_s: float = Field(description="Seconds that the evaluation took here")
