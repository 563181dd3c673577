"""From a text to a verdict: every text gets one, in time, and nothing it does reaches the caller."""

import asyncio
import io
import json
import math
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nkibench import InvalidReference, Problem, load_problem, user_problem
from nkibench.regime import Regime
from tools.backends.simulator import SimulatedKernel
from tools.evaluation import Check, Evaluation, EvaluationSettings, Evaluator, Stage, Status
from tools.evaluation.output_memory import OutputMemory
from tools.evaluation.references import ResultStore
from tools.kernel import Kernel
from tools.verification import Expected
from tools.worker import Fault

SILU = load_problem("silu")
BASELINE = SILU.baseline_source()
SETTINGS = EvaluationSettings(small=True, memory_mb=2048)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(SETTINGS) as evaluator:
        yield evaluator


def sharing(evaluator: Evaluator, **changes: object) -> Evaluator:
    """Another evaluator on the same workers."""
    return Evaluator(SETTINGS.model_copy(update=changes), evaluator.pool)


def evaluate(
    evaluator: Evaluator, source: str, problem: Problem = SILU, stage: Stage | None = None
) -> Evaluation:
    return evaluator.evaluate(Kernel.from_source(source), problem, stage)


def test_a_right_kernel_is_correct_on_every_seed_and_regime(evaluator: Evaluator) -> None:
    found = evaluate(evaluator, BASELINE)
    assert found.status is Status.correct and found.error is None
    assert found.verification.seeds == [0, 21, 42, 63, 84]
    assert set(found.verification.regimes) == set(SILU.regimes)
    assert len(found.verification.runs) == 5 + len(SILU.regimes) - 1
    assert found.verification.worst_relative_l2 < SILU.tolerance
    assert found.latency_ms == found.profile.latency_ms > 0
    assert 0 < found.percent_of_peak < 100
    assert found.bounds.total_ms == pytest.approx(found.latency_ms, rel=0.2)
    assert found.profile.backend == found.backend == "simulator"


def test_an_evaluation_survives_json(evaluator: Evaluator) -> None:
    for source in (BASELINE, BASELINE.replace("1.0)", "1.1)"), "x"):
        found = evaluate(evaluator, source, stage=Stage.screen)
        assert Evaluation.model_validate_json(found.model_dump_json()) == found


def test_an_error_of_nan_survives_json(evaluator: Evaluator) -> None:
    found = evaluate(
        evaluator, BASELINE.replace("for i in nl.affine_range(rows // tile_rows)", "for i in range(1)")
    )
    assert found.verification.failure.check is Check.written
    document = found.model_dump(mode="json")
    assert document["verification"]["failure"]["got"] == "nan"
    again = Evaluation.model_validate(json.loads(json.dumps(document, allow_nan=False)))
    assert math.isnan(again.verification.failure.got)
    assert again.verification.worst_relative_l2 == math.inf


def test_stages_go_as_far_as_asked(evaluator: Evaluator) -> None:
    profiled = evaluate(evaluator, BASELINE, stage=Stage.profile)
    assert profiled.status is Status.profiled and profiled.verification is None and profiled.latency_ms
    screened = evaluate(evaluator, BASELINE, stage=Stage.screen)
    assert screened.status is Status.correct and screened.verification.seeds == [0]
    assert screened.verification.regimes == [Regime.normal]


def test_a_profile_needs_no_data(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.evaluation.references.ReferenceSession._start", None)
    assert evaluate(evaluator, BASELINE, stage=Stage.profile).status is Status.profiled


def test_a_wrong_kernel_is_told_where_and_by_how_much(evaluator: Evaluator) -> None:
    found = evaluate(evaluator, BASELINE.replace("exponential, 1.0", "exponential, 1.1"))
    failure = found.verification.failure
    assert found.status is Status.incorrect and not found.verification.passed
    assert (failure.check, failure.seed, failure.regime, failure.output) == (Check.norm, 0, Regime.normal, 0)
    assert len(failure.index) == 2 and failure.expected != failure.got
    assert "seed 0, normal inputs" in found.error.message and "\n" not in str(found.error)


ENDLESS = BASELINE.replace("    rows, columns", "    while True: pass\n    rows, columns")
BAD_TEXTS = {
    "a syntax error": (BASELINE + "\ndef (", Status.compile_error, "syntax"),
    "no kernel": ("x = 1", Status.rejected, "no_kernel"),
    "an unknown API": (BASELINE.replace("nl.negative", "nl.negatize"), Status.compile_error, "unknown_api"),
    "an endless loop": (ENDLESS, Status.timeout, "timeout"),
    "a failing assert": (BASELINE.replace("tile_columns = 512", "tile_columns = 500"), Status.compile_error, None),
    "an empty text": ("", Status.rejected, "no_kernel"),
    "not unicode": ("\ud800", Status.compile_error, "syntax"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_TEXTS)
def test_bad_texts_are_typed_results_in_time(evaluator: Evaluator, what: str) -> None:
    source, status, name = BAD_TEXTS[what]
    started = time.monotonic()
    found = evaluate(sharing(evaluator, compile_timeout_s=1.0), source)
    assert found.status is status, found.error
    assert name is None or found.error.name == name
    assert time.monotonic() - started < 5


def test_a_rejection_costs_half_a_second_at_most(evaluator: Evaluator) -> None:
    evaluate(evaluator, "x")
    assert sorted(evaluate(evaluator, "import os").wall_s for _ in range(5))[2] < 0.5


def test_narrow_types_pass_only_where_the_run_allows_them(evaluator: Evaluator) -> None:
    source = BASELINE.replace(
        "nl.negative(x_tile)", "nl.copy(nl.copy(nl.negative(x_tile), dtype=nl.bfloat16), dtype=nl.float32)"
    )
    strict = evaluate(evaluator, source, stage=Stage.screen)
    assert strict.verification.failure.check is Check.precision
    relaxed = evaluate(sharing(evaluator, precision="relaxed"), source, stage=Stage.screen)
    assert relaxed.verification.precision == "relaxed" and relaxed.verification.narrowed == ["bfloat16"]
    assert relaxed.status is Status.incorrect, "eight bits are too few for the tolerance all the same"


def test_what_the_worker_that_ran_a_text_says_of_it_counts_for_nothing(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.pool import Lease

    def lying(lease: Lease, operation: str, *args: object, **kwargs: object) -> object:
        answer = call(lease, operation, *args, **kwargs)
        if operation == "compile":
            answer.fields.update(narrowings=[], written_inputs=[], outputs=[])
        return answer

    call = Lease.call
    monkeypatch.setattr(Lease, "call", lying)
    narrow = BASELINE.replace("nl.negative(x_tile)", "nl.copy(nl.negative(x_tile), dtype=nl.bfloat16)")
    assert evaluate(evaluator, narrow).verification.failure.check is Check.precision
    assert evaluate(evaluator, BASELINE, stage=Stage.screen).status is Status.correct


def test_a_speed_that_no_machine_has_is_suspect(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.verification.peak_ms", lambda work, target, narrow: 1e3)
    found = evaluate(evaluator, BASELINE, stage=Stage.screen)
    assert found.status is Status.suspect
    assert found.verification.failure.check is Check.latency


def test_results_that_differ_from_run_to_run_are_refused(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.verification import Finding

    finding = Finding(Check.reproducible, 0, (1, 2), 1.0, 2.0, "differs")
    monkeypatch.setattr("tools.evaluation.evaluator.first_difference", lambda one, two: finding)
    found = evaluate(evaluator, BASELINE)
    assert found.status is Status.incorrect and found.error.name == "reproducible"


def test_a_number_of_another_backend_is_never_taken(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sharing(evaluator, target="trn2")
    monkeypatch.setattr(other, "settings", SETTINGS.model_copy(update={"target": "trn2"}))
    assert evaluate(other, BASELINE, stage=Stage.profile).profile.target == "trn2"
    from tools.evaluation import evaluator as module

    def mislabelled(fields: dict) -> object:
        return original({**fields, "target": "trn1"})

    original = module.Profile.model_validate
    monkeypatch.setattr(module.Profile, "model_validate", mislabelled)
    with pytest.raises(AssertionError, match="not what was asked for"):
        evaluate(other, BASELINE, stage=Stage.profile)


def test_targets_must_exist() -> None:
    with pytest.raises(ValueError, match="unknown target"):
        EvaluationSettings(target="trn9")


async def test_many_evaluations_run_from_one_event_loop(evaluator: Evaluator) -> None:
    kernels = [Kernel.from_source(f"{BASELINE}\n# {number}\n") for number in range(8)]
    found = await asyncio.gather(*(evaluator.aevaluate(kernel, SILU, Stage.screen) for kernel in kernels))
    assert [result.kernel_id for result in found] == [kernel.id for kernel in kernels]
    assert {result.status for result in found} == {Status.correct}


async def test_a_cancelled_evaluation_ends_its_worker(evaluator: Evaluator) -> None:
    endless = Kernel.from_source(
        BASELINE.replace("    rows, columns", "    while True: pass\n    rows, columns")
    )
    with sharing(evaluator, compile_timeout_s=60.0) as patient:
        tasks = [asyncio.ensure_future(patient.aevaluate(endless, SILU)) for _ in range(4)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        started = time.monotonic()
        found = await patient.aevaluate(Kernel.from_source(BASELINE), SILU, Stage.profile)
    assert found.status is Status.profiled
    assert time.monotonic() - started < 5, "the slots of the cancelled ones are free again"


# -- references ----------------------------------------------------------------------------------------------------------

REFERENCE = """
import numpy as np
M, N = 128, 512

def get_inputs():
    return [np.random.normal(size=(M, N)).astype(np.float32), 2.0]

def forward(x, factor):
    return x * factor
"""
SCALE = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x, factor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(x), factor))
    return out
"""


def own(reference: str, kernel: str = SCALE) -> Problem:
    return user_problem(reference, kernel, measure=False)


def test_people_bring_their_own_reference(evaluator: Evaluator) -> None:
    found = evaluate(evaluator, SCALE, own(REFERENCE))
    assert found.status is Status.correct, found.error
    assert found.percent_of_peak > 0, "measured against the bytes that it must move"
    wrong = evaluate(evaluator, SCALE.replace("nl.load(x), factor", "nl.load(x), 3.0"), own(REFERENCE))
    assert wrong.status is Status.incorrect


def test_outputs_are_translated_before_they_are_compared(evaluator: Evaluator) -> None:
    translating = REFERENCE + (
        "\ndef transform_to_nki_inputs(inputs):\n    return [inputs[0].T.copy(), inputs[1]]\n"
        "\ndef transform_nki_outputs(outputs, reference):\n    return [outputs.T]\n"
    )
    by_rows = """for i in nl.affine_range(4):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0:128])
        nl.store(out[i * 128 : (i + 1) * 128, 0:128], value=nl.multiply(tile, factor))"""
    transposed = SCALE.replace("nl.store(out, value=nl.multiply(nl.load(x), factor))", by_rows)
    found = evaluate(evaluator, transposed, own(translating))
    assert found.status is Status.correct, found.error


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (REFERENCE.replace("return x * factor", "return y"), "NameError"),
        (REFERENCE.replace("return x * factor", "return 1.0"), "not an array"),
        (
            REFERENCE.replace(", 2.0]", ", (2, 3)]"),
            "argument 1 of the kernel is tuple.* its numbers one by one",
        ),
        (REFERENCE.replace("return [np", "while True: pass\n    return [np"), "no answer within"),
        (REFERENCE.replace("return [np", "import os; os._exit(3)\n    return [np"), "exit code 3"),
        (REFERENCE.replace("return [np", "open('/etc/passwd').read()\n    return [np"), "PermissionError"),
        (
            REFERENCE.replace("return [np", "import socket; socket.socket()\n    return [np"),
            "PermissionError",
        ),
    ],
)
def test_a_reference_that_fails_or_misbehaves_is_named_and_harms_nobody(
    evaluator: Evaluator, spoiled: str, message: str
) -> None:
    with sharing(evaluator, reference_timeout_s=1.0) as other:
        with pytest.raises(InvalidReference, match=message):
            evaluate(other, SCALE, own(spoiled))
    assert evaluate(evaluator, BASELINE, stage=Stage.profile).status is Status.profiled


def test_reference_results_are_kept_on_disk_and_used_again(evaluator: Evaluator, tmp_path: Path) -> None:
    with sharing(evaluator, cache=tmp_path) as first:
        assert evaluate(first, BASELINE, stage=Stage.screen).status is Status.correct
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == 3, "one output, its tiles, and the note that it is whole"
    stamps = [path.stat().st_ino for path in sorted(tmp_path.iterdir())]
    with sharing(evaluator, cache=tmp_path) as second:
        assert evaluate(second, BASELINE, stage=Stage.screen).status is Status.correct
    assert [path.stat().st_ino for path in sorted(tmp_path.iterdir())] == stamps


def test_a_damaged_result_is_computed_again(evaluator: Evaluator, tmp_path: Path) -> None:
    with sharing(evaluator, cache=tmp_path) as caching:
        evaluate(caching, BASELINE, stage=Stage.screen)
        largest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:1000])
        assert evaluate(caching, BASELINE, stage=Stage.screen).status is Status.correct


def test_a_cache_that_cannot_be_written_costs_only_time(evaluator: Evaluator, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with sharing(evaluator, cache=blocked) as other:
        assert evaluate(other, BASELINE, stage=Stage.screen).status is Status.correct


def test_a_full_cache_drops_what_was_used_least_recently(tmp_path: Path) -> None:
    array = np.ones((128, 512), np.float32)
    store = ResultStore(tmp_path, 3 * array.nbytes)
    for number, name in enumerate("abcd"):
        store.save(name, Expected.of([array * number]))
        for path in tmp_path.glob("*.npy"):
            age = ord(path.name[0])
            os.utime(path, (age, age))
    assert store.load("a") is None
    found = store.load("d")
    assert found is not None and found.arrays[0][0, 0] == 3
    store.save("large", Expected.of([np.ones((1024, 512), np.float32)]))
    assert store.load("large") is None


# -- memory --------------------------------------------------------------------------------------------------------------


def test_output_memory_comes_back_poisoned() -> None:
    memory = OutputMemory(1 << 20)
    with memory.borrow([("float32", (4, 4)), ("int32", (2,))]) as first:
        assert all(np.isnan(first.arrays()[0]).ravel())
        first.arrays(writable=True)[0][:] = 7
        number = first.fd
    with memory.borrow([("float32", (4, 4)), ("int32", (2,))]) as again:
        assert again.fd == number, "the same memory"
        assert np.isnan(again.arrays()[0]).all()
    memory.close()


def test_output_memory_that_nobody_uses_is_bounded() -> None:
    memory = OutputMemory(1000)
    with memory.borrow([("float32", (1000,))]):
        pass
    assert memory._stock == []


def test_evaluations_leave_no_files_open(evaluator: Evaluator) -> None:
    wrong = BASELINE.replace("exponential, 1.0", "exponential, 1.1")
    for source in (BASELINE, wrong, "x"):
        evaluate(evaluator, source)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        for source in (BASELINE, wrong, "x"):
            evaluate(evaluator, f"{source}\n# {number}", stage=Stage.screen)
    assert len(os.listdir("/proc/self/fd")) <= before


# -- traces --------------------------------------------------------------------------------------------------------------


class Evil:
    """What an escaped kernel might send in place of its trace."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/accelopt-escaped",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2, 3]),
        pickle.dumps(Evil()),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"ctools.neuroncore.ir\nnp.load\n(S'/etc/passwd'\ntR.",
        b"ctools.neuroncore.ir\ndataclasses\n.",
    ],
)
def test_a_trace_can_only_be_data(data: bytes) -> None:
    with pytest.raises(Fault) as caught:
        SimulatedKernel.load(data)
    assert caught.value.name == "malformed_trace"
    assert not Path("/tmp/accelopt-escaped").exists()


def test_a_trace_survives_the_way_between_workers() -> None:
    from tools.backends import ArrayType
    from tools.backends.simulator import SimulatorBackend
    from tools.neuroncore.ir import fingerprint

    compiled = SimulatorBackend().compile(BASELINE, [ArrayType((256, 1024))], "trn1")
    restored = SimulatedKernel.load(compiled.dump())
    assert fingerprint(restored.ir) == fingerprint(compiled.ir)
    assert io.BytesIO(compiled.dump()).getbuffer().nbytes < 100_000


PICKS = """
import numpy as np

def get_inputs():
    return [np.random.randint(0, 900, (128, 1)).astype(np.int32), np.random.randn(900, 64).astype(np.float32)]

def forward(ids, table):
    return {result}
"""

PICKER = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(ids, table):
    out = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    i = nl.load(ids)
    nl.store(out, nl.load(table{index}))
    return out
"""


@pytest.mark.parametrize(
    ("result", "shape", "index"),
    [("table[ids[:, 0]]", (128, 64), "[i[p, 0], f]"), ("table[800:, :2]", (100, 2), "[800:900, 0:2]")],
)
def test_a_kernel_that_reads_a_part_of_its_inputs_is_no_suspect(
    evaluator: Evaluator, result: str, shape: tuple[int, int], index: str
) -> None:
    source = PICKER.format(shape=shape, index=index)
    problem = user_problem(PICKS.format(result=result), source, measure=False)
    found = evaluator.evaluate(Kernel.from_source(source), problem)
    assert found.status is Status.correct, found.error
