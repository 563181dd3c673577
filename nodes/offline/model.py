"""The built-in model as LangChain knows chat models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from . import answering
from .ideas import Workshop
from .reading import Request, read

CHARACTERS_PER_TOKEN = 4
"""The fixed rule by which it counts tokens; it charges for none."""

_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="offline-model")
"""Its own, so that waiting for workers does not hold up whoever needs the event loop's."""


class OfflineChatModel(BaseChatModel):
    """Answers planner, executor, fixer and summarizer prompts from their text alone.

    Takes the request fields of Chat Completions that matter to it: `response_format`, `tools`, `tool_choice`.
    """

    _workshop: Workshop = PrivateAttr(default_factory=Workshop)

    def working_in(self, workshop: Workshop) -> OfflineChatModel:
        """The same model, with kernels looked at and rewritten there."""
        model = OfflineChatModel()
        model._workshop = workshop
        return model

    @property
    def _llm_type(self) -> str:
        return "offline"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = answer_to(read(messages), kwargs, self._workshop)
        answer.usage_metadata = _usage(messages, answer)
        answer.response_metadata = {
            "model_name": "offline",
            "finish_reason": "tool_calls" if answer.tool_calls else "stop",
        }
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_threads, lambda: self._generate(messages, stop, **kwargs))


def answer_to(request: Request, options: dict[str, Any], workshop: Workshop) -> AIMessage:
    """The answer to a prompt, in the form that the request's fields ask for."""
    if request.role == "planner":
        return _fields(answering.plan(request, workshop), options)
    if request.role == "summarizer":
        return _fields(answering.summary(request), options)
    if request.role not in ("executor", "fixer"):
        return AIMessage("I only know planning, writing, fixing and summarizing kernels.")
    source = (
        answering.kernel(request, workshop)
        if request.role == "executor"
        else answering.repair(request, workshop)
    )
    check = _checking_tool(options.get("tools") or ())
    if check is not None and request.tools_used == 0:
        name, argument = check
        return AIMessage("", tool_calls=[{"name": name, "args": {argument: source}, "id": "check-1"}])
    fence = "```" if "```" not in source else "````"
    return AIMessage(f"{fence}python\n{source.rstrip()}\n{fence}")


def _fields(fields: dict[str, Any], options: dict[str, Any]) -> AIMessage:
    if options.get("tools"):
        name = options["tools"][0]["function"]["name"]
        return AIMessage("", tool_calls=[{"name": name, "args": fields, "id": "answer-1"}])
    text = json.dumps(fields)
    return AIMessage(text if options.get("response_format") else f"```json\n{text}\n```")


def _checking_tool(tools: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Name and argument of a tool that compiles a kernel, if there is one."""
    for tool in tools:
        function = tool["function"]
        required = function.get("parameters", {}).get("required", [])
        if function["name"] == "compile_kernel" and len(required) == 1:
            return function["name"], required[0]
    return None


def _usage(messages: Sequence[BaseMessage], answer: AIMessage) -> UsageMetadata:
    asked = sum(len(str(message.content)) for message in messages)
    said = len(str(answer.content)) + sum(len(json.dumps(call["args"])) for call in answer.tool_calls)
    ins, outs = -(-asked // CHARACTERS_PER_TOKEN), -(-said // CHARACTERS_PER_TOKEN)
    return UsageMetadata(input_tokens=ins, output_tokens=outs, total_tokens=ins + outs)
