"""How fast the memory is and how large it grows, one JSON line a case.

    python benchmarks/bench_memory.py                         # recall from 1000 and 10 000, and the ledger
    python benchmarks/bench_memory.py --sizes 100000          # minutes: it is the writing that takes them

Recall times are through the shared store's server, as runs use it, with the time to embed the question
told apart.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memory_store.chroma import ExperienceStore, Where
from memory_store.embedding import Vectors, choose_embedder
from memory_store.experience import Experience, Kind, situation
from memory_store.ledger import CandidateRecord, Ledger, ModelCall, PlanRecord

OPERATORS = (
    *("matmul", "bmm", "softmax", "layernorm", "rmsnorm", "silu", "swiglu", "rope", "attention", "scan"),
    *("adamw", "lora", "transpose", "reduction"),
)
BOTTLENECKS = ("memory", "matmul", "vector", "scalar", "spill", "latency")
WORDS = (
    "widen tile free dimension hoist load out of loop fuse activation scale bias accumulate psum keep "
    "operand resident block for reuse transpose once double buffer partition moving stationary reduce "
    "spill recompute engine idle vector scalar gpsimd contiguous descriptor broadcast reorder split carry"
).split()


class TimedEmbedder:
    """Another embedder, with a clock on it."""

    def __init__(self, name: str) -> None:
        """The embedder of that name."""
        self._embedder = choose_embedder(name)
        self.name = self._embedder.name
        self.dimension = self._embedder.dimension
        self.spent_s = 0.0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed, and add the time to `spent_s`."""
        began = time.perf_counter()
        try:
            return self._embedder.embed(texts)
        finally:
            self.spent_s += time.perf_counter() - began


def made_up(number: int, rng: random.Random) -> Experience:
    """An experience that reads like one."""
    operator = rng.choice(OPERATORS)
    kind = rng.choice(list(Kind))
    return Experience(
        kind=kind,
        title=" ".join(rng.choices(WORDS, k=5)),
        description=f"{' '.join(rng.choices(WORDS, k=45))} {number}",
        slow_code="for i in affine_range(n):\n    t = load(x[i])\n" * 3,
        fast_code="t = load(x)\nfor i in affine_range(n):\n    use(t[i])\n" * 3,
        speedup=1.2 if kind is Kind.POSITIVE else 0.8,
        problem=f"{operator}_{rng.randrange(20)}",
        operator=operator,
        target="trn1",
        bottleneck=rng.choice(BOTTLENECKS),
        features=tuple(rng.sample(["loop-depth-2", "loop-depth-3", "psum", "masked", "reduction"], 2)),
        run_id=f"run-{rng.randrange(100)}",
        round=rng.randrange(16),
        created_at=f"2026-01-01T00:00:{number % 60:02d}+00:00",
        slow_kernel_id=f"{number:016x}",
        fast_kernel_id=f"{number + 1:016x}",
    )


def question(rng: random.Random) -> str:
    """A text to recall by, of the form that nodes ask with."""
    features = rng.sample(["loop-depth-2", "loop-depth-3", "psum", "masked", "reduction"], 2)
    return situation(
        rng.choice(OPERATORS), rng.choice(BOTTLENECKS), features, " ".join(rng.choices(WORDS, k=8))
    )


def bench_recall(size: int, embedder_name: str, queries: int) -> None:
    """Fill a store, then ask it in every way."""
    rng = random.Random(size)
    with tempfile.TemporaryDirectory() as folder:
        embedder = TimedEmbedder(embedder_name)
        with ExperienceStore.open(Path(folder) / "chroma", embedder, linger_s=0.5) as store:
            began = time.perf_counter()
            for start in range(0, size, 5000):
                store.add(made_up(number, rng) for number in range(start, min(start + 5000, size)))
            adding_s = time.perf_counter() - began
            one = made_up(size, rng)
            began = time.perf_counter()
            store.add([one])
            report(
                "add",
                size,
                per_s=size / adding_s,
                single_ms=1e3 * (time.perf_counter() - began),
                disk_mb=folder_mb(Path(folder)),
            )
            ids = [made_up(number, random.Random(1)).id for number in range(16)]
            cases: dict[str, Callable[[], Any]] = {
                "everything": lambda: store.query(question(rng), 16),
                "everything, positive": lambda: store.query(question(rng), 8, Where(kind=Kind.POSITIVE)),
                "family": lambda: store.query(question(rng), 16, Where(operator=rng.choice(OPERATORS))),
                "family, positive": lambda: store.query(
                    question(rng), 8, Where(operator=rng.choice(OPERATORS), kind=Kind.POSITIVE)
                ),
                "family, one problem": lambda: store.query(
                    question(rng), 16, Where(operator="bmm", problem=f"bmm_{rng.randrange(20)}")
                ),
                "16 by id": lambda: store.get(ids),
            }
            for name, ask in cases.items():
                ask()
                times = []
                for _ in range(queries):
                    embedder.spent_s = 0.0
                    began = time.perf_counter()
                    ask()
                    times.append(1e3 * (time.perf_counter() - began - embedder.spent_s))
                report(
                    f"recall: {name}",
                    size,
                    median_ms=statistics.median(times),
                    p95_ms=sorted(times)[int(0.95 * len(times))],
                )
        with ExperienceStore.open(Path(folder) / "chroma", embedder, linger_s=0.5) as store:
            embedder.spent_s = 0.0
            began = time.perf_counter()
            store.query(question(rng), 16)
            report(
                "recall: first after opening", size, ms=1e3 * (time.perf_counter() - began - embedder.spent_s)
            )


def bench_ledger(kernels: int) -> None:
    """A run of the paper's size: per kernel one plan's share, one call, one evaluation, one candidate."""
    rng = random.Random(0)
    body = [
        f"    tile_{i} = nl.load(lhs[i_{rng.randrange(9)} * {rng.choice([128, 512])} + i_p, i_f])"
        for i in range(90)
    ]
    system = "# Rules\n" + "\n".join(" ".join(rng.choices(WORDS, k=14)) for _ in range(120))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite")
        ledger.start_run("run", problems=["p"], settings={}, seed=0, target="trn1", backend="simulator")
        parent = ledger.put_kernel("baseline", dialect="nki")
        ledger.put_problem("run", "p", baseline_kernel_id=parent, baseline_latency_ms=1.0)
        began = time.perf_counter()
        for number in range(kernels):
            round_number, place = divmod(number, 144)
            lines = body.copy()
            for _ in range(12):
                lines[rng.randrange(len(lines))] = f"    t = nl.multiply(t, {rng.random():.6f})"
            source = "\n".join(lines)
            if number % 2 == 0:
                plan = " ".join(rng.choices(WORDS, k=80))
                ledger.put_plan(
                    PlanRecord(
                        run_id="run",
                        problem="p",
                        round=round_number,
                        parent_id=parent,
                        index=place,
                        plan={"title": "t", "steps": plan},
                    )
                )
                ledger.put_model_call(
                    ModelCall(
                        run_id="run",
                        key=f"planner/{number}",
                        role="planner",
                        model="m",
                        prompt=prompt(system, source),
                        answer=plan,
                        input_tokens=9000,
                    )
                )
            ledger.put_model_call(
                ModelCall(
                    run_id="run",
                    key=f"executor/{number}",
                    role="executor",
                    model="m",
                    prompt=prompt(system, source, plan),
                    answer=source,
                    reasoning=" ".join(rng.choices(WORDS, k=400)),
                    input_tokens=9000,
                )
            )
            kernel = ledger.put_kernel(source, dialect="nki")
            result = {
                "profile": {word: rng.random() for word in WORDS},
                "verification": {"seeds": [0, 21, 42]},
            }
            ledger.put_evaluation(
                kernel,
                problem="p",
                backend="simulator",
                settings_digest="d",
                stage="full",
                status="correct",
                latency_ms=1.0,
                result=result,
            )
            ledger.put_candidate(
                CandidateRecord(
                    run_id="run",
                    problem="p",
                    round=round_number,
                    slot=f"{place}",
                    kernel_id=kernel,
                    parent_id=parent,
                    status="correct",
                    latency_ms=1.0,
                )
            )
        writing_ms = 1e3 * (time.perf_counter() - began) / kernels
        began = time.perf_counter()
        ledger.spending("run", by=("role", "model", "round"))
        report(
            "ledger",
            kernels,
            ms_per_kernel=writing_ms,
            disk_mb=folder_mb(Path(folder)),
            spending_ms=1e3 * (time.perf_counter() - began),
        )
        ledger.close()


def prompt(system: str, source: str, plan: str = "") -> list[dict[str, Any]]:
    """A prompt that shares most of its text with others, as real ones do."""
    user = f"# Kernel\n{source}\n# Profile\nlatency 1.0\n# Plan\n{plan}\n"
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def folder_mb(folder: Path) -> float:
    """Size of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def report(case: str, size: int, **figures: float) -> None:
    """Print one case; `peak_mb` is this process's, the store's server not included."""
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"case": case, "size": size, **rounded, "peak_mb": round(peak_mb)}), flush=True)


def main() -> None:
    """Run the cases asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[1000, 10_000], help="experiences in the store"
    )
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--kernels", type=int, default=2304, help="kernels in the ledger; 0 leaves it out")
    arguments = parser.parse_args()
    for size in arguments.sizes:
        bench_recall(size, arguments.embedder, arguments.queries)
    if arguments.kernels:
        bench_ledger(arguments.kernels)


if __name__ == "__main__":
    main()
