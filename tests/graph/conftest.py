from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_store.home import Home
from nodes.resources import RESOURCES

from .stand_in import StandIn


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    """Stand-ins in place of everything expensive, and a home of their own."""
    one = StandIn(Home(root=tmp_path / "home"))
    token = RESOURCES.set(one.resources())
    yield one
    RESOURCES.reset(token)
