"""What a run tells while it works: small dicts on LangGraph's custom stream.

Every event has `event`, and fields by kind:

- `run_started`: run_id, problem, target, baseline_latency_ms, baseline_percent_of_peak, iterations
- `round_started`: round, candidates, experiences
- `planned`: round, candidate, plan, title
- `evaluated`: round, candidate, plan, sample, kernel_id, status, latency_ms, speedup, error, repairs
- `round_finished`: round, best_kernel_id, best_latency_ms, best_percent_of_peak, tried, correct
- `round_cut_short`: the same, where a cap or a fault left some of it to be done when the run is taken up again
- `learned`: round, lesson (positive or negative), title, speedup
- `paused`, `resumed`, `notice`, `draining`: message
- `run_finished`: the result's fields
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langgraph.config import get_stream_writer

_outer: contextvars.ContextVar[Callable[[Any], None]] = contextvars.ContextVar("outer stream writer")


@contextmanager
def forwarded(write: Callable[[Any], None]) -> Iterator[None]:
    """Send what a graph inside of a node tells to the stream of the graph outside."""
    token = _outer.set(write)
    try:
        yield
    finally:
        _outer.reset(token)


def emit(event: str, **fields: Any) -> None:
    """Tell whoever streams this run; nobody else is disturbed."""
    write = _outer.get(None)
    if write is None:
        try:
            write = get_stream_writer()
        except RuntimeError:
            # Outside of a graph there is nobody to tell.
            return
    write({"event": event, **fields})
