"""The fields of a structured answer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from langchain_core.messages import AIMessage
from pydantic import BaseModel, ValidationError

from .loose import is_strict, objects, within
from .message import Oddity, blocks, said_in_reasoning, spoken, without_fences

Fields = TypeVar("Fields", bound=BaseModel)

_NOTHING = ("", "none", "null", "n/a", "na", "-")


@dataclass(frozen=True)
class Parsed(Generic[Fields]):
    """The fields found in an answer, None if they cannot be read."""

    value: Fields | None
    oddities: tuple[Oddity, ...] = ()


def read_fields(message: AIMessage, schema: type[Fields]) -> Parsed[Fields]:
    """The fields of a structured answer: from a tool call, JSON anywhere in the text, or headed text."""
    text, odd = spoken(message)
    text = text.strip()
    for call in message.tool_calls:
        for data in within(call["args"]):
            value, plain = _validated(data, schema)
            if value is not None:
                loose = [] if plain and data is call["args"] else [Oddity.LOOSE_JSON]
                return Parsed(value, (*odd, *loose))
    if not text:
        thought = said_in_reasoning(message)
        found = read_fields(thought, schema) if thought else Parsed[Fields](None)
        if found.value is not None:
            return Parsed(found.value, (Oddity.IN_REASONING, *found.oddities))
        return Parsed(None, (*odd, Oddity.WRONG_FIELDS if message.tool_calls else Oddity.EMPTY))
    candidates = objects(text)
    for outer in reversed(candidates):
        for data in within(outer):
            value, plain = _validated(data, schema)
            if value is not None:
                return Parsed(value, (*odd, *_wrapping(text, plain and data is outer)))
    for read, oddity in ((_named, Oddity.LOOSE_JSON), (_headed, Oddity.NOT_JSON)):
        value, _ = _validated(read(text, schema), schema)
        if value is not None:
            return Parsed(value, (*odd, oddity))
    return Parsed(None, (*odd, Oddity.WRONG_FIELDS if candidates else Oddity.NOT_JSON))


def _wrapping(text: str, is_plain: bool) -> list[Oddity]:
    inner = [] if is_plain else [Oddity.LOOSE_JSON]
    if text.startswith("{") and text.endswith("}"):
        return inner or ([] if is_strict(text) else [Oddity.LOOSE_JSON])
    found, unclosed = blocks(text)
    if unclosed:
        return [*inner, Oddity.UNCLOSED_FENCE]
    if len(found) == 1 and not without_fences(text).replace(found[0][1].strip(), "", 1).strip():
        return [*inner, Oddity.FENCED_JSON]
    if text[0] in '["' and text[-1] in ']"':
        return [Oddity.LOOSE_JSON]
    return [*inner, Oddity.PROSE_AROUND]


def _validated(data: Any, schema: type[Fields]) -> tuple[Fields | None, bool]:
    """The fields, and whether they were given just as asked for."""
    for plain, attempt in ((True, data), (False, _coerced(data, schema))):
        try:
            return schema.model_validate(attempt), plain
        except ValidationError:
            continue
    return None, False


def _coerced(data: Any, schema: type[BaseModel]) -> Any:
    """The values under the schema's own names, and as text where it wants text."""
    if not isinstance(data, dict):
        return data
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = re.sub(r"[\s-]+", "_", str(key).strip().lower())
        field = schema.model_fields.get(name)
        if field is None or name in values:
            continue
        if isinstance(value, float) and math.isnan(value):
            value = None
        if value is None and not field.is_required():
            continue
        values[name] = _as_text(value) if field.annotation in (str, str | None) else value
    return values


def _as_text(value: Any) -> str | None:
    """A list as its lines, an object as lines of `name: value`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_as_text(item) or "" for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_as_text(item)}" for key, item in value.items())
    return str(value)


def nothing_said(value: Any) -> Any:
    """None for the ways in which models write that there is nothing: `none`, `null`, an empty text."""
    return None if isinstance(value, str) and value.strip().lower() in _NOTHING else value


def _named(text: str, schema: type[BaseModel]) -> dict[str, Any]:
    """Fields of an object whose strings hold quotes that should have been escaped, or that has no quoted names.

    A field ends where the next one of the schema begins; one whose closing quote is missing was cut off.
    """
    names = "|".join(map(re.escape, schema.model_fields))
    mark = re.compile(rf"""(?:^|[{{,\n])\s*["'“]?({names})["'”]?\s*:\s*""")
    start = text.find("{")
    marks = list(mark.finditer(text, start)) if start >= 0 else []
    fields: dict[str, Any] = {}
    for index, found in enumerate(marks):
        is_last = index + 1 == len(marks)
        value = text[found.end() : None if is_last else marks[index + 1].start()].strip().rstrip(",").strip()
        if is_last:
            value = re.sub(r"\s*,?\s*\}\s*(?:```)?\s*$", "", value)
        if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
            fields[found[1]] = re.sub(r'\\(["\'\\])', r"\1", value[1:-1].replace("\\n", "\n"))
        elif value in ("true", "false"):
            fields[found[1]] = value == "true"
    return fields


def _headed(text: str, schema: type[BaseModel]) -> dict[str, str]:
    """Fields given as headings or as `name: value`, the way a model without JSON writes them."""
    names = "|".join(re.escape(name).replace("_", "[ _]") for name in schema.model_fields)
    heading = re.compile(
        rf"^[#*\s>-]*(?:\d+[.)]\s*)?[*_`]*({names})[*_`\s]*(?::|–|—|$)[*_`]*[ \t]*",
        re.IGNORECASE | re.MULTILINE,
    )
    marks = list(heading.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)] if marks else []
    fields: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        value = re.sub(r"^[|>][+-]?\n", "", text[mark.end() : end].strip())
        inner, _ = blocks(value)
        fields[mark.group(1).lower().replace(" ", "_")] = inner[0][1].strip("\n") if inner else value.strip()
    return fields
