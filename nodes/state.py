"""What flows between the nodes: plain JSON in the channels, frozen models at each node's edge.

A kernel travels as its content hash; its source, its evaluation and what models said are in the ledger.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages
from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """Data that travels between nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def plain(self) -> dict[str, Any]:
        """As a channel holds it: JSON types only, which every checkpointer can read back."""
        return self.model_dump(mode="json")


class Stop(StrEnum):
    """What can end a run before its last round."""

    CAP = "cap"
    FAULT = "fault"
    PERSON = "person"


class Part(StrEnum):
    """What a cap, or the run's end, can cut short in a round."""

    SEARCH = "search"
    LESSONS = "lessons"


class UserProblem(Frozen):
    """Somebody's own kernel and what it must compute."""

    kernel: str = Field(description="Source of the NKI kernel, a Python file.")
    reference: str = Field(
        description="Source of the NumPy reference: get_inputs(), forward(*inputs), "
        "transform_to_nki_inputs(inputs), transform_nki_outputs(outputs, reference)."
    )
    name: str = Field(default="user", description="What to call it in reports.")


class Argument(Frozen):
    """One argument of the kernel: an array's shape and type, or a scalar's value."""

    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    value: float | int | bool | None = None


class Plan(Frozen):
    """One step to take on one kernel."""

    id: str
    title: str
    bottleneck: str = ""
    change: str
    expected: str = ""
    rewrite: str | None = None
    is_edited: bool = Field(default=False, description="Whether a person changed it.")

    def brief(self) -> Plan:
        """What the search itself needs of it; the whole text is in the ledger, unless a person wrote it."""
        return (
            self
            if self.is_edited
            else self.model_copy(update={"bottleneck": "", "change": "", "expected": ""})
        )


class Candidate(Frozen):
    """A correct kernel on the frontier, and where it came from."""

    kernel_id: str
    latency_ms: float
    percent_of_peak: float
    parent_id: str | None = None
    plan_id: str | None = None
    round: int = 0


class Draft(Frozen):
    """One kernel written for a plan, and what became of it."""

    sample: int
    kernel_id: str | None = None
    failure: str | None = Field(default=None, description="Why there is no kernel.")
    status: str | None = None
    latency_ms: float | None = None
    percent_of_peak: float | None = None
    error: str | None = None
    fixes: int = 0
    given_up: bool = Field(default=False, description="Whether the fixer had no further answer.")
    refused: bool = Field(
        default=False, description="Whether a cap or the run's end kept it from being done."
    )

    @property
    def is_correct(self) -> bool:
        """Whether it passed every check and was timed."""
        return self.status == "correct" and self.latency_ms is not None


class PlanGroup(Frozen):
    """A candidate, one of its plans, and all kernels written for it. Ordered by (candidate, plan)."""

    round: int
    parent: Candidate
    candidate_index: int
    plan_index: int
    plan: Plan | None = None
    drafts: tuple[Draft, ...] = ()
    failure: str | None = Field(default=None, description="Why there is no plan.")
    refused: bool = Field(
        default=False, description="Whether a cap or the run's end kept it from being planned."
    )

    @property
    def is_cut_short(self) -> bool:
        """Whether some of it is still to be done once the run may go on."""
        return self.refused or any(draft.refused for draft in self.drafts)

    @property
    def correct(self) -> list[Draft]:
        """The correct kernels, fastest first; equal ones in the order they were drawn."""
        return sorted((d for d in self.drafts if d.is_correct), key=lambda d: (d.latency_ms or 0.0, d.sample))


class Lesson(Frozen):
    """Two kernels to learn from: what to summarize, and which plan made the difference."""

    kind: str
    slow_kernel_id: str
    fast_kernel_id: str
    slow_latency_ms: float
    fast_latency_ms: float
    speedup: float
    parent_id: str
    plan_index: int
    plan: Plan
    round: int


def gather(collected: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """Reducer of what parallel tasks of one round report; writing None starts a new round."""
    return [] if new is None else [*(collected or []), *new]


class Input(BaseModel):
    """What a run starts from."""

    problem: str | UserProblem = Field(
        description="The name of a benchmark problem, or the text of a kernel and of its reference."
    )


class Output(TypedDict, total=False):
    """What a run ends with."""

    result: dict[str, Any]
    """The figures of the run; see `nodes.finish`."""
    error: str
    """Why the run could not start or go on, one line."""


class State(TypedDict, total=False):
    """The search between two rounds, and what the current round has reported so far."""

    problem: str | dict[str, Any]
    """The benchmark problem's name, or a `UserProblem`. From the input."""
    run_id: str
    """The run's key in the ledger. Set by prepare."""
    arguments: list[dict[str, Any]]
    """The kernel's arguments (`Argument`): shapes and types, no data. Set by prepare."""
    round: int
    """The current round, from 1; 0 before the first. Set by recall, and back by selector if it was cut short."""
    baseline: dict[str, Any]
    """The kernel the run started from (`Candidate`). Set by prepare."""
    frontier: list[dict[str, Any]]
    """At most B `Candidate`s, fastest first. Set by prepare, then by selector after every whole round."""
    best: dict[str, Any]
    """The fastest `Candidate` so far, also of a round that was cut short. Set by prepare, then by selector."""
    unfinished: str
    """What of the round is still to be done before any other begins (`Part`). Set by selector and remember."""
    recalled: dict[str, list[str]]
    """For every candidate (by kernel) the experiences to show its planners, by id. Set by recall."""
    plans: Annotated[list[dict[str, Any]], gather]
    """Plans to be reviewed (`PlanGroup` without drafts). Appended by draft, cleared by recall."""
    reviewed: list[dict[str, Any]]
    """The plans that a person let through, edited or not. Set by review."""
    approved_usd: float
    """Spending that a person has agreed to, beyond which they are asked again. Set by budget_review."""
    explored: Annotated[list[dict[str, Any]], gather]
    """The round's finished `PlanGroup`s, in any order. Appended by explore, cleared by recall."""
    lessons: list[dict[str, Any]]
    """The round's pairs worth remembering (`Lesson`). Set by selector."""
    learned: Annotated[list[dict[str, Any]], gather]
    """Experiences written this round, by place in `lessons`, or that one is still to be. Appended by summarizer,
    cleared by recall."""
    queue: list[str]
    """The paper's memory, newest first: ids of at most ExpN experiences. Set by remember."""
    tried: dict[str, list[str]]
    """For every kernel of the frontier, one line for each plan tried on it. Set by selector."""
    stop: str
    """Why the run ends before its last round: a cap, a fault, a person. Set by selector, remember, budget_review."""
    stop_kind: str
    """Which of these it is (`Stop`). Set with stop."""
    messages: Annotated[list[AnyMessage], add_messages]
    """A line of progress for chat clients, one a round. Appended by selector and finish."""
    result: dict[str, Any]
    """The figures of the run. Set by finish."""
    error: str
    """Why the run could not start or go on, one line. Set by prepare or finish."""


def by_sample(known: list[dict[str, Any]] | None, new: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Reducer of an exploration's drafts: a later word on a sample replaces the earlier one."""
    drafts = {draft["sample"]: draft for draft in [*(known or []), *(new or [])]}
    return [drafts[sample] for sample in sorted(drafts)]


class Exploration(TypedDict, total=False):
    """One candidate, one plan, its kernels: the state of the subgraph `explore`."""

    run_id: str
    """The run's key in the ledger."""
    round: int
    """The current round."""
    candidate: dict[str, Any]
    """The kernel to improve (`Candidate`)."""
    candidate_index: int
    """Its place on the frontier."""
    plan_index: int
    """Which of its N plans this is."""
    recalled: list[str]
    """Experiences to show the planner, by id."""
    tried: list[str]
    """What was tried on this kernel before, a line each."""
    plan: dict[str, Any] | None
    """The plan (`Plan`). Set by planner, or by a person before."""
    failure: str | None
    """Why there is no plan. Set by planner."""
    refused: bool
    """Whether it was a cap, or the run's end, that kept it from being planned. Set by planner."""
    sample: int
    """Which of the K drafts this is. Set when executors are sent out."""
    drafts: Annotated[list[dict[str, Any]], by_sample]
    """The kernels written for the plan (`Draft`). Set by executor, fixer and evaluator."""
