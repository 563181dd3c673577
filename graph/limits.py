"""Limits that several runs share: what some have used, and what that leaves for another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memory_store.ledger import Ledger
from nodes.budget import cap_text
from nodes.context import Caps
from nodes.services import spent_by


class LimitReached(Exception):
    """Runs have used up what they may use together. One line says which limit."""


@dataclass(frozen=True)
class Used:
    """What one run has used, under the names of `Caps`."""

    usd: float = 0.0
    tokens: int = 0
    wall_s: float = 0.0
    kernels: int = 0


def used_by(ledger: Ledger, run_id: str) -> Used:
    """What a run has used in all its periods."""
    spent, evaluated = spent_by(ledger, run_id)
    return Used(spent.usd, spent.tokens, spent.wall_s, len(evaluated))


def left_of(caps: Caps, others: Iterable[Used], whom: str) -> Caps:
    """What one run may use in all: the limits that it shares less what the others have used.

    Args:
        caps: the limits.
        others: what each of the other runs has used.
        whom: whose limits they are, for the message, such as `all problems together`.

    Raises:
        LimitReached: the others have left nothing.
    """
    spent = list(others)
    left: dict[str, float] = {}
    for name, limit in caps.model_dump(exclude_none=True).items():
        left[name] = limit - sum(getattr(one, name) for one in spent)
        if left[name] <= 0:
            raise LimitReached(f"the cap of {cap_text(name, limit)} for {whom} is reached")
    return Caps.model_validate(left)
