"""An experience: what one rewrite step did to a kernel, in words that carry over to other kernels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Kind(StrEnum):
    """Whether the step helped or hurt."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


_CONTENT = (
    "kind",
    "title",
    "description",
    "slow_code",
    "fast_code",
    "problem",
    "operator",
    "target",
    "bottleneck",
    "rewrite",
    "features",
    "slow_kernel_id",
    "fast_kernel_id",
)
"""What makes two experiences the same. Who found it, when, and the measured speedup are not in it: a
second run that learns the same thing adds its name to the record instead of a second record."""


class Experience(BaseModel):
    """One remembered step from a slow kernel to a fast one, or the other way round.

    A positive experience says that going from `slow_code` to `fast_code` helped; a negative one that
    going from `fast_code` to `slow_code` hurt, so that nobody tries it again.
    """

    model_config = ConfigDict(frozen=True)

    id: str = ""
    """First 32 hex digits of the SHA-256 of the content; filled in when left empty."""
    kind: Kind
    title: str
    description: str
    """The transformation in general words, free of this kernel's shapes."""
    slow_code: str = ""
    """Short pseudocode of the slow segment."""
    fast_code: str = ""
    """Short pseudocode of the fast segment."""
    speedup: float = Field(gt=0)
    """Latency before the step over latency after it: above 1 for a positive, below 1 for a negative."""
    problem: str
    operator: str
    """Operator family of the problem; the store keeps one index a family."""
    target: str
    bottleneck: str = ""
    """What bounded the kernel before the step, e.g. `memory`."""
    rewrite: str | None = None
    """Name of the deterministic rewrite, where one made the step."""
    features: tuple[str, ...] = ()
    """Words for the kernel's structure, e.g. `loop-depth-2`."""
    run_id: str = ""
    """The run that found it first."""
    round: int = 0
    created_at: str = ""
    """UTC time in ISO 8601; sorts as text."""
    slow_kernel_id: str = ""
    fast_kernel_id: str = ""

    @model_validator(mode="before")
    @classmethod
    def _fill_id(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("id"):
            return {**data, "id": content_id({name: data.get(name) for name in _CONTENT})}
        return data

    @model_validator(mode="after")
    def _id_matches_content(self) -> Self:
        expected = content_id({name: getattr(self, name) for name in _CONTENT})
        if self.id != expected:
            raise ValueError(f"experience id {self.id} does not match its content ({expected})")
        return self

    def text(self) -> str:
        """The text that is embedded: the situation it applies to, then what was done."""
        head = situation(self.operator, self.bottleneck, self.features)
        return f"{head}\n{self.title}\n{self.description}"


def situation(operator: str, bottleneck: str = "", features: Iterable[str] = (), words: str = "") -> str:
    """The text to recall by: the same header that `Experience.text` starts with, plus free `words`."""
    lines = [f"operator: {operator}"]
    if bottleneck:
        lines.append(f"bottleneck: {bottleneck}")
    structure = ", ".join(features)
    if structure:
        lines.append(f"structure: {structure}")
    if words:
        lines.append(words)
    return "\n".join(lines)


def content_id(content: dict[str, Any]) -> str:
    """The id of an experience with this content; absent and default values count as the same."""
    normal = {
        name: list(value) if isinstance(value, list | tuple) else str(value)
        for name, value in content.items()
        if value
    }
    canonical = json.dumps(normal, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]
