"""Randomness that depends on what it is for, never on when it is drawn."""

from __future__ import annotations

import hashlib
import random


def derive(*parts: object) -> int:
    """A 64-bit seed from the run's seed and the names of what it is for."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def rng(*parts: object) -> random.Random:
    """A generator of its own for that purpose."""
    return random.Random(derive(*parts))
