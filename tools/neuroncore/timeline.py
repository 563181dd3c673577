"""A kernel's timeline in the Trace Event Format, which Perfetto and Chrome's viewer open.

One track per engine and per DMA queue. A slice is one instruction, named with the line of the kernel's source that it
comes from; spills have a category and a colour of their own. Loops that reached a steady state are simulated for a few
iterations only; the rest is one slice per track that says how many iterations it stands for and for how long the track
works in it (`args.busy_us`). Those times and the durations of all other slices add up to the profile's counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .compiler.program import Engine, Op, Role
from .machine import Machine
from .timing.simulate import LANES, Event
from .timing.steps import GPSIMD

_ENGINE_TRACKS = {
    Engine.TENSOR: "TensorE",
    Engine.VECTOR: "VectorE",
    Engine.SCALAR: "ScalarE",
    Engine.GPSIMD: "GpSimdE",
}
_QUEUE_TRACK = 100
_SPILL_COLOUR = "terrible"


def chrome_trace(events: Iterable[Event], machine: Machine, name: str = "kernel") -> dict[str, Any]:
    """The trace of simulated events as one JSON-ready object.

    Times are microseconds from the launch of the kernel. Reads and writes share the queues piece by piece; where two
    transfers overlap on a queue, the later slice is drawn from the end of the earlier one.
    """
    queues = int(machine.dma_engines)
    out = _names(name, queues)
    events = sorted(events, key=lambda e: e.start_ns)
    offset = float(machine.launch_ns) * _BEFORE_FIRST_SHARE
    if any(e.lane == GPSIMD for e in events):
        setup = Event(None, GPSIMD, -float(machine.gpsimd_setup_ns), 0.0, float(machine.gpsimd_setup_ns), 0)
        out.append(_slice(setup, GPSIMD, setup.start_ns + offset, setup.busy_ns))
    free = [0.0] * queues
    for event in events:
        engine = LANES[event.lane]
        if engine is not Engine.DMA:
            out.append(_slice(event, event.lane, event.start_ns + offset, event.end_ns - event.start_ns))
            continue
        used = _queues(event.op, queues, machine)
        each = event.busy_ns * queues / len(used)
        for q in used:
            start = max(event.start_ns + offset, free[q])
            length = each if event.op is not None else event.end_ns - event.start_ns
            free[q] = start + length
            out.append(_slice(event, _QUEUE_TRACK + q, start, length, busy_ns=each))
    return {"traceEvents": out, "displayTimeUnit": "ns", "otherData": {"target": machine.name}}


_BEFORE_FIRST_SHARE = 0.75
"""Of the launch time, what passes before the first instruction (15 to 17 of 20 us in the mamba tutorial's profile)."""


def _names(name: str, queues: int) -> list[dict[str, Any]]:
    tracks = {LANES.index(engine): title for engine, title in _ENGINE_TRACKS.items()}
    tracks.update({_QUEUE_TRACK + q: f"DMA queue {q}" for q in range(queues)})
    out: list[dict[str, Any]] = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}}]
    for tid, title in tracks.items():
        out.append({"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": title}})
        out.append(
            {"ph": "M", "pid": 0, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
        )
    return out


def _queues(op: Op | None, queues: int, machine: Machine) -> list[int]:
    """Eight partitions share a queue."""
    if op is None or op.transfer is None:
        return list(range(queues))
    count = max(1, min(queues, math.ceil(op.transfer.rows / machine.dma_rows_per_engine)))
    return list(range(count))


def _slice(
    event: Event, track: int, start_ns: float, length_ns: float, busy_ns: float | None = None
) -> dict[str, Any]:
    op = event.op
    args: dict[str, Any] = {}
    if op is None:
        what = f"{event.repeats} more iterations alike" if event.repeats else "queue setup"
        title, category = what, "steady state"
        args = {"iterations": event.repeats, "busy_us": (event.busy_ns if busy_ns is None else busy_ns) / 1e3}
    else:
        title = f"{op.label} (line {op.line})" if op.line else op.label
        category = _category(op)
        args = {"line": op.line, "instruction": str(op.kind), "call": op.source}
        if op.transfer is not None:
            args["bytes"] = op.transfer.nbytes
            args["piece_bytes"] = op.transfer.piece_bytes
    out: dict[str, Any] = {
        "ph": "X", "pid": 0, "tid": track, "name": title, "cat": category, "ts": start_ns / 1e3, "dur": length_ns / 1e3,
        "args": args,
    }  # fmt: skip
    if category == "spill":
        out["cname"] = _SPILL_COLOUR
    return out


def _category(op: Op) -> str:
    if op.transfer is None:
        return str(op.engine)
    if op.transfer.scratch or op.transfer.role in (Role.SAVE, Role.RELOAD):
        return "spill"
    return str(op.transfer.role)
