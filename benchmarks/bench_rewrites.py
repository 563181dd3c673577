"""How far the deterministic rewrites alone get, one JSON line a problem and target.

    python benchmarks/bench_rewrites.py                                  # every problem on trn1, beam 1
    python benchmarks/bench_rewrites.py --problems silu mamba --beam 3 --target trn1 trn2

A beam search over every applicable rewrite, judged by the simulator's latency at the paper's shapes; the steps of the best
kernel are then repeated on the small shape and their results compared with the baseline's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nkibench import load_problem, problem_names
from tools.neuroncore import ArraySpec, estimate, interpret, trace
from tools.neuroncore.ir import Kernel, fingerprint
from tools.rewrites import REWRITES, RewriteError, print_kernel


@dataclasses.dataclass
class Found:
    """A kernel of the search."""

    kernel: Kernel
    latency_ms: float
    steps: tuple[tuple[str, str], ...] = ()


def arguments(name: str, small: bool) -> list[Any]:
    """What a problem's kernel is called with."""
    reference = load_problem(name).reference(small=small)
    return reference.to_nki(reference.inputs(0))


def specs(args: Sequence[Any]) -> list[Any]:
    """The same arguments by shape and type only."""
    return [ArraySpec(a.shape, str(a.dtype)) if isinstance(a, np.ndarray) else a for a in args]


def search(baseline: Kernel, target: str, beam: int, depth: int, seconds: float) -> tuple[Found, int]:
    """The fastest kernel that a beam search finds, and how many kernels it looked at."""
    frontier = [Found(baseline, estimate(baseline, target).latency_ms)]
    best, seen, looked_at = frontier[0], {fingerprint(baseline)}, 0
    deadline = time.monotonic() + seconds
    for _ in range(depth):
        children = []
        for parent in frontier:
            for rewrite in REWRITES:
                for option in rewrite.candidates(parent.kernel):
                    try:
                        kernel = rewrite.apply(parent.kernel, option)
                    except RewriteError:
                        continue
                    key = fingerprint(kernel)
                    if key in seen:
                        continue
                    seen.add(key)
                    looked_at += 1
                    step = (rewrite.name, option.describe())
                    children.append(Found(kernel, estimate(kernel, target).latency_ms, (*parent.steps, step)))
                if time.monotonic() > deadline:
                    break
        frontier = sorted(children, key=lambda child: child.latency_ms)[:beam]
        if not frontier or time.monotonic() > deadline or frontier[0].latency_ms > best.latency_ms * 1.02:
            break
        best = min(best, frontier[0], key=lambda found: found.latency_ms)
    return best, looked_at


def error_on_small_shape(name: str, target: str, steps: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Relative L2 difference after those of the steps that exist for the small shape, and how many those are."""
    args = arguments(name, small=True)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    baseline = trace(load_problem(name).baseline_source(), args, target=target)
    kernel, done = baseline, 0
    for rewrite_name, sentence in steps:
        rewrite = next(r for r in REWRITES if r.name == rewrite_name)
        for option in rewrite.candidates(kernel):
            if option.describe() == sentence:
                try:
                    kernel, done = rewrite.apply(kernel, option), done + 1
                except RewriteError:
                    pass
                break
    worst = 0.0
    for mine, theirs in zip(interpret(kernel, arrays), interpret(baseline, arrays), strict=True):
        difference = np.linalg.norm(mine.astype(np.float64) - theirs.astype(np.float64))
        worst = max(worst, float(difference / np.linalg.norm(theirs.astype(np.float64))))
    return worst, done


def main() -> None:
    """Search, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", default=problem_names())
    parser.add_argument("--target", nargs="+", default=["trn1"], choices=["trn1", "trn2"])
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each problem and target")
    parser.add_argument("--print-kernels", action="store_true", help="the best kernels' source, too")
    options = parser.parse_args()
    for target in options.target:
        for name in options.problems:
            started = time.monotonic()
            baseline = trace(
                load_problem(name).baseline_source(), specs(arguments(name, small=False)), target=target
            )
            best, looked_at = search(baseline, target, options.beam, options.depth, options.seconds)
            before = estimate(baseline, target).latency_ms
            error, repeated = error_on_small_shape(name, target, best.steps)
            line: dict[str, Any] = {
                "problem": name,
                "target": target,
                "baseline_ms": round(before, 4),
                "best_ms": round(best.latency_ms, 4),
                "speedup": round(before / best.latency_ms, 3),
                "kernels": looked_at,
                "steps": [sentence for _, sentence in best.steps],
                "steps_on_small_shape": repeated,
                "relative_error": error,
                "wall_s": round(time.monotonic() - started, 1),
            }
            if options.print_kernels:
                line["source"] = print_kernel(best.kernel)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
