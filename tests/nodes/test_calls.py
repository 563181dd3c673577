from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel

from nodes.budget import Budget, CapReached
from nodes.calls import Caller, CallKey, NoAnswer, RecordedCall
from nodes.context import AnswerMode, Caps, Role, RoleModel, RunContext
from nodes.state import Stop


class HttpError(Exception):
    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or str(status))
        self.status_code = status


class Scripted(BaseChatModel):
    """Says what its script says next, and remembers how it was asked."""

    script: Any
    asked: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.asked.append(kwargs)
        step = self.script.pop(0) if self.script else AIMessage('{"title": "last"}')
        if callable(step):
            step = step(kwargs)
        if isinstance(step, Exception):
            raise step
        if step.usage_metadata is None:
            step.usage_metadata = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}
        return ChatResult(generations=[ChatGeneration(message=step)])


class Shelf:
    """A record in memory."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], RecordedCall] = {}

    async def find_call(self, key: str, run_id: str | None = None) -> RecordedCall | None:
        return self.calls.get((run_id or "this", key))

    async def keep_call(self, call: RecordedCall) -> None:
        self.calls[("this", call.key)] = call


class Fields(BaseModel):
    """A title."""

    title: str


KEY = CallKey(role=Role.PLANNER, round=1, kernel_id="k", plan=3)
PROMPT = [HumanMessage("plan!")]
HOSTED = RoleModel(models=("m",), base_url="http://there/v1", pause_s=0.001)


class Setup:
    def __init__(self, *script: Any, context: RunContext | None = None, caps: Caps | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.shelf = Shelf()
        self.budget = Budget(caps or Caps(), {})
        context = context or RunContext(planner=HOSTED, executor=HOSTED)
        model = Scripted(script=list(script), asked=self.asked)
        self.caller = Caller(
            context,
            self.shelf,
            self.budget,
            notify=lambda kind, message: self.told.append(message),
            make_model=lambda settings, name, cache: model,
        )


async def test_an_answer_is_kept_before_it_is_used():
    setup = Setup(AIMessage('{"title": "Widen"}', additional_kwargs={"reasoning_content": "because"}))
    assert (await setup.caller.fields(KEY, PROMPT, Fields)).title == "Widen"
    (call,) = setup.shelf.calls.values()
    assert call.key == "r1/planner/k/p3/s0/f0/t0/a0" and call.reasoning == "because"
    assert call.usage.total == 6 and setup.budget.spent.tokens == 6
    assert call.prompt == ({"role": "human", "content": "plan!"},)


async def test_a_call_made_before_is_not_made_again():
    setup = Setup(AIMessage('{"title": "Widen"}'))
    await setup.caller.fields(KEY, PROMPT, Fields)
    assert (await setup.caller.fields(KEY, PROMPT, Fields)).title == "Widen"
    assert len(setup.asked) == 1 and setup.budget.spent.tokens == 6


async def test_an_unusable_answer_is_kept_paid_and_asked_again_with_another_seed():
    setup = Setup(AIMessage(""), AIMessage("no idea"), AIMessage('{"title": "Widen"}'))
    assert (await setup.caller.fields(KEY, PROMPT, Fields)).title == "Widen"
    assert [call.is_usable for call in setup.shelf.calls.values()] == [False, False, True]
    assert len({options["seed"] for options in setup.asked}) == 3
    assert setup.budget.spent.tokens == 18
    ends = [call.prompt[-1]["content"].removeprefix("plan!").strip() for call in setup.shelf.calls.values()]
    assert ends == [
        "",
        "An earlier answer was of no use: it was empty.",
        "An earlier answer was of no use: it was no JSON object.",
    ]


async def test_after_the_last_try_there_is_no_answer():
    setup = Setup(*[AIMessage("")] * 9)
    with pytest.raises(NoAnswer, match="no usable answer from the planner: empty"):
        await setup.caller.fields(KEY, PROMPT, Fields)
    assert len(setup.asked) == 3


async def test_seeds_depend_on_what_a_call_is_for_and_on_nothing_else():
    first, second = Setup(), Setup()
    await first.caller.fields(KEY, PROMPT, Fields)
    await second.caller.fields(KEY.model_copy(update={"plan": 4}), PROMPT, Fields)
    await second.caller.fields(KEY, PROMPT, Fields)
    assert first.asked[0]["seed"] == second.asked[1]["seed"] != second.asked[0]["seed"]


def picky(*knows: str) -> Any:
    """An endpoint that refuses fields it does not know, and answers to the rest."""

    def step(options: dict[str, Any]) -> Any:
        kind = (options.get("response_format") or {}).get("type")
        used = {kind} if kind else {"tools"} if options.get("tools") else set()
        used |= {"seed"} & set(options)
        unknown = used - set(knows)
        return (
            HttpError(400, f"{unknown.pop()} is not supported")
            if unknown
            else AIMessage('{"title": "Widen"}')
        )

    return step


@pytest.mark.parametrize(
    ("knows", "tries"),
    [
        (("json_schema", "seed"), 1),
        (("tools", "seed"), 2),
        (("json_object", "seed"), 3),
        (("seed",), 4),
        (("json_schema",), 2),
    ],
)
async def test_a_simpler_request_follows_a_refused_one_and_is_remembered(knows, tries):
    setup = Setup(*[picky(*knows)] * 20)
    await setup.caller.fields(KEY, PROMPT, Fields)
    assert len(setup.asked) == tries
    await setup.caller.fields(KEY.model_copy(update={"plan": 9}), PROMPT, Fields)
    assert len(setup.asked) == tries + 1


async def test_a_mode_that_was_chosen_is_kept_to():
    chosen = HOSTED.model_copy(update={"answer_mode": AnswerMode.JSON})
    setup = Setup(AIMessage('{"title": "Widen"}'), context=RunContext(planner=chosen))
    await setup.caller.fields(KEY, PROMPT, Fields)
    assert setup.asked[0]["response_format"] == {"type": "json_object"}


async def test_a_refusal_ends_the_run():
    setup = Setup(HttpError(401, "wrong key"))
    with pytest.raises(CapReached, match="wrong key"):
        await setup.caller.fields(KEY, PROMPT, Fields)
    assert "wrong key" in setup.budget.stop and setup.budget.stop_kind == Stop.FAULT
    with pytest.raises(CapReached):
        await setup.caller.fields(KEY.model_copy(update={"plan": 4}), PROMPT, Fields)
    assert len(setup.asked) == 1


async def test_a_request_that_is_rejected_costs_one_plan_and_not_the_run():
    setup = Setup(HttpError(400, "prompt is too long"))
    with pytest.raises(NoAnswer, match="too long"):
        await setup.caller.fields(KEY, PROMPT, Fields)
    assert not setup.budget.stop


async def test_an_answer_from_the_cache_costs_nothing():
    usage = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6, "total_cost": 0}
    setup = Setup(AIMessage('{"title": "Widen"}', usage_metadata=usage))
    await setup.caller.fields(KEY, PROMPT, Fields)
    (call,) = setup.shelf.calls.values()
    assert call.from_cache and call.usage.total == 0 and setup.budget.spent.tokens == 0


async def test_nothing_is_asked_beyond_a_cap():
    setup = Setup(caps=Caps(tokens=100))
    with pytest.raises(CapReached, match="100 tokens"):
        await setup.caller.fields(KEY, PROMPT, Fields)
    assert not setup.asked


async def test_draws_go_round_the_models_of_a_role():
    named: list[str] = []

    def make(settings: RoleModel, name: str, cache: Any) -> BaseChatModel:
        named.append(name)
        return Scripted(script=[], asked=[])

    ensemble = HOSTED.model_copy(update={"models": ("a", "b", "c")})
    caller = Caller(RunContext(planner=ensemble), Shelf(), Budget(Caps(), {}), make_model=make)
    for draw in range(4):
        await caller.fields(KEY.model_copy(update={"plan": draw}), PROMPT, Fields, draw)
    assert named == ["a", "b", "c"]
