"""A diff applied to the kernel that it was made from."""

from __future__ import annotations

import re

_HEAD = re.compile(r"^(?:diff |index |--- |\+\+\+ |\*\*\* |new file|old mode|new mode)")
_SEARCH = re.compile(r"^<{5,} ?SEARCH\n(.*?)^={5,}\n(.*?)^>{5,} ?REPLACE", re.MULTILINE | re.DOTALL)


def patched(diff: str, source: str) -> str | None:
    """The source after a unified diff, a patch between `*** Begin Patch` marks, or SEARCH and REPLACE blocks.

    None where it is no diff, or where the lines that it replaces are not found in exactly one place.
    """
    pairs = [(found[1].splitlines(), found[2].splitlines()) for found in _SEARCH.finditer(diff)]
    pairs = pairs or _hunks(diff)
    if not pairs:
        return None
    lines = source.rstrip("\n").split("\n")
    for old, new in pairs:
        at = _place(old, lines)
        if at is None:
            return None
        lines[at : at + len(old)] = new
    return "\n".join(lines) + "\n"


def _hunks(diff: str) -> list[tuple[list[str], list[str]]]:
    """What each hunk replaces, and by what; line numbers are not believed, models miscount."""
    hunks: list[tuple[list[str], list[str]]] = []
    old: list[str] = []
    new: list[str] = []
    inside = changes = False
    for line in [*diff.split("\n"), "@@"]:
        if line.startswith("@@") or _HEAD.match(line):
            while old and new and not old[-1].strip() and not new[-1].strip():
                old.pop()
                new.pop()
            if changes:
                hunks.append((old, new))
            old, new, changes = [], [], False
            inside = inside or line.startswith(("@@", "+++ ", "*** Update"))
        elif inside and line.startswith("-"):
            old.append(line[1:])
            changes = True
        elif inside and line.startswith("+"):
            new.append(line[1:])
            changes = True
        elif inside and (line.startswith(" ") or not line.strip()):
            old.append(line[1:])
            new.append(line[1:])
        elif inside and line.strip() and not line.startswith("\\"):
            # Prose after the diff.
            break
    else:
        return hunks
    return [*hunks, (old, new)] if changes else hunks


def _place(old: list[str], lines: list[str]) -> int | None:
    """Where the old lines stand; None if nowhere or in several places."""
    wanted = [line.rstrip() for line in old]
    if not wanted:
        return None
    have = [line.rstrip() for line in lines]
    places = [at for at in range(len(have) - len(wanted) + 1) if have[at : at + len(wanted)] == wanted]
    return places[0] if len(places) == 1 else None
