"""Time and memory of an estimate, trace included, for every baseline; and what ten times the trips cost.

Usage: bench_machine_model.py [--nkibench DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nkibench import Problem, load_problem, problem_names, upstream_problems  # noqa: E402
from tools.neuroncore import ArraySpec, estimate, trace  # noqa: E402

MEDIAN_S, WORST_S, MEMORY_MIB, GROWTH = 0.3, 1.0, 300.0, 1.5
"""What is promised: median and worst time per kernel, memory above the import, cost of ten times the trips."""

_REPEATS = 5

_LOOP = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(({trips} * 128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for i in nl.affine_range({trips}):
        for j in nl.affine_range(4):
            tile = nl.load(x[128 * i + p, 512 * j + f])
            nl.store(out[128 * i + p, 512 * j + f], nl.multiply(nl.exp(tile), tile))
    return out
"""


def problems(checkout: Path | None) -> Iterator[Problem]:
    """Our baselines, or a checkout's."""
    if checkout is None:
        yield from (load_problem(name) for name in problem_names())
    else:
        yield from upstream_problems(checkout)


def seconds(source: str, arguments: list[ArraySpec | float]) -> float:
    """Processor time of trace and estimate, the best of a few runs."""
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.process_time()
        estimate(trace(source, arguments, target="trn1"), "trn1")
        best = min(best, time.process_time() - start)
    return best


def memory_mib() -> float:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure, print, and say by the exit code whether the promises hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nkibench", type=Path, help="a checkout of upstream NKIBench")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    cases = []
    for problem in problems(options.nkibench):
        arguments = [
            value if isinstance(value, float | int) else ArraySpec(tuple(value.shape), np.dtype(value.dtype))
            for value in problem.argument_values()
        ]
        cases.append((problem.name, problem.baseline_source(), arguments))
    before = memory_mib()
    times = {name: seconds(source, arguments) for name, source, arguments in cases}
    few, many = (
        seconds(_LOOP.format(trips=n), [ArraySpec((n * 128, 2048), np.dtype(np.float32))]) for n in (64, 640)
    )
    result = {
        "seconds": times,
        "median_s": statistics.median(times.values()),
        "worst_s": max(times.values()),
        "memory_mib": memory_mib() - before,
        "tenfold_trips_cost": many / few,
    }
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in sorted(times.items(), key=lambda item: -item[1]):
            print(f"{name:44} {1e3 * value:8.1f} ms")
        print(
            f"median {result['median_s']:.3f} s (at most {MEDIAN_S}), worst {result['worst_s']:.3f} s (at most {WORST_S})"
        )
        print(f"memory {result['memory_mib']:.0f} MiB above the start (at most {MEMORY_MIB:.0f})")
        print(f"ten times the trips cost {result['tenfold_trips_cost']:.2f} times as much (at most {GROWTH})")
    kept = (
        result["median_s"] <= MEDIAN_S
        and result["worst_s"] <= WORST_S
        and result["memory_mib"] <= MEMORY_MIB
        and result["tenfold_trips_cost"] <= GROWTH
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
