"""How fast kernels are executed: one JSON line a problem.

For each kernel, at the paper's shape and with one seed: seconds to trace it, to plan and execute it, seconds of the NumPy
reference's own `forward` in the same process, their ratio (of wall time, and of processor time, which other work on the
machine disturbs less), and the peak of resident memory while the kernel ran, in MiB and as a multiple of inputs, outputs
and HBM scratch. Each problem has a process of its own.

    python benchmarks/bench_interpreter.py [PROBLEM ...] [--small] [--nkibench CHECKOUT] [--repeat N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

THREADS = "2"
os.environ.setdefault("OPENBLAS_NUM_THREADS", THREADS)
os.environ.setdefault("OMP_NUM_THREADS", THREADS)
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MIB = 1 << 20


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The highest resident memory seen while sampled."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.bytes = 0


@contextmanager
def sampled_peak() -> Iterator[Peak]:
    """Sample resident memory every two milliseconds."""
    peak, done = Peak(), threading.Event()

    def sample() -> None:
        while not done.wait(0.002):
            peak.bytes = max(peak.bytes, resident_bytes())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()
        peak.bytes = max(peak.bytes, resident_bytes())


def problems(checkout: str | None) -> dict[str, object]:
    """The benchmark's own problems, or those of an upstream checkout, by name."""
    if checkout is None:
        from nkibench.registry import load_problem, problem_names

        return {name: load_problem(name) for name in problem_names()}
    from nkibench.upstream import upstream_problems

    return {problem.name: problem for problem in upstream_problems(Path(checkout))}


def measure(name: str, checkout: str | None, small: bool, repeat: int, seed: int) -> dict[str, object]:
    """One problem's figures."""
    import numpy as np

    from tools.neuroncore.frontend import trace
    from tools.neuroncore.interpreter import compile_plan

    problem = problems(checkout)[name]
    reference = problem.reference(small=small)  # type: ignore[attr-defined]
    inputs = reference.inputs(seed)
    arguments = reference.to_nki(inputs)
    source = problem.baseline_source()  # type: ignore[attr-defined]

    start = time.perf_counter()
    kernel = trace(source, arguments)
    trace_s = time.perf_counter() - start

    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    scratch = {
        t for t in kernel.tensors() if t.kind == "local" and not t.buffer.on_chip and t.view_of is None
    }
    hbm_bytes = sum(a.nbytes for a in arrays) + sum(
        int(np.prod(t.shape, dtype=np.int64)) * t.dtype.itemsize for t in scratch
    )
    # BLAS starts its threads and takes its buffers at the first call; neither side should pay for that.
    np.matmul(np.ones((512, 512), np.float32), np.ones((512, 512), np.float32))
    execute_s, execute_cpu_s, plan_s, outputs = float("inf"), float("inf"), 0.0, []
    before = resident_bytes() - sum(a.nbytes for a in arrays)
    with sampled_peak() as peak:
        for _ in range(repeat):
            outputs = []
            start, start_cpu = time.perf_counter(), time.process_time()
            plan = compile_plan(kernel)
            plan_s = time.perf_counter() - start
            outputs = plan.run(arguments)
            execute_s = min(execute_s, time.perf_counter() - start)
            execute_cpu_s = min(execute_cpu_s, time.process_time() - start_cpu)
    reference_s, reference_cpu_s = float("inf"), float("inf")
    for _ in range(repeat):
        expected = []
        start, start_cpu = time.perf_counter(), time.process_time()
        expected = reference.forward(inputs)
        reference_s = min(reference_s, time.perf_counter() - start)
        reference_cpu_s = min(reference_cpu_s, time.process_time() - start_cpu)
    found = reference.from_nki(outputs, expected)
    worst = max(
        float(np.linalg.norm((f - e).astype(np.float64)) / np.linalg.norm(e.astype(np.float64)))
        for f, e in zip(found, expected, strict=True)
    )
    return {
        "problem": name,
        "trace_s": round(trace_s, 3),
        "plan_s": round(plan_s, 3),
        "execute_s": round(execute_s, 3),
        "reference_s": round(reference_s, 3),
        "ratio": round(execute_s / reference_s, 3),
        "cpu_ratio": round(execute_cpu_s / reference_cpu_s, 3),
        "peak_mib": round((peak.bytes - before) / MIB, 1),
        "peak_ratio": round((peak.bytes - before) / hbm_bytes, 2),
        "relative_l2": float(f"{worst:.2e}"),
    }


def main() -> None:
    """Measure each problem in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*")
    parser.add_argument(
        "--nkibench", help="a checkout of the original NKIBench, whose kernels are run instead"
    )
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument("--repeat", type=int, default=1, help="the best of so many runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process (for profilers)")
    options = parser.parse_args()
    known = problems(options.nkibench)
    names = [n for n in known if not options.problems or any(n.startswith(p) for p in options.problems)]
    ratios = []
    for name in names:
        if options.here:
            row = measure(name, options.nkibench, options.small, options.repeat, options.seed)
            print(json.dumps(row), flush=True)
            continue
        command = [
            sys.executable,
            __file__,
            name,
            "--here",
            "--repeat",
            str(options.repeat),
            "--seed",
            str(options.seed),
        ]
        command += ["--small"] if options.small else []
        command += ["--nkibench", options.nkibench] if options.nkibench else []
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [
            line
            for line in done.stdout.splitlines()
            if line.startswith("{") and json.loads(line)["problem"] == name
        ]
        if done.returncode or not lines:
            print(json.dumps({"problem": name, "error": done.stderr.strip().splitlines()[-1:]}), flush=True)
            continue
        print(lines[0], flush=True)
        ratios.append(json.loads(lines[0])["ratio"])
    if ratios:
        print(
            json.dumps({"median_ratio": median(ratios), "worst_ratio": max(ratios), "problems": len(ratios)})
        )


if __name__ == "__main__":
    main()
