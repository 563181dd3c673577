"""JSON as models write it: in prose, with comments, single quotes and trailing commas, in strings and in wrappers."""

from __future__ import annotations

import ast
import html
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|(?<![\w"])#[^\n]*|,(?=\s*[}\]])', re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\b(?:None|True|False|NaN|undefined|-?Infinity)\b', re.DOTALL)
_WORDS = {"None": "null", "True": "true", "False": "false"}
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"'})
_START = re.compile(r'\{\s*["}]|\[\s*\{')
_LOOSE_START = re.compile(r"\{(?=\s*[\"'\w“/#&\\])")
_MOST = 400
"""Places in a text where an object may begin that are looked at; the last ones."""
_MOST_FAILURES = 12
_LONGEST_OBJECT = 20_000
_LONGEST = 200_000
"""Characters of a text in which loose JSON is looked for."""
_DEEPEST = 4


def objects(text: str) -> list[dict[str, Any]]:
    """Every outermost object in a text, in order; of a list of objects the first one last, since it is meant first."""
    exact = _exact(text)
    return exact if exact else _loose(text)


def is_strict(text: str) -> bool:
    """Whether a text is one JSON object and nothing else."""
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _exact(text: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, Any]] = []
    end = 0
    # Degenerate answers repeat a brace by the thousand; an answer proper stands near the end.
    for start in [match.start() for match in _START.finditer(text)][-_MOST:]:
        if start < end:
            continue
        try:
            data, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found.append(data)
        elif isinstance(data, list):
            found += reversed([item for item in data if isinstance(item, dict)])
    return found


def _loose(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    text = text[:_LONGEST]
    for variant in _variants(text):
        found = [data for data in map(_lenient, _balanced(variant)) if data is not None]
        if found:
            break
    return found


def _variants(text: str) -> Iterator[str]:
    """A text as it is, as the string in which it was encoded again, and without typographic or HTML quotes."""
    yield text
    try:
        inner = json.loads(text.strip(), strict=False)
    except (ValueError, RecursionError):
        inner = None
    if isinstance(inner, str):
        yield inner
    if '{\\"' in text or '\\n\\"' in text or "{\\n" in text:
        yield text.replace('\\"', '"').replace("\\n", "\n")
    if "&quot;" in text or "&#34;" in text:
        yield html.unescape(text)
    yield text.translate(_QUOTES)


def _balanced(text: str) -> list[str]:
    """Outermost pieces between braces, strings minded."""
    pieces: list[str] = []
    failures = end = 0
    for match in _LOOSE_START.finditer(text):
        if match.start() < end:
            continue
        found = _end(text, match.start())
        if found is None:
            failures += 1
            if failures == _MOST_FAILURES:
                break
            continue
        end = found
        pieces.append(text[match.start() : end])
    return pieces[-_MOST:]


def _end(text: str, start: int) -> int | None:
    depth, quote, index = 0, "", start
    last = min(len(text), start + _LONGEST_OBJECT)
    while index < last:
        letter = text[index]
        if quote:
            if letter == "\\":
                index += 1
            elif letter == quote:
                quote = ""
        elif letter == '"' or letter == "'" and not text[index - 1].isalnum():
            quote = letter
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    return None


def _lenient(piece: str) -> dict[str, Any] | None:
    """A piece read as JSON without comments and trailing commas, or as a Python literal."""
    bare = _TOKEN.sub(lambda match: match[0] if match[0].startswith('"') else "", piece)
    for attempt in (bare, _WORD.sub(lambda m: m[0] if m[0][0] == '"' else _WORDS.get(m[0], "null"), bare)):
        try:
            data = json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
        return data if isinstance(data, dict) else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            named = re.sub(
                r"\bnull\b", "None", re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", bare))
            )
            data = ast.literal_eval(named)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    return data if isinstance(data, dict) and all(isinstance(key, str) for key in data) else None


def within(data: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """An object and the objects inside of it, encoded ones too, the outer ones first."""
    if isinstance(data, str) and depth and "{" in data:
        found = objects(data)
        if found:
            yield from within(found[-1], depth + 1)
    if depth > _DEEPEST:
        return
    if isinstance(data, dict):
        yield data
        for value in data.values():
            yield from within(value, depth + 1)
    elif isinstance(data, list):
        for value in data:
            yield from within(value, depth + 1)


def strings_of(data: Any, depth: int = 0) -> Iterator[str]:
    """All texts of several lines in an object."""
    if isinstance(data, str):
        if "\n" in data:
            yield data
    elif isinstance(data, dict | list) and depth <= _DEEPEST:
        for value in data.values() if isinstance(data, dict) else data:
            yield from strings_of(value, depth + 1)
