"""A small run as the ledger of a real one would hold it, for whatever reads ledgers."""

import pytest

from memory_store.experience import Experience, Kind
from memory_store.home import Home
from memory_store.ledger import CandidateRecord, Direction, Ledger, ModelCall, PlanRecord, RunStatus
from nkibench.registry import load_problem
from nkibench.roofline import percent_of_peak
from nodes.context import RunContext

RUN = "run-of-silu"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    """A home of its own, which is also the one the environment names."""
    monkeypatch.setenv("ACCELOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ACCELOPT_POSTGRES_URL", raising=False)
    return Home(root=tmp_path / "home").prepare()


@pytest.fixture
def recorded(home):
    """The ledger of a run of two rounds on silu: two kernels helped, one failed, one was no use."""
    with Ledger(home.ledger_url) as ledger:
        _write(ledger)
        yield ledger


def _write(ledger: Ledger) -> None:
    problem = load_problem("silu")
    work = problem.work()
    baseline = problem.baseline_source()
    settings = RunContext.preset("quick", iterations=2).model_dump(mode="json")
    ledger.start_run(RUN, problems=["silu"], settings=settings, seed=0, target="trn1", backend="simulator")
    period = ledger.begin_period(RUN)
    kernels = [ledger.put_kernel(baseline + f"\n# version {version}\n") for version in range(4)]
    latencies = [2.0, 1.6, 1.25, 2.1]
    ledger.put_problem(
        RUN,
        "silu",
        definition={"name": "silu"},
        baseline_kernel_id=kernels[0],
        baseline_latency_ms=latencies[0],
    )
    for kernel, latency in zip(kernels, latencies, strict=True):
        ledger.put_evaluation(
            kernel,
            problem="silu",
            backend="simulator",
            settings_digest="d",
            stage="promote",
            status="correct",
            latency_ms=latency,
            result=_evaluation(kernel, latency),
        )

    def candidate(round: int, slot: str, kernel: int | None, parent: int | None, **more) -> None:
        latency = latencies[kernel] if kernel is not None else None
        record = CandidateRecord(
            run_id=RUN,
            problem="silu",
            round=round,
            slot=slot,
            kernel_id=kernels[kernel] if kernel is not None else None,
            parent_id=kernels[parent] if parent is not None else None,
            latency_ms=latency,
            speedup=latencies[parent] / latency if latency and parent is not None else None,
            percent_of_peak=percent_of_peak(work, latency, "trn1") if latency else None,
            **{"status": "correct", **more},
        )
        ledger.put_candidate(record)

    for round, parent, index, title in (
        (1, 0, 0, "Widen <tiles>"),
        (1, 0, 1, "Split tiles"),
        (2, 1, 0, "Fuse silu"),
    ):
        ledger.put_plan(
            PlanRecord(
                run_id=RUN,
                problem="silu",
                round=round,
                parent_id=kernels[parent],
                index=index,
                plan={"id": f"p{round}{index}", "title": title, "change": f"{title}, one step."},
            )
        )
    candidate(0, "baseline", 0, None, selected=True)
    candidate(1, "0.0.0", 1, 0, plan_index=0, selected=True)
    candidate(1, "0.1.0", 3, 0, plan_index=1)
    candidate(1, "0.1.1", None, 0, plan_index=1, status="compile_error", error="line 3: no such API")
    candidate(2, "0.0.0", 2, 1, plan_index=0, selected=True)
    for key, role, tokens in (("a", "planner", 900), ("b", "executor", 1200), ("c", "executor", 1300)):
        ledger.put_model_call(
            ModelCall(
                run_id=RUN,
                key=key,
                role=role,
                model="offline",
                problem="silu",
                round=1,
                input_tokens=tokens,
                output_tokens=100,
                usd=0.001,
                latency_s=0.5,
            )
        )
    experience = Experience(
        kind=Kind.POSITIVE,
        title="**Widen tiles**",
        description="Wider tiles amortise the fixed cost of a transfer.",
        slow_code="for tile: load 512",
        fast_code="for tile: load 2048",
        speedup=1.25,
        problem="silu",
        operator="elementwise",
        target="trn1",
        bottleneck="memory",
        run_id=RUN,
        round=1,
    )
    ledger.put_experience_list(RUN, "silu", 1, Direction.WRITTEN, [experience])
    ledger.set_best(RUN, "silu", kernel_id=kernels[2], latency_ms=latencies[2], round=2, rounds_done=2)
    ledger.touch_period(period, 1.0)
    ledger.set_run_status(RUN, RunStatus.FINISHED)


def _evaluation(kernel: str, latency_ms: float) -> dict:
    traffic = 117_440_512
    counters = {
        "hbm_read_bytes": traffic,
        "hbm_write_bytes": traffic,
        "psum_read_bytes": 0,
        "psum_write_bytes": 0,
        "sbuf_read_bytes": traffic,
        "sbuf_write_bytes": traffic,
    }
    return {
        "kernel_id": kernel,
        "problem": "silu",
        "target": "trn1",
        "backend": "simulator",
        "status": "correct",
        "latency_ms": latency_ms,
        "profile": {"backend": "simulator", "target": "trn1", "latency_ms": latency_ms, **counters},
        "bounds": {
            "total_ms": latency_ms,
            "memory_bound_ms": 0.8 * latency_ms,
            "memory_bound_ideal_ms": 0.6,
            "memory_bound_no_reloads_ms": 0.53,
            "compute_bound_ms": 0.7 * latency_ms,
            "compute_bound_ideal_ms": 0.0,
            "compute_bound_useful_ms": 0.0,
            "engine_busy_ms": {"scalar": 0.7 * latency_ms, "vector": 0.3 * latency_ms, "dma": 0.8},
        },
    }
