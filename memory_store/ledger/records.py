"""What the ledger gives and takes: frozen records, one a table row or a sum over rows."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class Record(BaseModel):
    """Frozen, and readable from a table row."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class RunStatus(StrEnum):
    """Where a run stands. A run whose process was killed still says `running`; `resume` takes it up."""

    RUNNING = "running"
    PAUSED = "paused"
    """Waits for a person."""
    STOPPED = "stopped"
    """Ended by a person, can be resumed."""
    CAPPED = "capped"
    """Ended in order because a cap on money, tokens, time or kernels was reached."""
    FINISHED = "finished"
    FAILED = "failed"


class Direction(StrEnum):
    """What a round did with an experience."""

    USED = "used"
    """It stood in a prompt."""
    WRITTEN = "written"
    """It was learned."""
    QUEUE = "queue"
    """It was in the bounded memory when the round ended."""


class RunRecord(Record):
    """A run: its settings, its state, and how long it has worked over all its periods."""

    id: str
    status: RunStatus
    problems: list[str]
    settings: dict[str, Any]
    seed: int
    target: str
    backend: str
    version: str = ""
    """Version of the product that began the run."""
    note: str = ""
    """Why it ended, in one line, where that needs saying."""
    started_at: datetime
    ended_at: datetime | None = None


class ProblemRecord(Record):
    """One problem of a run: what it began with and the best so far."""

    run_id: str
    problem: str
    definition: dict[str, Any] = Field(default_factory=dict)
    """Enough to take the problem up again without the user's files: for a kernel of the user's own, the
    text of its reference."""
    baseline_kernel_id: str | None = None
    baseline_latency_ms: float | None = None
    best_kernel_id: str | None = None
    best_latency_ms: float | None = None
    best_round: int | None = None
    rounds_done: int = 0


class KernelRecord(Record):
    """A kernel's source under the hash of its content."""

    id: str
    source: str
    dialect: str = ""
    created_at: datetime


class EvaluationRecord(Record):
    """A finished evaluation, keyed by all that it depends on."""

    kernel_id: str
    problem: str
    backend: str
    settings_digest: str
    stage: str
    status: str
    latency_ms: float | None = None
    result: dict[str, Any]
    created_at: datetime


class PlanRecord(Record):
    """One plan of one candidate in one round."""

    run_id: str
    problem: str
    round: int
    parent_id: str
    index: int
    plan: dict[str, Any]
    call_key: str = ""
    """The model call that wrote it."""


class CandidateRecord(Record):
    """One place of a round and the kernel that came to stand there: the lineage is read from these."""

    run_id: str
    problem: str
    round: int
    slot: str
    """Unique in the round, e.g. `1.4.0` for candidate 1, plan 4, sample 0; `baseline` in round 0."""
    kernel_id: str | None = None
    """None where the model's answer held no kernel."""
    parent_id: str | None = None
    plan_index: int | None = None
    status: str
    latency_ms: float | None = None
    speedup: float | None = None
    """Over the parent."""
    percent_of_peak: float | None = None
    repairs: int = 0
    """Answers of the fixer that led here."""
    selected: bool = False
    error: str = ""
    """One line, for kernels that failed."""
    call_key: str = ""


class ModelCall(Record):
    """One answered call of a model. `key` names the place in the run that asked."""

    run_id: str
    key: str
    role: str
    model: str
    problem: str = ""
    round: int = 0
    prompt: list[dict[str, Any]] = Field(default_factory=list)
    """Messages, each with `role` and `content` and whatever else was sent."""
    answer: str = ""
    reasoning: str = ""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Anything else that a replay needs, e.g. tool calls."""
    error: str = ""
    """Kind of fault, where the answer could not be used."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Part of the input tokens that the endpoint had cached."""
    reasoning_tokens: int = 0
    """Part of the output tokens spent on reasoning."""
    usd: float = 0.0
    latency_s: float = 0.0
    created_at: datetime = Field(default_factory=now)


class Spending(Record):
    """Sums over model calls; the fields not grouped by are None."""

    problem: str | None = None
    role: str | None = None
    model: str | None = None
    round: int | None = None
    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float = 0.0
    latency_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class Counts(Record):
    """How many kernels a run looked at, and what became of them. The baseline is not counted."""

    evaluated: int = 0
    correct: int = 0
    repairs: int = 0
    by_status: dict[str, int] = Field(default_factory=dict)


class BestKernel(Record):
    """The fastest correct kernel of a problem in a run."""

    kernel_id: str
    latency_ms: float
    round: int


class EventRecord(Record):
    """Something worth telling while a run works; `id` grows."""

    id: int
    run_id: str
    kind: str
    problem: str = ""
    round: int = 0
    payload: dict[str, Any]
    created_at: datetime
