"""All settings of a run: the graph's context schema, and what Studio, the SDK and the CLI offer to change."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

OFFLINE = "offline"
"""The model name that stands for the built-in deterministic model."""


class Role(StrEnum):
    """Who a model call is made for."""

    PLANNER = "planner"
    EXECUTOR = "executor"
    FIXER = "fixer"
    SUMMARIZER = "summarizer"


class AnswerMode(StrEnum):
    """How a structured answer is asked for; `auto` goes down the list until the endpoint follows."""

    AUTO = "auto"
    JSON_SCHEMA = "json_schema"
    FUNCTION_CALLING = "function_calling"
    JSON = "json"
    TEXT = "text"


def _ui(kind: str, **more: Any) -> dict[str, Any]:
    """Tell Open Agent Platform which control to draw; Studio reads the plain JSON schema."""
    return {"metadata": {"x_oap_ui_config": {"type": kind, **more}}}


class RoleModel(BaseModel):
    """Which model answers for a role, and how it is called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = Field(
        default=(OFFLINE,),
        min_length=1,
        description="Model names; draws are spread over them in turn. 'offline' is the built-in model.",
    )
    base_url: str | None = Field(
        default=None, description="An OpenAI-compatible endpoint, such as http://localhost:8000/v1."
    )
    api_key_env: str = Field(
        default="OPENAI_API_KEY", description="Name of the environment variable that holds the key."
    )
    temperature: float | None = Field(default=None, ge=0, le=2, description="Unset: the endpoint's default.")
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = Field(
        default=None, description="For models that take it."
    )
    max_output_tokens: int = Field(
        default=16384,
        ge=256,
        description="Longest answer, reasoning included; what caps reckon with.",
    )
    prompt_tokens: int = Field(
        default=24000, ge=2000, description="Longest prompt; less important parts are left out beyond it."
    )
    timeout_s: float = Field(default=600, gt=0, description="Longest wait for one answer, in seconds.")
    answer_mode: AnswerMode = Field(
        default=AnswerMode.AUTO, description="How structured answers are asked for."
    )
    concurrency: int = Field(default=16, ge=1, description="Calls in flight at once to this endpoint.")
    requests_per_minute: float | None = Field(default=None, gt=0, description="Rate limit of this endpoint.")
    pause_s: float = Field(
        default=1,
        gt=0,
        description="First pause after a fault, in seconds; it doubles with each further one.",
    )
    outage_s: float = Field(
        default=6 * 3600,
        ge=0,
        description="How long an endpoint may be down before the run ends, in seconds.",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further request fields, such as top_k or chat_template_kwargs."
    )


class Price(BaseModel):
    """USD for one million tokens of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, description="Prompt tokens.")
    output: float = Field(ge=0, description="Answer tokens.")
    cached_input: float | None = Field(default=None, ge=0, description="Prompt tokens read from a cache.")
    reasoning: float | None = Field(default=None, ge=0, description="Reasoning tokens; unset: as output.")


class Caps(BaseModel):
    """Limits that a run never passes; nothing is started whose worst case would."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: float | None = Field(default=None, gt=0, description="US dollars for model calls.")
    tokens: int | None = Field(default=None, gt=0, description="Tokens in and out, all roles together.")
    wall_s: float | None = Field(default=None, gt=0, description="Seconds of wall time, resumes included.")
    kernels: int | None = Field(default=None, gt=0, description="Kernels sent to evaluation.")


class Series(BaseModel):
    """Runs that one command began, one for each problem, and that share its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="The same for all of its runs.")
    problems: tuple[str, ...] = Field(min_length=1, description="What it works on, in this order.")
    caps: Caps = Field(default_factory=Caps, description="Limits that all of its runs together never pass.")


class RunContext(BaseModel):
    """Settings of one run, at the paper's values unless said otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Literal["trn1", "trn2"] = Field(
        default="trn1", description="The NeuronCore to optimize for.", json_schema_extra=_ui("select")
    )
    backend: Literal["simulator", "neuron", "auto"] = Field(
        default="simulator",
        description="Where kernels run; 'auto' takes a Neuron device where there is one.",
        json_schema_extra=_ui("select"),
    )
    beam: int = Field(
        default=6,
        ge=1,
        le=64,
        description="B: candidate kernels kept from round to round.",
        json_schema_extra=_ui("slider", min=1, max=64),
    )
    plans: int = Field(
        default=12,
        ge=1,
        le=128,
        description="N: one-step plans sampled for every candidate.",
        json_schema_extra=_ui("slider", min=1, max=128),
    )
    samples: int = Field(
        default=2,
        ge=1,
        le=32,
        description="K: kernels written for every plan.",
        json_schema_extra=_ui("slider", min=1, max=32),
    )
    iterations: int = Field(
        default=16,
        ge=0,
        le=1000,
        description="T: rounds of the search.",
        json_schema_extra=_ui("slider", min=0, max=64),
    )
    top_k: int = Field(
        default=8, ge=0, description="TopK: most new experiences a round.", json_schema_extra=_ui("number")
    )
    capacity: int = Field(
        default=16,
        ge=0,
        description="ExpN: most experiences shown to a planner, and the length of the paper's queue.",
        json_schema_extra=_ui("number"),
    )
    t_pos: float = Field(
        default=1.04,
        ge=1,
        description="A plan whose best kernel is faster than its parent by more than this factor helped.",
        json_schema_extra=_ui("number"),
    )
    t_neg: float = Field(
        default=1.15,
        ge=1,
        description="A plan whose best kernel is slower than its parent by more than this factor hurt.",
        json_schema_extra=_ui("number"),
    )
    memory: Literal["recall", "paper", "off"] = Field(
        default="recall",
        description="recall: similar experiences from every problem and run; paper: this run's whole queue.",
        json_schema_extra=_ui("select"),
    )
    memory_policy: Literal["fifo", "random"] = Field(
        default="fifo",
        description="What a full queue gives up: the oldest, or a random part (the released code's way).",
        json_schema_extra=_ui("select"),
    )
    show_tried: bool = Field(
        default=True,
        description="Tell planners what was already tried on their kernel; never in the paper's memory mode.",
        json_schema_extra=_ui("boolean"),
    )
    fixes: int = Field(
        default=0,
        ge=0,
        le=20,
        description="F: repairs of a kernel that fails to compile, run or match.",
        json_schema_extra=_ui("number"),
    )
    agentic: bool = Field(
        default=False,
        description="Executors work with tools (look up, compile, verify, rewrite) before they answer.",
        json_schema_extra=_ui("boolean"),
    )
    tool_calls: int = Field(
        default=12,
        ge=1,
        le=100,
        description="Most tool calls of one agentic executor.",
        json_schema_extra=_ui("number"),
    )
    answer_retries: int = Field(
        default=2, ge=0, le=10, description="Asks again after an answer that cannot be used."
    )
    planner: RoleModel = Field(default_factory=RoleModel, description="The model that proposes plans.")
    executor: RoleModel = Field(default_factory=RoleModel, description="The model that writes kernels.")
    fixer: RoleModel | None = Field(
        default=None, description="The model that repairs; unset: the executor's."
    )
    summarizer: RoleModel = Field(default_factory=RoleModel, description="The model that writes experiences.")
    prices: dict[str, Price] = Field(
        default_factory=dict, description="Prices by model name, before those of the built-in table."
    )
    caps: Caps = Field(default_factory=Caps, description="Limits that the run never passes.")
    review_plans: bool = Field(
        default=False,
        description="Stop after planning, for a person to approve, edit or drop plans.",
        json_schema_extra=_ui("boolean"),
    )
    soft_usd: float | None = Field(
        default=None,
        gt=0,
        description="Ask a person before a round begins once this is spent, in USD.",
    )
    embedder: str = Field(
        default="auto",
        pattern=r"^(auto|wordllama|hashing|openai:.+)$",
        description="What turns experiences into vectors: auto, wordllama, hashing, or openai:<model>.",
        json_schema_extra=_ui("text"),
    )
    response_cache: bool = Field(
        default=True,
        description="Keep answers of hosted models on disk, so that the same call is never paid twice.",
        json_schema_extra=_ui("boolean"),
    )
    precision: Literal["strict", "relaxed"] = Field(
        default="strict",
        description="strict: nothing below fp32, right in every input regime; relaxed reports these apart.",
        json_schema_extra=_ui("select"),
    )
    screen: bool = Field(
        default=True,
        description="Check new kernels on one input, and on every seed and regime before they are kept or taught.",
        json_schema_extra=_ui("boolean"),
    )
    small: bool = Field(
        default=False,
        description="Use the problem's small shape, for trying things out.",
        json_schema_extra=_ui("boolean"),
    )
    evaluation_timeout_s: float = Field(
        default=180, gt=0, description="Hard limit for one kernel, in seconds."
    )
    memory_mb: int | None = Field(
        default=None, ge=256, description="Memory limit of a worker, in MiB; unset: half of the machine's."
    )
    workers: int | None = Field(
        default=None, ge=1, le=1024, description="Kernels evaluated at once; unset: one for each CPU."
    )
    seed: int = Field(default=0, ge=0, description="Decides every random choice of the run.")
    series: Series | None = Field(
        default=None, description="The series that the run is a part of; set by whoever begins several runs."
    )
    replay_of: str | None = Field(
        default=None, description="Answer every model call from this recorded run, and from nothing else."
    )

    def role(self, role: Role) -> RoleModel:
        """The settings for a role; a fixer that is not set is the executor."""
        if role is Role.FIXER:
            return self.fixer or self.executor
        settings: RoleModel = getattr(self, role.value)
        return settings

    def with_model(self, **changes: Any) -> RunContext:
        """The same settings with `RoleModel` fields changed for every role.

        Raises:
            pydantic.ValidationError: a field is unknown or out of range.
        """

        def changed(settings: RoleModel) -> RoleModel:
            return RoleModel.model_validate(settings.model_dump() | changes)

        return self.model_copy(
            update={
                "planner": changed(self.planner),
                "executor": changed(self.executor),
                "summarizer": changed(self.summarizer),
                "fixer": changed(self.fixer) if self.fixer else None,
            }
        )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> RunContext:
        """Settings by name: `paper` (the published search) or `quick` (a minute on a laptop), with changes.

        Raises:
            ValueError: there is no such preset.
            pydantic.ValidationError: a change is unknown or out of range.
        """
        if name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are {', '.join(sorted(PRESETS))}")
        return cls.model_validate(PRESETS[name] | changes)


PRESETS: dict[str, dict[str, Any]] = {
    # The paper's search is the set of defaults, with the paper's own memory.
    "paper": {"memory": "paper"},
    "quick": {"beam": 2, "plans": 4, "samples": 1, "iterations": 3, "top_k": 4},
}
