"""What a model's message really holds: code, or fields, however it was wrapped.

Every deviation from a clean answer has a name in `Oddity`, and is counted by that name in the ledger.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from langchain_core.messages import AIMessage
from pydantic import BaseModel, ValidationError

Fields = TypeVar("Fields", bound=BaseModel)


class Oddity(StrEnum):
    """A way in which an answer was not simply what was asked for."""

    EMPTY = "empty"
    CUT_OFF = "cut_off"
    PROSE_AROUND = "prose_around"
    SEVERAL_BLOCKS = "several_blocks"
    UNCLOSED_FENCE = "unclosed_fence"
    NO_FENCE = "no_fence"
    NO_CODE = "no_code"
    FENCED_JSON = "fenced_json"
    NOT_JSON = "not_json"
    WRONG_FIELDS = "wrong_fields"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Code:
    """The program found in an answer, None if there is none."""

    source: str | None
    oddities: tuple[Oddity, ...] = ()


@dataclass(frozen=True)
class Parsed(Generic[Fields]):
    """The fields found in an answer, None if they cannot be read."""

    value: Fields | None
    oddities: tuple[Oddity, ...] = ()


_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_ENTRY = re.compile(r"^@(?:nki|neuronxcc\.nki)\.(?:jit|baremetal|benchmark|profile)\b|^@jit\b", re.MULTILINE)
_IMPORT = re.compile(r"^(?:from|import)\s", re.MULTILINE)


def text_of(message: AIMessage) -> str:
    """The text of a message; null content and content in parts included."""
    content: Any = message.content
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in content)


def reasoning_of(message: AIMessage) -> str | None:
    """What the model thought aloud, where the endpoint sends it."""
    return message.additional_kwargs.get("reasoning_content") or None


def is_cut_off(message: AIMessage) -> bool:
    """Whether the model ran into its output limit."""
    reason = message.response_metadata.get("finish_reason") or message.response_metadata.get("stop_reason")
    return reason in ("length", "max_tokens")


def blocks(text: str) -> tuple[list[tuple[str, str]], bool]:
    """The fenced blocks of a Markdown text as (language, content), and whether the last one was left open."""
    found: list[tuple[str, str]] = []
    position, open_fence = 0, None
    for match in _FENCE.finditer(text):
        if open_fence is None:
            open_fence = (match.group(1), match.group(2).lower())
            position = match.end() + 1
        elif match.group(1).startswith(open_fence[0]) and not match.group(2):
            found.append((open_fence[1], text[position : match.start()]))
            open_fence = None
    if open_fence is not None:
        found.append((open_fence[1], text[position:]))
    return found, open_fence is not None


def read_code(message: AIMessage) -> Code:
    """The kernel in an answer: the last block that defines one, or else the text from its first import on."""
    text = text_of(message)
    odd = [Oddity.CUT_OFF] if is_cut_off(message) else []
    if not text.strip():
        return Code(None, (*odd, Oddity.EMPTY))
    found, unclosed = blocks(text)
    kernels = [content for _, content in found if _ENTRY.search(content)]
    if kernels and unclosed and Oddity.CUT_OFF in odd:
        # Half a kernel is none, however much of it there is.
        return Code(None, (*odd, Oddity.UNCLOSED_FENCE))
    if kernels:
        if len(found) > 1:
            odd.append(Oddity.SEVERAL_BLOCKS)
        if unclosed:
            odd.append(Oddity.UNCLOSED_FENCE)
        if _FENCE.sub("", text).replace(kernels[-1], "", 1).strip() and len(found) == 1:
            odd.append(Oddity.PROSE_AROUND)
        return Code(_tidy(kernels[-1]), tuple(odd))
    if _ENTRY.search(text) and not found:
        start = _IMPORT.search(text)
        bare = text[start.start() if start else _ENTRY.search(text).start() :]  # type: ignore[union-attr]
        return Code(_tidy(bare), (*odd, Oddity.NO_FENCE))
    return Code(None, (*odd, Oddity.NO_CODE))


def _tidy(source: str) -> str:
    """Trailing white space carries no meaning and would make one kernel two."""
    return "\n".join(line.rstrip() for line in source.strip("\n").splitlines()) + "\n"


def read_fields(message: AIMessage, schema: type[Fields]) -> Parsed[Fields]:
    """The fields of a structured answer: from a tool call, JSON anywhere in the text, or headed text."""
    odd = [Oddity.CUT_OFF] if is_cut_off(message) else []
    for call in message.tool_calls:
        value = _validated(call["args"], schema)
        if value is not None:
            return Parsed(value, tuple(odd))
    text = text_of(message).strip()
    if not text:
        return Parsed(None, (*odd, Oddity.WRONG_FIELDS if message.tool_calls else Oddity.EMPTY))
    candidates = list(_objects(text))
    for data in reversed(candidates):
        value = _validated(data, schema)
        if value is not None:
            clean = text.startswith("{") and text.endswith("}")
            return Parsed(value, tuple(odd) if clean else (*odd, _wrapping(text)))
    headed = _validated(_headed(text, schema), schema)
    if headed is not None:
        return Parsed(headed, (*odd, Oddity.NOT_JSON))
    return Parsed(None, (*odd, Oddity.WRONG_FIELDS if candidates else Oddity.NOT_JSON))


def _wrapping(text: str) -> Oddity:
    found, unclosed = blocks(text)
    if unclosed:
        return Oddity.UNCLOSED_FENCE
    alone = len(found) == 1 and not _FENCE.sub("", text).replace(found[0][1].strip(), "", 1).strip()
    return Oddity.FENCED_JSON if alone else Oddity.PROSE_AROUND


def _validated(data: Any, schema: type[Fields]) -> Fields | None:
    try:
        return schema.model_validate(data)
    except ValidationError:
        return None


def _objects(text: str) -> list[dict[str, Any]]:
    """Every outermost JSON object in a text, in order."""
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, Any]] = []
    position = text.find("{")
    while position >= 0:
        try:
            data, end = decoder.raw_decode(text, position)
        except ValueError:
            end = position + 1
        else:
            if isinstance(data, dict):
                found.append(data)
        position = text.find("{", end)
    return found


def _headed(text: str, schema: type[BaseModel]) -> dict[str, str]:
    """Fields given as headings or as `name: value`, the way a model without JSON writes them."""
    names = "|".join(re.escape(name).replace("_", "[ _]") for name in schema.model_fields)
    heading = re.compile(rf"^[#*\s>-]*({names})[*\s]*(?::|$)[*]*[ \t]*", re.IGNORECASE | re.MULTILINE)
    marks = list(heading.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)] if marks else []
    fields: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        value = text[mark.end() : end].strip()
        inner, _ = blocks(value)
        fields[mark.group(1).lower().replace(" ", "_")] = inner[0][1].strip("\n") if inner else value
    return fields
