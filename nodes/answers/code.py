"""The kernel in an answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from langchain_core.messages import AIMessage

from tools import gate

from .loose import objects, strings_of
from .mend import (
    ENTRY,
    OF_NKI,
    completed,
    first_error,
    is_elided,
    parses,
    repaired,
    returns,
    tidy,
    trimmed,
    with_imports,
)
from .message import Oddity, blocks, said_in_reasoning, spoken, without_fences
from .patch import patched

_IMPORT = re.compile(
    r"^(?:from\s+[\w.]+\s+import\s|import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,|\s*#|\s*$))", re.MULTILINE
)
_MOST_CUTS = 5
"""Times that the text after a kernel without a fence is cut off where it stops being Python."""


@dataclass(frozen=True)
class Code:
    """The program found in an answer, None if there is none."""

    source: str | None
    oddities: tuple[Oddity, ...] = ()


def read_code(message: AIMessage, parent: str | None = None) -> Code:
    """The kernel in an answer: the last block that is a whole one, or else the text from its first import on.

    Args:
        message: the answer.
        parent: the kernel that it was made from. It lends what an answer leaves out as a matter of course, its
            imports and its decorator; a diff is applied to it; and it is no answer itself.
    """
    text, odd = spoken(message)
    if not text.strip():
        thought = said_in_reasoning(message)
        found = read_code(thought, parent) if thought else Code(None)
        if found.source is not None:
            return Code(found.source, (Oddity.IN_REASONING, *found.oddities))
        return Code(None, (*odd, Oddity.EMPTY))
    unchanged = False
    fallback: Code | None = None
    for source, how in _candidates(text, odd, parent):
        finished = _finished(source, parent)
        if finished is None:
            continue
        program, further, is_excerpt = finished
        if parent is not None and same_program(program, parent):
            # Shown for comparison, perhaps; another block may hold the new one.
            unchanged = True
            continue
        code = Code(program, tuple(dict.fromkeys((*odd, *how, *further))))
        if not is_excerpt:
            return code
        # It may be taken from a whole kernel that stands before it.
        fallback = fallback or code
    if fallback is not None:
        return fallback
    return Code(None, (*odd, *([Oddity.UNCHANGED] if unchanged else _why_none(text))))


def same_program(one: str, other: str) -> bool:
    """Whether two sources differ in nothing but white space, comments and texts that do nothing."""
    if one.split() == other.split():
        return True
    first, second = gate.parsed(one), gate.parsed(other)
    return first is not None and second is not None and _meaning(first) == _meaning(second)


def _meaning(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
            ]
    return ast.dump(tree)


def _candidates(text: str, odd: list[Oddity], parent: str | None) -> Iterator[tuple[str, list[Oddity]]]:
    """What may be the kernel, likeliest first, with what is odd about finding it there."""
    found, unclosed = blocks(text, parses)
    contents = [content for _, content in found]
    around: list[Oddity] = []
    if len(found) > 1:
        around.append(Oddity.SEVERAL_BLOCKS)
    elif found and without_fences(text).replace(contents[0], "", 1).strip():
        around.append(Oddity.PROSE_AROUND)
    whole = [content for content in contents if ENTRY.search(content)]
    if whole and not OF_NKI.search(whole[-1]):
        imports = [content for content in contents if OF_NKI.search(content) and not ENTRY.search(content)]
        if imports:
            yield imports[-1] + "\n\n" + whole[-1], [*around, Oddity.COMPLETED]
    last = len(contents) - 1
    for index in range(last, -1, -1):
        if index == last and unclosed:
            if Oddity.CUT_OFF in odd or not parses(repaired(contents[index])[0]):
                # Half a kernel is none, however much of it there is; an earlier one was a draft.
                if ENTRY.search(contents[index]) or index > 0 and not found[index][0]:
                    return
                continue
            yield contents[index], [*around, Oddity.UNCLOSED_FENCE]
            continue
        yield contents[index], around
    for value in objects(text):
        for content in reversed(list(strings_of(value))):
            inner, _ = blocks(content, parses)
            yield inner[-1][1] if inner else content, [Oddity.CODE_IN_JSON]
    if parent is not None:
        for content in (*reversed(contents), text):
            applied = patched(content, parent)
            if applied is not None:
                yield applied, [Oddity.PATCH]
    if not found:
        yield from _bare(text, odd)


def _bare(text: str, odd: list[Oddity]) -> Iterator[tuple[str, list[Oddity]]]:
    """A kernel without fences: from an import on, to where it stops being Python."""
    entry = ENTRY.search(text)
    if entry is None:
        return
    starts = [match.start() for match in _IMPORT.finditer(text) if match.start() < entry.start()]
    for start in [*starts, entry.start()]:
        lines = text[start:].split("\n")
        for _ in range(_MOST_CUTS):
            line = first_error("\n".join(lines))
            if line is None:
                yield "\n".join(lines), [Oddity.NO_FENCE]
                return
            if Oddity.CUT_OFF in odd or line < 2 or line > len(lines) or lines[line - 1][:1].isspace():
                break
            del lines[line - 1 :]


def _finished(source: str, parent: str | None) -> tuple[str, list[Oddity], bool] | None:
    """A candidate as a whole kernel, with what was done to it and whether it may be an excerpt; None if it is none."""
    source, odd = repaired(tidy(source))
    tree = gate.parsed(source)
    if tree is None:
        # What is wrong with a kernel that does not parse, the gate will say; the fixer can mend it.
        return (source, odd, False) if ENTRY.search(source) and OF_NKI.search(source) else None
    if is_elided(tree, source):
        return None
    given = source
    if parent is not None:
        source = completed(source, tree, parent)
    is_excerpt = source != given
    if ENTRY.search(source):
        source = with_imports(source)
    odd += [Oddity.COMPLETED] if source != given else []
    if not gate.kernel_names(source):
        return (source, odd, is_excerpt) if ENTRY.search(source) else None
    if parent is not None and returns(parent) and not returns(source):
        return None
    rest = trimmed(source)
    return rest, [*odd, Oddity.TRIMMED] if rest != source else odd, is_excerpt


def _why_none(text: str) -> list[Oddity]:
    found, unclosed = blocks(text, parses)
    sources = [content for _, content in found] or [text]
    if unclosed and any(ENTRY.search(source) for source in sources):
        return [Oddity.UNCLOSED_FENCE]
    for source in sources:
        tree = gate.parsed(source)
        if tree is not None and (is_elided(tree, source) or gate.kernel_names(source)):
            return [Oddity.ELIDED]
    if any(language in ("diff", "patch") for language, _ in found):
        return [Oddity.PATCH]
    return [Oddity.NO_CODE]
