"""How long a verdict takes, against the time of the NumPy reference for one seed. One JSON line a problem.

    make bench-evaluate                                   # all problems at the paper's shapes: minutes
    make bench-evaluate ARGS="silu bmm --small"           # some, at the small shapes
    make bench-evaluate ARGS="--endurance 500"            # many kernels in a row: what is left behind

A reference's time is `get_inputs` and `forward` in a process of its own, as an evaluation would have to run them. Warm
means that the reference results are on disk already, as they are for every kernel of a search but the first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nkibench import Problem, load_problem, problem_names  # noqa: E402
from tools.evaluation import EvaluationSettings, Evaluator, Stage, Status  # noqa: E402
from tools.kernel import Kernel  # noqa: E402

MOST = {
    "screen_ratio": 2.0,
    "promote_ratio": 15.0,
    "reject_s": 0.5,
    "compile_error_s": 0.5,
    "worker_start_ms": 50.0,
}

REJECTED = "import os\n"
BROKEN = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(*arguments):
    return nl.no_such_function(arguments[0])
"""


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", help="all by default")
    parser.add_argument("--small", action="store_true", help="the problems' small shapes")
    parser.add_argument(
        "--endurance", type=int, default=0, metavar="N", help="evaluate N kernels in a row instead"
    )
    chosen = parser.parse_args()
    names = chosen.problems or problem_names()
    passed = True
    with tempfile.TemporaryDirectory() as cache:
        settings = EvaluationSettings(small=chosen.small, cache=Path(cache))
        with Evaluator(settings) as evaluator:
            evaluator.pool.start()
            if chosen.endurance:
                figures = endure(evaluator, load_problem(names[0]), chosen.endurance)
                print(json.dumps(figures), flush=True)
                return 0 if figures["passed"] else 1
            for name in names:
                figures = measure(evaluator, load_problem(name))
                passed = passed and bool(figures["passed"])
                print(json.dumps(figures), flush=True)
    return 0 if passed else 1


def measure(evaluator: Evaluator, problem: Problem) -> dict[str, object]:
    """All figures of one problem."""
    kernel = Kernel.from_source(problem.baseline_source())

    def seconds(stage: Stage, source: str | None = None, expect: Status = Status.correct) -> float:
        subject = kernel if source is None else Kernel.from_source(source)
        found = evaluator.evaluate(subject, problem, stage)
        assert found.status is expect, f"{problem.name}: {found.status} {found.error}"
        return found.wall_s

    reference_s = reference_time(evaluator, problem)
    figures: dict[str, float] = {
        "reference_s": reference_s,
        "profile_s": seconds(Stage.profile, expect=Status.profiled),
        "screen_cold_s": seconds(Stage.screen),
        "screen_s": min(seconds(Stage.screen) for _ in range(2)),
        "promote_cold_s": seconds(Stage.promote),
        "promote_s": seconds(Stage.promote),
        "reject_s": seconds(Stage.promote, REJECTED, Status.rejected),
        "compile_error_s": seconds(Stage.promote, BROKEN, Status.compile_error),
        "worker_start_ms": worker_start_ms(evaluator),
    }
    figures["screen_ratio"] = figures["screen_s"] / reference_s
    figures["promote_ratio"] = figures["promote_s"] / reference_s
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    runs = len(evaluator.settings.seeds) + len(problem.regimes)
    passed = all(figures[name] <= most for name, most in MOST.items())
    return {"problem": problem.name, "runs_of_promotion": runs, **rounded, "passed": passed}


def reference_time(evaluator: Evaluator, problem: Problem) -> float:
    """Seconds to draw one seed's inputs and to compute what is right for them; the better of two."""
    constants = problem.sizes(evaluator.settings.small)
    request = {"constants": constants, "name": problem.name}

    def once() -> float:
        with evaluator.pool.lease("tools.reference_service", timeout_s=600, memory_bytes=16 << 30) as worker:
            worker.call("load", request, tail=problem.reference_source().encode())
            started = time.monotonic()
            worker.call("draw", {"seed": 0, "regime": "normal"})
            worker.call("forward")
            return time.monotonic() - started

    return min(once() for _ in range(2))


def worker_start_ms(evaluator: Evaluator) -> float:
    """Milliseconds from asking for a worker to its first answer, median of eleven."""

    def once() -> float:
        started = time.monotonic()
        with evaluator.pool.lease("tools.kernel_service", timeout_s=60, memory_bytes=1 << 30) as worker:
            worker.call("confinement")
        return 1e3 * (time.monotonic() - started)

    return statistics.median(once() for _ in range(11))


def endure(evaluator: Evaluator, problem: Problem, count: int) -> dict[str, object]:
    """Evaluates different kernels in a row, good and bad, and counts what they leave behind."""
    base = problem.baseline_source()
    spoiled: tuple[Callable[[int], str], ...] = (
        lambda number: f"{base}\n# {number}\n",
        lambda number: f"{base}\n# {number}\n",
        lambda number: f"{BROKEN}\n# {number}\n",
        lambda number: f"{REJECTED}# {number}\n",
        lambda number: base.replace("    return out", f"    return out, {number}"),
    )

    def run(numbers: range) -> None:
        for number in numbers:
            evaluator.evaluate(
                Kernel.from_source(spoiled[number % len(spoiled)](number)), problem, Stage.screen
            )

    run(range(50))
    before = left_behind()
    run(range(50, count))
    time.sleep(0.5)
    after = left_behind()
    growth = {name: after[name] - before[name] for name in after}
    passed = growth["files"] <= 0 and growth["processes"] <= 0 and growth["memory_mb"] < 16
    return {"problem": problem.name, "kernels": count, "growth": growth, "passed": passed}


def left_behind() -> dict[str, float]:
    """Open files, child processes and resident memory of this process; its peak so far."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * resource.getpagesize()
    processes = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        processes += fields[0] != "Z" and is_descendant(int(status.parent.name))
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "processes": processes,
        "memory_mb": round(resident / 2**20, 1),
    }


def is_descendant(pid: int) -> bool:
    """Whether a process comes from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


if __name__ == "__main__":
    sys.exit(main())
