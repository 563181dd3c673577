"""Signature cards of NKI's APIs, read off the simulator's own front end so that they cannot drift from it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tools.neuroncore.frontend.registry import ApiEntry, entries

_ATTRIBUTE = re.compile(r"\.(\w+)\b")
_ENUM = re.compile(r"<(\w+\.\w+): [^>]*>")
_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>|dtype\('(\w+)'\)")


@dataclass(frozen=True)
class Cards:
    """What a prompt says of the API: in full what a kernel uses, by signature what it may need."""

    used: tuple[str, ...]
    further: tuple[str, ...]


def cards(source: str, dialect: str) -> Cards:
    """The APIs of a dialect for a kernel's text."""
    return _cards(frozenset(_ATTRIBUTE.findall(source)), dialect)


@functools.lru_cache(maxsize=256)
def _cards(named: frozenset[str], dialect: str) -> Cards:
    used: list[str] = []
    further: dict[str, list[str]] = {}
    for entry in entries(dialect):
        if entry.name.rsplit(".", 1)[-1] in named:
            used.append(_readable(entry.card()))
        else:
            further.setdefault(_parameters(entry), []).append(entry.name)
    # Elementwise functions share their parameters; one line for all of them says as much as fifty.
    lines = [
        f"{', '.join(names)}{': ' if len(names) > 1 else ''}{parameters}"
        for parameters, names in further.items()
    ]
    return Cards(tuple(used), tuple(lines))


def _parameters(entry: ApiEntry) -> str:
    return _readable(entry.signature.removeprefix(entry.name))


def _readable(text: str) -> str:
    """Without what only the implementation needs."""
    text = _CLASS.sub(lambda match: match.group(1) or match.group(2), _ENUM.sub(r"\1", text))
    return text.replace(", **kwargs", "").replace("\n    \n", "\n")
