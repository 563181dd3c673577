"""ChatOpenAI that keeps what a model thought aloud, and an answer cut off in the middle of its JSON.

vLLM and others send reasoning as `reasoning` or `reasoning_content` beside the content; LangChain leaves such
fields to subclasses.
"""

from __future__ import annotations

import json
from typing import Any

from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

FIELDS = ("reasoning", "reasoning_content")


class ReasoningChatOpenAI(ChatOpenAI):
    """Puts the reasoning text of each choice into `additional_kwargs["reasoning_content"]`."""

    def _get_request_payload(
        self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "response_format" in payload:
            # Sent as it is: given by name, the client would insist on parsing the answer itself, and a cut-off
            # one would raise and take its token counts with it.
            extra = payload.get("extra_body") or {}
            payload["extra_body"] = extra | {"response_format": payload.pop("response_format")}
        return payload

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        payload = response.model_dump(warnings=False) if isinstance(response, BaseModel) else response
        if not isinstance(payload, dict):
            # An HTML page, say; the client's own complaint is the best one.
            return super()._create_chat_result(response, generation_info)
        for choice in payload.get("choices") or []:
            _encode_arguments(choice.get("message") or {})
        result = super()._create_chat_result(payload, generation_info)
        for generation, choice in zip(result.generations, payload.get("choices") or [], strict=False):
            message = choice.get("message") or {}
            thought = next((message[field] for field in FIELDS if message.get(field)), None)
            if thought:
                generation.message.additional_kwargs["reasoning_content"] = thought
        return result


def _encode_arguments(message: dict[str, Any]) -> None:
    """Tool calls' arguments as the text that the protocol wants; some servers send the object itself."""
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        if not isinstance(function.get("arguments"), str):
            function["arguments"] = json.dumps(function.get("arguments") or {})
