"""A paper-sized search with an instant model and a stand-in evaluator: what orchestration itself costs.

    make bench-search [ARGS="--iterations 16"]

Prints one JSON document: time a kernel, time of the first and last rounds, sizes on disk, peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graph.run import optimize  # noqa: E402
from memory_store.home import Home  # noqa: E402
from nodes.context import RunContext  # noqa: E402
from nodes.resources import RESOURCES  # noqa: E402
from tests.graph.stand_in import StandIn  # noqa: E402

MOST = {"ms_per_kernel": 20.0, "checkpoints_mb": 20.0, "ledger_mb": 50.0, "peak_memory_mb": 1024.0}


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("beam", "plans", "samples", "iterations"):
        parser.add_argument(f"--{name}", type=int, default=RunContext.model_fields[name].default)
    chosen = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(RunContext(**chosen), Home(root=Path(folder)))
    figures["passed"] = all(figures[name] <= most for name, most in MOST.items())
    print(json.dumps(figures, indent=2))
    return 0 if figures["passed"] else 1


def measure(context: RunContext, home: Home) -> dict[str, float]:
    """The figures of one search."""
    stand_in = StandIn(home)
    RESOURCES.set(stand_in.resources())
    rounds: list[float] = []

    def note(event: dict[str, object]) -> None:
        if event["event"] == "round_finished":
            rounds.append(time.monotonic())

    began = time.monotonic()
    result = optimize(stand_in.problem, context, on_event=note)
    wall_s = time.monotonic() - began
    lasted = [after - before for before, after in zip([began, *rounds], rounds, strict=False)]

    def size_mb(pattern: str) -> float:
        return round(sum(file.stat().st_size for file in home.root.glob(pattern)) / 2**20, 2)

    return {
        "kernels": result.kernels_evaluated,
        "wall_s": round(wall_s, 1),
        "ms_per_kernel": round(1000 * wall_s / result.kernels_evaluated, 2),
        "third_round_s": round(lasted[min(2, len(lasted) - 1)], 2),
        "last_round_s": round(lasted[-1], 2),
        "checkpoints_mb": size_mb("checkpoints.sqlite*"),
        "ledger_mb": size_mb("ledger.sqlite*"),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
