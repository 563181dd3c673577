"""Asking a model: once for every key, recorded, within the budget, however the endpoint behaves.

The key of a call says what it is for, never when it was made, so that a resumed run finds what it already paid for
and a replay finds everything.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel

from .answers import Oddity, complaint, is_cut_off, read_code, read_fields, reasoning_of, text_of
from .budget import Budget, CapReached, Usage
from .context import OFFLINE, AnswerMode, Role, RoleModel, RunContext
from .endpoint import Endpoint, EndpointError, Fault, Patience
from .models import chat_model, endpoint_name
from .prompt import asked_again
from .seeds import derive
from .state import Frozen, Stop

T = TypeVar("T")
Fields = TypeVar("Fields", bound=BaseModel)

MODES = (AnswerMode.JSON_SCHEMA, AnswerMode.FUNCTION_CALLING, AnswerMode.JSON, AnswerMode.TEXT)
"""Ways to ask for fields, the most dependable first."""


class CallKey(Frozen):
    """What one model call is for."""

    role: Role
    round: int
    kernel_id: str
    plan: int = 0
    sample: int = 0
    fix: int = 0
    turn: int = 0

    def text(self, attempt: int) -> str:
        """As the ledger indexes it, with the number of the attempt at a usable answer."""
        place = f"r{self.round}/{self.role.value}/{self.kernel_id}/p{self.plan}/s{self.sample}"
        return f"{place}/f{self.fix}/t{self.turn}/a{attempt}"


class RecordedCall(Frozen):
    """A finished model call: what was asked, what came back, what it cost."""

    key: str
    role: Role
    round: int
    model: str
    prompt: tuple[dict[str, Any], ...]
    content: str
    reasoning: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = None
    usage: Usage = Usage()
    usd: float = 0.0
    latency_s: float = 0.0
    from_cache: bool = False
    oddities: tuple[str, ...] = ()
    is_usable: bool = True

    def message(self) -> AIMessage:
        """The answer as the model gave it."""
        return AIMessage(
            content=self.content,
            tool_calls=[dict(call) for call in self.tool_calls],
            additional_kwargs={"reasoning_content": self.reasoning} if self.reasoning else {},
            response_metadata={"finish_reason": self.finish_reason} if self.finish_reason else {},
        )


class CallRecord(Protocol):
    """Where finished calls are kept."""

    async def find_call(self, key: str, run_id: str | None = None) -> RecordedCall | None:
        """The call with that key in this run, or in another one."""

    async def keep_call(self, call: RecordedCall) -> None:
        """Keep a finished call for good, before anything depends on it."""


class NoAnswer(Exception):
    """A call led to nothing that can be used. One line says why."""


@dataclass(frozen=True)
class _Way:
    """What is sent beside the messages."""

    mode: AnswerMode
    seeded: bool


class Caller:
    """Makes the model calls of one run on one event loop."""

    def __init__(
        self,
        context: RunContext,
        record: CallRecord,
        budget: Budget,
        *,
        notify: Callable[[str, str], None] = lambda kind, message: None,
        cache: BaseCache | None = None,
        make_model: Callable[[RoleModel, str, BaseCache | None], BaseChatModel] = chat_model,
    ) -> None:
        """Use a run's settings, its part of the ledger and its purse; `notify` hears of pauses."""
        self._context = context
        self._record = record
        self._budget = budget
        self._notify = notify
        self._cache = cache
        self._make_model = make_model
        self._models: dict[tuple[Role, str], BaseChatModel] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._ways: dict[tuple[str, str], _Way] = {}
        self._without_tools: set[tuple[str, str]] = set()
        self._told_of_prompts = False

    async def fields(
        self, key: CallKey, prompt: Sequence[BaseMessage], schema: type[Fields], draw: int = 0
    ) -> Fields:
        """A structured answer. `draw` spreads calls over a role's models.

        Raises:
            NoAnswer: none that can be read.
            CapReached: no call may be made.
        """

        def read(message: AIMessage) -> tuple[Fields | None, tuple[str, ...]]:
            parsed = read_fields(message, schema)
            return parsed.value, parsed.oddities

        return await self._until_usable(key, prompt, read, draw, schema=schema)

    async def code(self, key: CallKey, prompt: Sequence[BaseMessage], parent: str, draw: int = 0) -> str:
        """A kernel that is not `parent` again.

        Raises:
            NoAnswer: no kernel was found in the answers.
            CapReached: no call may be made.
        """

        def read(message: AIMessage) -> tuple[str | None, tuple[str, ...]]:
            code = read_code(message, parent)
            return code.source, code.oddities

        return await self._until_usable(key, prompt, read, draw)

    async def turn(
        self, key: CallKey, prompt: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], draw: int = 0
    ) -> AIMessage:
        """One turn of a model that may call tools (in the function format of Chat Completions).

        Raises:
            NoAnswer: the endpoint knows no tool calls, or the answer is empty.
            CapReached: no call may be made.
        """

        def read(message: AIMessage) -> tuple[AIMessage | None, tuple[str, ...]]:
            odd = (Oddity.CUT_OFF,) if is_cut_off(message) else ()
            usable = message.tool_calls or text_of(message).strip()
            return (message, odd) if usable else (None, (*odd, Oddity.EMPTY))

        return await self._until_usable(key, prompt, read, draw, tools=tools)

    def knows_tools(self, role: Role, draw: int) -> bool:
        """Whether the endpoint has not yet refused a request with tools."""
        settings = self._context.role(role)
        name = settings.models[draw % len(settings.models)]
        return (endpoint_name(settings, name), name) not in self._without_tools

    async def _until_usable(
        self,
        key: CallKey,
        prompt: Sequence[BaseMessage],
        read: Callable[[AIMessage], tuple[T | None, tuple[str, ...]]],
        draw: int,
        schema: type[BaseModel] | None = None,
        tools: Sequence[dict[str, Any]] = (),
    ) -> T:
        oddities: tuple[str, ...] = ()
        for attempt in range(self._context.answer_retries + 1):
            # Nothing in the same words again: what was wrong once is likely to be wrong twice.
            asked = asked_again(prompt, complaint(oddities)) if attempt else prompt
            call = await self._call(key, attempt, asked, read, draw, schema, tools)
            value, oddities = read(call.message())
            if value is not None:
                return value
        raise NoAnswer(f"no usable answer from the {key.role.value}: {', '.join(oddities)}")

    async def _call(
        self,
        key: CallKey,
        attempt: int,
        prompt: Sequence[BaseMessage],
        read: Callable[[AIMessage], tuple[Any, tuple[str, ...]]],
        draw: int,
        schema: type[BaseModel] | None,
        tools: Sequence[dict[str, Any]],
    ) -> RecordedCall:
        """The recorded call of that key, made now if it was not made before."""
        name = key.text(attempt)
        known = await self._record.find_call(name)
        if known is not None:
            return known
        asked = tuple(_asked(message) for message in prompt)
        if self._context.replay_of:
            return await self._replayed(name, asked)
        settings = self._context.role(key.role)
        model = settings.models[draw % len(settings.models)]
        began = time.monotonic()
        message, usage, usd = await self._paid(key, attempt, settings, model, prompt, schema, tools)
        metadata: Any = message.usage_metadata
        value, oddities = read(message)
        call = RecordedCall(
            key=name,
            role=key.role,
            round=key.round,
            model=model,
            prompt=asked,
            content=text_of(message),
            reasoning=reasoning_of(message),
            tool_calls=tuple(dict(tool_call) for tool_call in message.tool_calls),
            finish_reason=message.response_metadata.get("finish_reason"),
            usage=usage,
            usd=usd,
            latency_s=round(time.monotonic() - began, 4),
            from_cache=_is_cached(metadata or {}),
            oddities=tuple(oddities),
            is_usable=value is not None,
        )
        await self._record.keep_call(call)
        return call

    async def _replayed(self, name: str, asked: tuple[dict[str, Any], ...]) -> RecordedCall:
        """The answer of the run that is replayed."""
        run_id = self._context.replay_of
        known = await self._record.find_call(name, run_id)
        if known is None:
            # A cap kept it from being made, or the replay has gone another way; a round of none ends the replay.
            raise NoAnswer(f"run {run_id} has no call {name} to replay")
        if known.prompt != asked and not self._told_of_prompts:
            self._told_of_prompts = True
            self._notify("notice", "prompts are worded otherwise than when the run was recorded")
        await self._record.keep_call(known)
        self._budget.book(known.usage, known.usd)
        return known

    async def _paid(
        self,
        key: CallKey,
        attempt: int,
        settings: RoleModel,
        model: str,
        prompt: Sequence[BaseMessage],
        schema: type[BaseModel] | None,
        tools: Sequence[dict[str, Any]],
    ) -> tuple[AIMessage, Usage, float]:
        """One call to a model within the budget: the answer, what it used, what it cost."""
        reservation = await self._budget.reserve(
            model, [_content(message) for message in prompt], settings.max_output_tokens
        )
        usage: Usage | None = None
        usd = 0.0
        try:
            message = await self._answered(key, attempt, settings, model, prompt, schema, tools)
            metadata: Any = message.usage_metadata
            usage = Usage() if _is_cached(metadata or {}) else Usage.of(metadata)
        except EndpointError as error:
            if error.fault is Fault.REFUSED:
                # No later call can do better: stop before more is spent, and keep what was found.
                self._budget.end(str(error), Stop.FAULT)
                raise CapReached(str(error)) from error
            if self._budget.remaining_s() == 0.0:
                raise self._budget.out_of_time() from error
            if self._time_left_s() == 0.0:
                raise CapReached(self._budget.stop) from error
            raise NoAnswer(str(error)) from error
        finally:
            usd = await self._budget.settle(reservation, usage)
        return message, usage, usd

    def _time_left_s(self) -> float | None:
        """Seconds for a call to succeed in; none once an endpoint or the machine has ended the run."""
        return 0.0 if self._budget.stop_kind == Stop.FAULT else self._budget.remaining_s()

    async def _answered(
        self,
        key: CallKey,
        attempt: int,
        settings: RoleModel,
        model: str,
        prompt: Sequence[BaseMessage],
        schema: type[BaseModel] | None,
        tools: Sequence[dict[str, Any]],
    ) -> AIMessage:
        """Ask in the best way that the endpoint is not known to refuse."""
        where = endpoint_name(settings, model)
        chat = await self._model(key.role, settings, model)
        endpoint = self._endpoint(where, settings)
        seed = derive(self._context.seed, key.text(attempt)) % 2**31
        while True:
            way = self._ways.get((where, model)) or self._first_way(settings)
            options = _options(way, seed, schema, tools)
            try:
                return await endpoint.call(
                    lambda options=options: _ask(chat, prompt, options),  # type: ignore[misc]
                    timeout_s=settings.timeout_s,
                    time_left_s=self._time_left_s,
                )
            except EndpointError as error:
                if error.fault is not Fault.UNSUPPORTED:
                    raise
                if tools:
                    self._without_tools.add((where, model))
                    raise
                poorer = _poorer(way, schema is not None, str(error))
                if poorer is None or settings.answer_mode is not AnswerMode.AUTO and poorer.seeded:
                    raise
                if self._ways.get((where, model), way) == way:
                    self._ways[(where, model)] = poorer
                    self._notify(
                        "notice", f"{where} does not take this request for {model}: asking more simply"
                    )

    def _first_way(self, settings: RoleModel) -> _Way:
        mode = settings.answer_mode
        return _Way(MODES[0] if mode is AnswerMode.AUTO else mode, seeded=True)

    async def _model(self, role: Role, settings: RoleModel, name: str) -> BaseChatModel:
        if (role, name) not in self._models:
            # The first use of a client imports it, which takes a second.
            made = await asyncio.to_thread(self._make_model, settings, name, self._cache)
            self._models.setdefault((role, name), made)
        return self._models[(role, name)]

    def _endpoint(self, where: str, settings: RoleModel) -> Endpoint:
        if where not in self._endpoints:
            self._endpoints[where] = Endpoint(
                where,
                concurrency=settings.concurrency,
                requests_per_minute=settings.requests_per_minute,
                patience=Patience(pause_s=settings.pause_s, outage_s=settings.outage_s),
                notify=self._notify,
            )
        return self._endpoints[where]

    @property
    def faults(self) -> dict[str, dict[str, int]]:
        """How often each endpoint failed, by kind."""
        return {name: dict(endpoint.faults) for name, endpoint in self._endpoints.items() if name != OFFLINE}


async def _ask(chat: BaseChatModel, prompt: Sequence[BaseMessage], options: dict[str, Any]) -> AIMessage:
    answer = await chat.ainvoke(list(prompt), **options)
    assert isinstance(answer, AIMessage)
    return answer


def _options(
    way: _Way, seed: int, schema: type[BaseModel] | None, tools: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": seed} if way.seeded else {}
    if tools:
        options["tools"] = list(tools)
    if schema is None:
        return options
    name, form = schema.__name__, _form(schema)
    if way.mode is AnswerMode.JSON_SCHEMA:
        options["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": form}}
    elif way.mode is AnswerMode.FUNCTION_CALLING:
        function = {"name": name, "description": schema.__doc__ or name, "parameters": form}
        options["tools"] = [{"type": "function", "function": function}]
        options["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif way.mode is AnswerMode.JSON:
        options["response_format"] = {"type": "json_object"}
    return options


@functools.cache
def _form(schema: type[BaseModel]) -> dict[str, Any]:
    return schema.model_json_schema()


def _poorer(way: _Way, structured: bool, complaint: str) -> _Way | None:
    """The next simpler way to ask; None if there is none."""
    if way.seeded and ("seed" in complaint.lower() or not structured or way.mode is AnswerMode.TEXT):
        return _Way(way.mode, seeded=False)
    if structured and way.mode is not AnswerMode.TEXT:
        return _Way(MODES[MODES.index(way.mode) + 1], way.seeded)
    return None


def _asked(message: BaseMessage) -> dict[str, Any]:
    """A message of a prompt for the record."""
    kept: dict[str, Any] = {"role": message.type, "content": _content(message)}
    if isinstance(message, AIMessage) and message.tool_calls:
        kept["tool_calls"] = [dict(call) for call in message.tool_calls]
    return kept


def _content(message: BaseMessage) -> str:
    return message.content if isinstance(message.content, str) else str(message.content)


def _is_cached(metadata: Mapping[str, Any]) -> bool:
    """Whether the response cache answered: LangChain then marks the usage as free."""
    return metadata.get("total_cost") == 0
