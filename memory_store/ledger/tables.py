"""The ledger's tables. A change to any of them raises `SCHEMA_VERSION`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from .columns import PackedJson, PackedText, SafeText, UtcTime
from .records import now

SCHEMA_VERSION = 1


class Table(DeclarativeBase):
    """Registry of the tables."""


class Meta(Table):
    """Facts about the ledger itself; the schema version is one."""

    __tablename__ = "ledger_meta"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class Run(Table):
    """See `RunRecord`."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    status: Mapped[str] = mapped_column(String(16), index=True)
    problems: Mapped[list[str]] = mapped_column(JSON)
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    seed: Mapped[int] = mapped_column(Integer)
    target: Mapped[str] = mapped_column(String(16))
    backend: Mapped[str] = mapped_column(String(32))
    version: Mapped[str] = mapped_column(String(32), default="")
    note: Mapped[str] = mapped_column(SafeText, default="")
    started_at: Mapped[datetime] = mapped_column(UtcTime, default=now, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)


class Period(Table):
    """A stretch of time in which one process worked on a run; a resumed run has several."""

    __tablename__ = "periods"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    began_at: Mapped[datetime] = mapped_column(UtcTime, default=now)
    seen_at: Mapped[datetime] = mapped_column(UtcTime, default=now)


class Kernel(Table):
    """See `KernelRecord`."""

    __tablename__ = "kernels"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    source: Mapped[str] = mapped_column(PackedText)
    dialect: Mapped[str] = mapped_column(String(32), default="")
    created_at: Mapped[datetime] = mapped_column(UtcTime, default=now)


class RunProblem(Table):
    """See `ProblemRecord`."""

    __tablename__ = "run_problems"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    problem: Mapped[str] = mapped_column(String(200), primary_key=True)
    definition: Mapped[dict[str, Any]] = mapped_column(PackedJson, default=dict)
    baseline_kernel_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    baseline_latency_ms: Mapped[float | None]
    best_kernel_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    best_latency_ms: Mapped[float | None]
    best_round: Mapped[int | None]
    rounds_done: Mapped[int] = mapped_column(default=0)


class Evaluation(Table):
    """See `EvaluationRecord`: the idempotent cache of evaluations, shared by all runs."""

    __tablename__ = "evaluations"

    kernel_id: Mapped[str] = mapped_column(ForeignKey("kernels.id"), primary_key=True)
    problem: Mapped[str] = mapped_column(String(200), primary_key=True)
    backend: Mapped[str] = mapped_column(String(32), primary_key=True)
    settings_digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    stage: Mapped[str] = mapped_column(String(32), primary_key=True)
    status: Mapped[str] = mapped_column(String(32))
    latency_ms: Mapped[float | None]
    result: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime, default=now)


class Plan(Table):
    """See `PlanRecord`."""

    __tablename__ = "plans"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    problem: Mapped[str] = mapped_column(String(200), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent_id: Mapped[str] = mapped_column(ForeignKey("kernels.id"), primary_key=True)
    index: Mapped[int] = mapped_column("plan_index", primary_key=True, autoincrement=False)
    plan: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    call_key: Mapped[str] = mapped_column(String(200), default="")


class Candidate(Table):
    """See `CandidateRecord`."""

    __tablename__ = "candidates"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    problem: Mapped[str] = mapped_column(String(200), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    slot: Mapped[str] = mapped_column(String(64), primary_key=True)
    kernel_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    plan_index: Mapped[int | None]
    status: Mapped[str] = mapped_column(String(32))
    latency_ms: Mapped[float | None]
    speedup: Mapped[float | None]
    percent_of_peak: Mapped[float | None]
    repairs: Mapped[int] = mapped_column(default=0)
    selected: Mapped[bool] = mapped_column(default=False)
    error: Mapped[str] = mapped_column(SafeText, default="")
    call_key: Mapped[str] = mapped_column(String(200), default="")

    __table_args__ = (Index("ix_candidates_kernel", "run_id", "kernel_id"),)


class TextBlock(Table):
    """A piece of a prompt. Prompts of a round repeat each other almost whole, so each piece is kept once."""

    __tablename__ = "text_blocks"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    body: Mapped[str] = mapped_column(PackedText)


class Call(Table):
    """See `ModelCall`. `prompt` holds messages whose text is given as ids of text blocks."""

    __tablename__ = "model_calls"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    key: Mapped[str] = mapped_column("call_key", String(200), primary_key=True)
    role: Mapped[str] = mapped_column(String(32))
    model: Mapped[str] = mapped_column(String(200))
    problem: Mapped[str] = mapped_column(String(200), default="")
    round: Mapped[int] = mapped_column(default=0)
    prompt: Mapped[list[Any]] = mapped_column(PackedJson)
    answer: Mapped[str] = mapped_column(PackedText, default="")
    reasoning: Mapped[str] = mapped_column(PackedText, default="")
    extra: Mapped[dict[str, Any]] = mapped_column(PackedJson, default=dict)
    error: Mapped[str] = mapped_column(SafeText, default="")
    input_tokens: Mapped[int] = mapped_column(default=0)
    output_tokens: Mapped[int] = mapped_column(default=0)
    cached_tokens: Mapped[int] = mapped_column(default=0)
    reasoning_tokens: Mapped[int] = mapped_column(default=0)
    usd: Mapped[float] = mapped_column(default=0.0)
    latency_s: Mapped[float] = mapped_column(default=0.0)
    created_at: Mapped[datetime] = mapped_column(UtcTime, default=now)

    __table_args__ = (Index("ix_model_calls_round", "run_id", "round"),)


class ExperienceCopy(Table):
    """An experience as some run used or wrote it, so that a report needs nothing but the ledger."""

    __tablename__ = "experiences"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    record: Mapped[dict[str, Any]] = mapped_column(PackedJson)


class ExperienceList(Table):
    """Which experiences a round used, wrote, or kept in its queue, in order; an empty list is a row too."""

    __tablename__ = "experience_lists"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    problem: Mapped[str] = mapped_column(String(200), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    direction: Mapped[str] = mapped_column(String(16), primary_key=True)
    scope: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    experience_ids: Mapped[list[str]] = mapped_column(JSON)


class Event(Table):
    """See `EventRecord`; `key` makes telling the same thing twice harmless."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    key: Mapped[str] = mapped_column("event_key", String(200))
    kind: Mapped[str] = mapped_column(String(32))
    problem: Mapped[str] = mapped_column(String(200), default="")
    round: Mapped[int] = mapped_column(default=0)
    payload: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime, default=now)

    __table_args__ = (Index("ix_events_key", "run_id", "event_key", unique=True),)
