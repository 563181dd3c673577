from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory_store.chroma import ExperienceStore
from memory_store.experience import Experience
from memory_store.ledger import Ledger

MakeExperience = Callable[..., Experience]


@pytest.fixture
def make_experience() -> MakeExperience:
    """Experiences that differ in a number; any field can be given."""

    def make(number: int = 0, **fields: object) -> Experience:
        return Experience.model_validate(
            {
                "kind": "positive",
                "title": f"Widen the tile {number}",
                "description": "Load a longer stretch of the free dimension with each instruction.",
                "slow_code": "for i: load(128)",
                "fast_code": "load(512)",
                "speedup": 1.25,
                "problem": "silu",
                "operator": "silu",
                "target": "trn1",
                "bottleneck": "memory",
                "features": ["loop-depth-2"],
                "run_id": "run-a",
                "round": 1,
                "created_at": f"2026-01-01T00:00:{number:02d}+00:00",
                **fields,
            }
        )

    return make


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}") as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    """A store of this process alone: no server to start."""
    with ExperienceStore.open(tmp_path / "chroma", "hashing", shared=False) as opened:
        yield opened
