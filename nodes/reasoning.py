"""ChatOpenAI that keeps what a model thought aloud, and an answer cut off in the middle of its JSON.

vLLM and others send reasoning as `reasoning` or `reasoning_content` beside the content; LangChain leaves such
fields to subclasses.
"""

from __future__ import annotations

from typing import Any

from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI

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
        result = super()._create_chat_result(response, generation_info)
        payload = response if isinstance(response, dict) else response.model_dump()
        for generation, choice in zip(result.generations, payload.get("choices") or [], strict=False):
            message = choice.get("message") or {}
            thought = next((message[field] for field in FIELDS if message.get(field)), None)
            if thought:
                generation.message.additional_kwargs["reasoning_content"] = thought
        return result
