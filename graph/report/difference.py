"""The difference between two kernels, as HTML."""

from __future__ import annotations

import difflib

from .markup import Markup, joined, tag


def difference(before: str, after: str, context: int = 4) -> Markup:
    """A unified difference with one coloured line each; `no difference` where there is none.

    Args:
        before: the older text.
        after: the newer text.
        context: unchanged lines shown around a change.
    """
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=context))[2:]
    if not lines:
        return tag("p", "no difference", class_="quiet")
    return tag(
        "pre", joined(*(tag("span", line or " ", class_=_kind(line)) for line in lines)), class_="diff"
    )


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "same")
