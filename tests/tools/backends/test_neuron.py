"""The contract with AWS's tools, held against stand-ins that behave as documented, failures and hangs included."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nkibench import user_problem
from tools.backends import neuron
from tools.backends.neuron import BackendUnavailable, choose_backend, inspect_host, parse_summary
from tools.evaluation import EvaluationSettings, Evaluator, Stage, Status
from tools.kernel import Kernel
from tools.worker import Fault

from .stand_in import NeuronStandIn

REFERENCE = """
import numpy as np
N = 256

def get_inputs():
    return [np.random.normal(size=(N, N)).astype(np.float32), 2.0]

def forward(x, factor):
    return x * factor
"""

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x, factor):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.multiply(tile, {factor}))
    {extra}
    return out
"""


def kernel(extra: str = "pass", factor: str = "factor") -> Kernel:
    return Kernel.from_source(KERNEL.format(extra=extra, factor=factor))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NeuronStandIn:
    stand_in = NeuronStandIn(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    monkeypatch.setattr(neuron, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(sys, "path", [str(stand_in.packages), *sys.path])
    monkeypatch.setenv("PATH", f"{stand_in.tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "3-4")
    monkeypatch.setenv("SECRET_API_KEY", "x")
    return stand_in


@pytest.fixture
def evaluator(host: NeuronStandIn) -> Iterator[Evaluator]:
    settings = EvaluationSettings(backend="neuron", seeds=(0, 1), timeout_s=20)
    with Evaluator(settings) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def problem():
    return user_problem(REFERENCE, kernel().source, measure=False)


def test_a_right_kernel_is_compiled_run_and_measured(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    result = evaluator.evaluate(kernel(), problem)
    assert result.status is Status.correct, result.error
    assert (result.backend, result.profile.backend) == ("neuron", "neuron")
    assert result.latency_ms == pytest.approx(0.5)
    assert result.profile.hbm_read_bytes == 262144
    assert result.profile.spill_save_bytes == 0, "a field that the summary lacks counts as zero"
    assert result.verification.seeds == [0, 1]


def test_the_compiler_gets_the_benchmarks_flags_one_core_and_no_secret(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    evaluator.evaluate(kernel(), problem, Stage.profile)
    launch = host.launches()[0]
    assert launch["options"] == "--disable-dge --logical-nc-config=1"
    assert launch["flags"] == "--auto-cast=none"
    assert launch["count"] == "1"
    assert launch["cores"] in ("3", "4")
    assert "SECRET_API_KEY" not in launch["environment"]


def test_a_kernel_is_launched_with_the_grid_that_its_file_says(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    sizes = "TILES, nl.nc(2) * 2"
    gridded = Kernel.from_source(f"{kernel().source}\nTILES = 3\nlaunched = kernel[{sizes}]\n")
    assert evaluator.evaluate(gridded, problem).status is Status.correct
    assert host.launches()[0]["grid"] == [3, 4]


def test_a_steady_round_is_measured_once(evaluator: Evaluator, host: NeuronStandIn, problem) -> None:
    evaluator.evaluate(kernel(), problem, Stage.profile)
    calls = host.profiler_calls()
    captures = [call for call in calls if call[0] == "capture"]
    views = [call for call in calls if call[0] == "view"]
    assert len(captures) == 1 + neuron.WARM_UPS + neuron.RUNS
    assert views[0][:3] == ["view", "--output-format", "summary-json"]


def test_an_unsteady_round_is_repeated_and_the_steadiest_counts(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    # The first capture gives the counters. In the first round one run is off by 20 %, in the second by half a percent.
    first = [5e-4] * (1 + neuron.WARM_UPS) + [5e-4] * 9 + [6e-4]
    second = [4e-4] * neuron.WARM_UPS + [4e-4] * 9 + [4.02e-4]
    host.behave(total_time=first + second + [9e-4] * 1000)
    result = evaluator.evaluate(kernel(), problem, Stage.profile)
    assert result.latency_ms == pytest.approx(0.4002)
    assert result.profile.latency_band_ms == pytest.approx(0.002)


def test_a_wrong_kernel_is_incorrect(evaluator: Evaluator, problem) -> None:
    result = evaluator.evaluate(kernel(factor="3.0"), problem)
    assert result.status is Status.incorrect
    assert result.verification.failure.seed == 0


def test_a_compile_error_is_the_compilers(evaluator: Evaluator, problem) -> None:
    result = evaluator.evaluate(kernel("nl.fail_to_compile('partition dimension 256 exceeds 128')"), problem)
    assert (result.status, result.error.name) == (Status.compile_error, "neuronx_cc")
    assert "exceeds 128" in result.error.message
    assert result.error.line == 10


def test_a_runtime_error_is_the_runtimes(evaluator: Evaluator, problem) -> None:
    result = evaluator.evaluate(kernel("nl.fail_to_run('NRT_EXEC_COMPLETED_WITH_ERR')"), problem)
    assert (result.status, result.error.name) == (Status.runtime_error, "neuron_runtime")


@pytest.mark.parametrize("verb", ["capture", "view"])
def test_a_profiler_error_is_the_profilers(
    evaluator: Evaluator, host: NeuronStandIn, problem, verb: str
) -> None:
    host.behave(**{verb: "fail"})
    result = evaluator.evaluate(kernel(), problem)
    assert (result.status, result.error.name) == (Status.runtime_error, "neuron_profile")
    assert "cannot attach" in result.error.message


def test_a_summary_without_a_time_is_no_measurement(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    host.behave(view="garbage")
    result = evaluator.evaluate(kernel(), problem)
    assert (result.status, result.error.name) == (Status.runtime_error, "neuron_profile")
    assert result.latency_ms is None


def test_a_kernel_that_hangs_on_the_device_is_killed_with_its_children(
    host: NeuronStandIn, problem, tmp_path: Path
) -> None:
    settings = EvaluationSettings(backend="neuron", seeds=(0,), timeout_s=3)
    with Evaluator(settings) as evaluator:
        started = time.monotonic()
        result = evaluator.evaluate(kernel("nl.hang()"), problem)
        assert result.status is Status.timeout
        assert time.monotonic() - started < 10
        pid = host.launches()[0]["pid"]
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and (alive(pid) or sleepers_in(pid)):
        time.sleep(0.01)
    assert not alive(pid) and not sleepers_in(pid)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def sleepers_in(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(stat.parent.name))
    return found


def test_a_profiler_that_hangs_meets_the_deadline(host: NeuronStandIn, problem) -> None:
    host.behave(view="hang")
    with Evaluator(EvaluationSettings(backend="neuron", seeds=(0,), timeout_s=2)) as evaluator:
        result = evaluator.evaluate(kernel(), problem)
    assert result.status is Status.timeout


def test_writing_into_an_argument_is_seen(evaluator: Evaluator, problem) -> None:
    result = evaluator.evaluate(kernel("nl.scribble(x)"), problem)
    assert (result.status, result.error.name) == (Status.incorrect, "inputs_unchanged")


def test_types_below_fp32_are_refused_by_name(evaluator: Evaluator, problem) -> None:
    result = evaluator.evaluate(kernel("low = nl.ndarray((1, 1), dtype=nl.bfloat16)"), problem)
    assert (result.status, result.error.name) == (Status.incorrect, "precision")


async def test_each_evaluation_has_a_core_to_itself(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    await asyncio.gather(*(evaluator.aevaluate(kernel(), problem, Stage.profile) for _ in range(4)))
    assert {launch["cores"] for launch in host.launches()} == {"3", "4"}


LATER_KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, factor):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=None, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    {extra}
    return out
"""


def test_kernels_of_the_later_package_run_through_torch(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    host.install_torch()
    result = evaluator.evaluate(Kernel.from_source(LATER_KERNEL.format(extra="pass")), problem)
    assert result.status is Status.correct, result.error
    assert result.latency_ms == pytest.approx(0.5)
    assert any(str(call[2]).endswith("MODULE_1/model.neff") for call in host.profiler_calls())
    failing = LATER_KERNEL.format(extra="nisa.fail_to_run('NRT_TIMEOUT')")
    result = evaluator.evaluate(Kernel.from_source(failing), problem)
    assert (result.status, result.error.name) == (Status.runtime_error, "neuron_runtime")


def test_the_later_package_without_torch_is_said_to_be_missing(
    evaluator: Evaluator, host: NeuronStandIn, problem
) -> None:
    with pytest.raises(BackendUnavailable, match="nki"):
        evaluator.evaluate(Kernel.from_source(LATER_KERNEL.format(extra="pass")), problem)


def test_artifacts_are_kept_on_request(host: NeuronStandIn, problem, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with Evaluator(EvaluationSettings(backend="neuron", seeds=(0,), artifacts=kept)) as evaluator:
        evaluator.evaluate(kernel(), problem, Stage.profile)
    names = {path.name for path in (kept / kernel().id).iterdir()}
    assert {"kernel.py", "kernel.neff", "first.ntff", "measured.ntff"} <= names


def test_without_a_device_nothing_is_measured_and_nothing_simulated(
    host: NeuronStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dev" / "neuron0").unlink()
    assert choose_backend("auto") == "simulator"
    with pytest.raises(BackendUnavailable, match="no Neuron device"):
        choose_backend("neuron")
    with pytest.raises(BackendUnavailable):
        Evaluator(EvaluationSettings(backend="neuron"))


def test_pypis_placeholder_is_not_a_compiler(host: NeuronStandIn) -> None:
    assert inspect_host().usable
    host.install("neuronx-cc", "1.0.post1")
    with pytest.raises(BackendUnavailable, match="placeholder"):
        choose_backend("neuron")


def test_auto_takes_a_device_that_is_there(host: NeuronStandIn) -> None:
    assert choose_backend("auto") == "neuron"
    assert choose_backend("simulator") == "simulator"


def test_a_device_of_another_kind_is_not_measured(
    host: NeuronStandIn, problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault of the worker, as the evaluator sees it.
    monkeypatch.setattr(neuron, "host_target", lambda: "trn2")
    with pytest.raises(Fault) as caught:
        neuron._check_target("trn1")
    assert caught.value.status == "unavailable"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"1": {}}', '{"1": {"total_time": "fast"}}', "{broken"])
def test_only_a_summary_is_a_summary(text: str) -> None:
    with pytest.raises(Fault):
        parse_summary(text)


def test_a_summary_may_follow_progress_messages() -> None:
    assert parse_summary('loading...\n{"3": {"total_time": 0.1}}')["total_time"] == 0.1
