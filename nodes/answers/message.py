"""The words of a message without what servers and chat formats leave around them, and its fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from langchain_core.messages import AIMessage


class Oddity(StrEnum):
    """A way in which an answer was not simply what was asked for."""

    EMPTY = "empty"
    CUT_OFF = "cut_off"
    CHAT_MARKERS = "chat_markers"
    """Control tokens of a chat format, such as `<|channel|>final<|message|>`."""
    THOUGHT_ALOUD = "thought_aloud"
    """Reasoning in the content, as in `<think>...</think>`."""
    IN_REASONING = "in_reasoning"
    """The whole answer stands where the reasoning should; a server mistook the one for the other."""
    PROSE_AROUND = "prose_around"
    SEVERAL_BLOCKS = "several_blocks"
    UNCLOSED_FENCE = "unclosed_fence"
    NO_FENCE = "no_fence"
    NO_CODE = "no_code"
    CODE_IN_JSON = "code_in_json"
    PATCH = "patch"
    """A diff instead of the whole kernel."""
    ELIDED = "elided"
    """Parts of the kernel are left out: `...`, or a comment in their place."""
    COMPLETED = "completed"
    """Imports, the decorator or the order of functions were put right after the kernel it was made from."""
    TRIMMED = "trimmed"
    """Tests, runners or imports that the kernel does not need were cut away."""
    GARBLED = "garbled"
    """Typographic quotes, HTML entities, line numbers and the like were put right."""
    FENCED_JSON = "fenced_json"
    LOOSE_JSON = "loose_json"
    """Comments, trailing commas, single quotes, JSON in a string, fields in another field."""
    NOT_JSON = "not_json"
    WRONG_FIELDS = "wrong_fields"
    UNCHANGED = "unchanged"


_COMPLAINTS = {
    Oddity.CUT_OFF: "it ran into the limit of its length; think briefly, and answer soon",
    Oddity.EMPTY: "it was empty",
    Oddity.UNCLOSED_FENCE: "it broke off in the middle of the kernel",
    Oddity.NO_CODE: "it held no NKI kernel",
    Oddity.PATCH: "its diff does not fit the kernel; write the whole file",
    Oddity.ELIDED: "it left parts of the kernel out; write every line of the file",
    Oddity.UNCHANGED: "its kernel does the same as the one it was made from",
    Oddity.NOT_JSON: "it was no JSON object",
    Oddity.WRONG_FIELDS: "its JSON object lacks fields, or has them in another form",
}
"""What to tell a model of an answer that could not be used; the most telling kinds first."""

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([^\s`]*)[^\n`]*$", re.MULTILINE)
_THOUGHT = r"(?:seed:)?think(?:ing)?|thought|reasoning|reflection"
_OPENED = re.compile(rf"^\s*(?:<(?:{_THOUGHT})>|◁think▷)", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_THOUGHT})>|◁/think▷", re.IGNORECASE)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>|\bassistantfinal(?=[\s`{@\"#]|from |import )")
_TURN_END = re.compile(r"<\|(?:return|end|call|im_end|eot_id|end_of_text|endoftext)\|>|</s>\s*$")
_MARKER = re.compile(
    r"<\|channel\|>[^<\n]*(?:<\|constrain\|>[^<\n]*)?<\|message\|>|"
    r"<\|(?:start|im_start)\|>\w*\n?|<\|start_header_id\|>\w*<\|end_header_id\|>\s*|<\|\w+\|>|"
    r"<｜[^｜\n]{1,40}｜>|<start_of_turn>\w*\n?|<end_of_turn>|</s>\s*$|\[/INST\]"
)
_MOST_ENDS = 12
_IS_KERNEL = re.compile(r"^\s*(?:@|def |from |import )", re.MULTILINE)
_QUOTED = re.compile(r"^> ?", re.MULTILINE)
_INVISIBLE = re.compile("[\ufeff\u200b\u200c\u200d\u2060]")
_SPACES = re.compile("[\u00a0\u2007\u202f]")


def complaint(oddities: Iterable[str]) -> str:
    """Why an answer could not be used, in words for its writer."""
    given = set(oddities)
    return next((words for kind, words in _COMPLAINTS.items() if kind in given), "it could not be read")


def text_of(message: AIMessage) -> str:
    """The text of a message; null content, content in parts, and calls that were no valid JSON included."""
    content: Any = message.content
    if isinstance(content, str):
        text = content
    else:
        text = "".join(
            part if isinstance(part, str) else str(part.get("text") or "") for part in content or ()
        )
    if text.strip() or message.tool_calls:
        return text
    # Arguments that the client could not parse are words like any other.
    spoken = [call.get("args") for call in message.invalid_tool_calls]
    spoken.append((message.additional_kwargs.get("function_call") or {}).get("arguments"))
    return next((words for words in spoken if isinstance(words, str) and words.strip()), text)


def reasoning_of(message: AIMessage) -> str | None:
    """What the model thought aloud, where the endpoint sends it."""
    return message.additional_kwargs.get("reasoning_content") or None


def is_cut_off(message: AIMessage) -> bool:
    """Whether the model ran into its output limit."""
    reason = message.response_metadata.get("finish_reason") or message.response_metadata.get("stop_reason")
    return reason in ("length", "max_tokens")


def spoken(message: AIMessage) -> tuple[str, list[Oddity]]:
    """What a message says, without reasoning and control tokens, and what was odd about that."""
    odd = [Oddity.CUT_OFF] if is_cut_off(message) else []
    text = text_of(message)
    text = _INVISIBLE.sub("", _SPACES.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")))
    for kind, clean in ((Oddity.CHAT_MARKERS, _without_markers), (Oddity.THOUGHT_ALOUD, _without_thought)):
        cleaned = clean(text)
        if cleaned != text:
            odd.append(kind)
            text = cleaned
    if Oddity.CUT_OFF in odd and _OPENED.match(text):
        # It never came to its answer; what it considered underway is no answer.
        odd.append(Oddity.THOUGHT_ALOUD)
        text = ""
    if text.lstrip().startswith("> ") and all(
        line.startswith(">") for line in text.strip().splitlines() if line
    ):
        text = _QUOTED.sub("", text)
    return text, odd


def said_in_reasoning(message: AIMessage) -> AIMessage | None:
    """The reasoning of a finished message without content, as if it were the content; None for all others.

    Without an end-of-thought token, the reasoning parsers of servers take the whole answer for reasoning.
    """
    thought = reasoning_of(message)
    if not thought or text_of(message).strip() or message.tool_calls or is_cut_off(message):
        return None
    return AIMessage(thought)


def _without_markers(text: str) -> str:
    finals = list(_FINAL.finditer(text))
    if finals:
        text = _TURN_END.split(text[finals[-1].end() :], maxsplit=1)[0]
    return _MARKER.sub("", text)


def _without_thought(text: str) -> str:
    closed = list(_CLOSED.finditer(text))
    return text[closed[-1].end() :] if closed else text


def blocks(text: str, is_whole: Callable[[str], bool] | None = None) -> tuple[list[tuple[str, str]], bool]:
    """The fenced blocks of a Markdown text as (language, content), and whether the last one was left open.

    Args:
        text: with line feeds as line ends.
        is_whole: tells whether a block's content is complete. A fence inside of a docstring closes nothing: where
            the content up to the first closing fence is not complete, but up to a later one is, that one counts.
    """
    lines = text.split("\n")
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        opened = _opening(lines[at])
        if opened is None:
            at += 1
            continue
        indent, fence, language = opened
        ends = _closings(lines, at + 1, fence)
        if not ends:
            found.append((language, _dedented(lines[at + 1 :], indent)))
            return found, True
        proper = next((one for one in ends if not one[1]), ends[0])
        content, end = _dedented([*lines[at + 1 : proper[0]], *proper[1]], indent), proper[0]
        if is_whole is not None and _IS_KERNEL.search(content) and not is_whole(content):
            for other, rest in ends:
                attempt = _dedented([*lines[at + 1 : other], *rest], indent)
                if is_whole(attempt):
                    content, end = attempt, other
                    break
        found.append((language, content + "\n" if content else ""))
        at = end + 1
    return found, False


def _opening(line: str) -> tuple[str, str, str] | None:
    """Indentation, fence and language of a line that opens a block."""
    match = _FENCE.match(line) or re.match(r"^(?P<before>[^`]*[^`\s][ \t]*)(```+)(\w+)[ \t]*$", line)
    if match is None:
        return None
    if "before" in match.groupdict():
        return "", match.group(2), match.group(3).lower()
    indent = line[: len(line) - len(line.lstrip())]
    return indent, match.group(1), match.group(2).strip("{}.").lower()


def _closings(lines: list[str], start: int, fence: str) -> list[tuple[int, list[str]]]:
    """Lines that could close a block, each with what of the line still belongs to it; the first dozen."""
    ends: list[tuple[int, list[str]]] = []
    for index in range(start, len(lines)):
        line = lines[index].rstrip()
        words = line.lstrip()
        if words.startswith(fence) and not words.strip(fence[0]):
            ends.append((index, []))
        elif line.endswith(fence) and fence[0] not in line[: -len(fence)]:
            ends.append((index, [line[: -len(fence)]]))
        if len(ends) == _MOST_ENDS:
            break
    return ends


def _dedented(lines: list[str], indent: str) -> str:
    if indent and all(line.startswith(indent) or not line.strip() for line in lines):
        lines = [line.removeprefix(indent) if line.strip() else line for line in lines]
    return "\n".join(lines)


def without_fences(text: str) -> str:
    """A text without the lines that open and close blocks."""
    return _FENCE.sub("", text)
