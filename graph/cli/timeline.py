"""A kernel's simulated timeline as a file for Chrome's trace viewer or Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import CommandError

if TYPE_CHECKING:
    from nkibench.problem import Problem

_COMPILE_TIMEOUT_S = 60.0
_MEMORY_BYTES = 4 << 30


def write_timeline(source: str, problem: Problem, target: str, small: bool, path: Path) -> int:
    """Write every instruction of a kernel with its engine or queue, start and end; return how many there are.

    The kernel's text runs in a confined worker; what comes back is its trace, which is data.

    Raises:
        CommandError: the file cannot be written.
        tools.worker.Fault: the kernel does not compile.
    """
    from tools.backends.simulator import SimulatedKernel
    from tools.neuroncore import estimate
    from tools.pool import PoolSettings, WorkerPool

    arguments = [
        value if isinstance(value, float | int) else {"shape": list(value.shape), "dtype": value.dtype}
        for value in problem.argument_values(small)
    ]
    with (
        WorkerPool(PoolSettings(workers=1)) as pool,
        pool.lease("tools.kernel_service", timeout_s=_COMPILE_TIMEOUT_S, memory_bytes=_MEMORY_BYTES) as lease,
    ):
        answer = lease.call("compile", {"arguments": arguments, "target": target}, tail=source.encode())
    kernel = SimulatedKernel.load(answer.tail).ir
    events = _trace_events(estimate(kernel, target=target, with_timeline=True).timeline)
    try:
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write the timeline {path}: {error.strerror}") from None
    return len(events)


def _trace_events(timeline: list[Any]) -> list[dict[str, Any]]:
    """Trace Event Format: complete events in microseconds, one row for each engine and queue."""
    from tools.neuroncore.timing.simulate import LANES

    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": str(lane)}}
        for number, lane in enumerate(LANES)
    ]
    for event in timeline:
        op = event.op
        label = op.label if op is not None else f"{event.repeats} more iterations alike"
        events.append(
            {
                "name": label,
                "cat": str(op.engine) if op is not None else "skipped",
                "ph": "X",
                "pid": 0,
                "tid": event.lane,
                "ts": event.start_ns / 1e3,
                "dur": max(0.0, event.end_ns - event.start_ns) / 1e3,
                "args": {"line": op.line, "kind": str(op.kind)} if op is not None else {},
            }
        )
    return events
