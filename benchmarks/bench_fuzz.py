"""Throws kernels changed at random at the evaluation, for as long as asked, and counts the verdicts.

    make bench-fuzz ARGS="--minutes 10 --seed 1"

Every kernel must get a typed verdict within its time. Verdicts named internal_error or worker_died are typed too, but
point at a defect of ours; their kernels are printed, shortest first, one JSON line each.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nkibench import load_problem  # noqa: E402
from tests.cheats.mutation import mutate  # noqa: E402
from tests.cheats.test_cheats import HONEST  # noqa: E402
from tools.evaluation import EvaluationSettings, Evaluator  # noqa: E402
from tools.kernel import Kernel  # noqa: E402

DEFECTS = ("internal_error", "worker_died")
SLOWEST_S = 30.0


def main() -> int:
    """Fuzz, then report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=5, help="how many of each kind of defect to print")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    settings = EvaluationSettings(
        small=True, regimes=False, seeds=(0,), compile_timeout_s=5.0, timeout_s=10.0, memory_mb=1024
    )
    verdicts: collections.Counter[str] = collections.Counter()
    defects: dict[str, list[str]] = collections.defaultdict(list)
    slowest = 0.0
    deadline = time.monotonic() + 60 * chosen.minutes
    with Evaluator(settings) as evaluator:
        while time.monotonic() < deadline:
            case = rng.choice(HONEST)
            source = mutate(case.source, rng, rng.randint(1, 4))
            found = evaluator.evaluate(Kernel.from_source(source), load_problem(case.problem))
            slowest = max(slowest, found.wall_s)
            verdicts[f"{found.status} {found.error.name if found.error else ''}".strip()] += 1
            if found.error is not None and found.error.name in DEFECTS:
                defects[found.error.message].append(source)
    for message, sources in defects.items():
        for source in sorted(sources, key=len)[: chosen.shown]:
            print(json.dumps({"defect": message, "times": len(sources), "source": source}), flush=True)
    total = sum(verdicts.values())
    passed = not defects and slowest < SLOWEST_S
    figures = {
        "kernels": total,
        "slowest_s": round(slowest, 2),
        "verdicts": dict(verdicts.most_common()),
        "passed": passed,
    }
    print(json.dumps(figures), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
