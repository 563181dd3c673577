"""Signature cards of NKI's APIs, read off the simulator's own front end so that they cannot drift from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.kernel import Dialect
from tools.neuroncore.frontend.registry import entries

_CALL = re.compile(r"\b(\w+)\.(\w+)\b")


@dataclass(frozen=True)
class Card:
    """One API: in full where the kernel uses it, by its signature otherwise."""

    name: str
    text: str
    is_used: bool


def cards(source: str, dialect: str = Dialect.neuronxcc.value) -> list[Card]:
    """Every API of a dialect by name; those that a kernel names come with their description and cost."""
    used = {match.group(2) for match in _CALL.finditer(source)}
    found = []
    for entry in entries(dialect):
        is_used = entry.name.rsplit(".", 1)[-1] in used
        found.append(Card(entry.name, entry.card() if is_used else entry.signature, is_used))
    return found
