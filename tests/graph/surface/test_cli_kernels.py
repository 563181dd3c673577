"""`accelopt evaluate`, `profile`, `problems` and `doctor` on the real simulator, at small shapes."""

import json
from pathlib import Path

import pytest

from graph.cli.entry import run
from nkibench.registry import load_problem, problem_names

ROOT = Path(__file__).resolve().parents[3]
HEAD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
BAD = {
    "a kernel without the decorator": ("def kernel(x):\n    return x\n", "rejected", "@nki.jit"),
    "a syntax error": (f"{HEAD}@nki.jit\ndef kernel(x:\n    return x\n", "compile_error", "line 4"),
    "a foreign import": (f"import os\n{HEAD}@nki.jit\ndef kernel(x):\n    return x\n", "rejected", "line 1"),
    "an endless loop": (
        f"{HEAD}@nki.jit\ndef kernel(x):\n    while True:\n        pass\n",
        "timeout",
        "loops",
    ),
    "a wrong shape": (
        f"{HEAD}@nki.jit\ndef kernel(x):\n"
        "    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]))\n    return out\n",
        "incorrect",
        "shape [128, 512]",
    ),
}


@pytest.fixture
def accelopt(home, capsys, monkeypatch):
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "silu.py"
    path.write_text(load_problem("silu").baseline_source())
    return path


def test_a_good_kernel_is_told_with_all_that_was_looked_at(accelopt, baseline):
    code, out, err = accelopt("evaluate", baseline, "--problem", "silu", "--small", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["status"] == "correct" and document["error"] is None
    assert 0 < document["percent_of_peak"] < 100 and document["latency_ms"] > 0
    assert document["verification"]["seeds"] == [0, 21, 42, 63, 84]
    assert document["profile"]["hbm_read_bytes"] == document["profile"]["hbm_write_bytes"] > 0
    people = accelopt("evaluate", baseline, "--problem", "silu", "--small")[1]
    assert "correct" in people and "seeds 0, 21, 42, 63, 84" in people and "hbm_read_bytes" in people


@pytest.mark.parametrize("name", BAD)
def test_a_bad_kernel_is_one_line_with_the_place_and_a_code(accelopt, tmp_path, name):
    source, status, told = BAD[name]
    kernel = tmp_path / "kernel.py"
    kernel.write_text(source)
    patience = 3 if status == "timeout" else 60
    line = ("evaluate", kernel, "--problem", "silu", "--small", "--timeout", patience)
    code, out, err = accelopt(*line)
    assert code == 1 and out == "" and told in err
    assert err.startswith(f"error: {kernel}: ") and err.count("\n") == 1
    document = json.loads(accelopt(*line, "--json")[1])
    assert document.get("status") == status and told in document["error"], document


def test_a_kernel_is_measured_by_a_reference_of_ones_own(accelopt, tmp_path, baseline):
    reference = tmp_path / "ref.py"
    reference.write_text(
        "import numpy as np\nM, N = 256, 512\n"
        "def get_inputs():\n    return [np.random.randn(M, N).astype(np.float32)]\n"
        "def forward(x):\n    return x / (1 + np.exp(-x))\n"
    )
    code, out, _ = accelopt("evaluate", baseline, "--reference", reference, "--json")
    assert code == 0 and json.loads(out)["status"] == "correct"
    code, out, _ = accelopt("profile", baseline, "--reference", reference, "--json")
    assert code == 0 and json.loads(out)["latency_ms"] > 0


def test_a_profile_says_what_bounds_the_kernel_and_draws_its_timeline(accelopt, tmp_path, baseline):
    trace = tmp_path / "trace.json"
    line = ("profile", baseline, "--problem", "silu", "--target", "trn2", "--trace", trace)
    code, out, _ = accelopt(*line, "--json")
    document = json.loads(out)
    assert code == 0 and {"latency_ms", "target", "profile", "bounds"} <= set(document)
    assert document["target"] == "trn2"
    assert document["bounds"]["total_ms"] == pytest.approx(document["latency_ms"])
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "M"}
    assert "limited by: " in accelopt(*line)[1]


def test_a_profile_of_what_does_not_compile_is_null_with_the_reason(accelopt, tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text(f"{HEAD}@nki.jit\ndef kernel(x):\n    return nl.no_such_thing(x)\n")
    code, out, err = accelopt("profile", kernel, "--problem", "silu", "--json")
    document = json.loads(out)
    assert code == 1 and document["profile"] is None and "no_such_thing" in document["error"]
    assert err.count("\n") == 1


def test_problems_lists_each_with_its_baseline_on_both_targets(accelopt):
    code, out, _ = accelopt("problems", "--json")
    listed = json.loads(out)
    assert code == 0 and [one["name"] for one in listed] == problem_names()
    for one in listed:
        assert one["shape"] and one["operator"] and one["bound"] in ("memory", "matmul", "vector")
        for target in ("trn1", "trn2"):
            assert one["baseline_latency_ms"][target] > 0
            assert 0 < one["baseline_percent_of_peak"][target] < 100
    documented = (ROOT / "docs" / "nkibench.md").read_text(encoding="utf-8")
    for one in listed:
        figures = (
            f"{one[key][target]:.{digits}f}"
            for target in ("trn1", "trn2")
            for key, digits in (("baseline_latency_ms", 3), ("baseline_percent_of_peak", 1))
        )
        row = next(line for line in documented.splitlines() if line.startswith(f"| {one['name']} |"))
        assert row.endswith(f"| {' | '.join(figures)} |"), "docs/nkibench.md has other figures"


def test_doctor_says_line_by_line_what_works(accelopt):
    code, out, _ = accelopt("doctor", "--json")
    document = json.loads(out)
    checks = {one["name"]: one for one in document["checks"]}
    for name in ("python", "home", "ledger", "memory", "confinement", "simulator", "model offline"):
        assert name in checks
    assert checks["simulator"]["state"] == "ok", checks["simulator"]
    assert document["ok"] is (code == 0)


def test_doctor_says_what_a_device_needs(accelopt):
    code, out, _ = accelopt("doctor", "--backend", "neuron", "--json")
    missing = [
        one for one in json.loads(out)["checks"] if one["name"] == "neuron" and one["state"] == "failed"
    ]
    assert code == 1 and len(missing) >= 2 and all(one["fix"] for one in missing)


def test_a_device_that_is_not_there_is_not_replaced_by_a_simulation(accelopt, baseline):
    code, out, err = accelopt("evaluate", baseline, "--problem", "silu", "--small", "--backend", "neuron")
    assert code == 1 and out == "" and "no Neuron device" in err


def test_of_several_functions_the_last_is_the_kernel_and_that_is_said(accelopt, tmp_path, baseline):
    text = baseline.read_text()
    helper = "\n\n@nki.jit\ndef helper(x):\n    return x\n\n\n@nki.jit"
    several = tmp_path / "several.py"
    several.write_text(text.replace("@nki.jit", helper.strip("\n"), 1))
    code, _, err = accelopt("profile", str(several), "--problem", "silu", "--small")
    assert code == 0 and err.startswith("note: ") and err.count("\n") == 1
    assert "the last, kernel, is the kernel" in err
