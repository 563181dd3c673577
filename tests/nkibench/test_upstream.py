import json
from pathlib import Path
from typing import Any

import pytest

from nkibench import (
    InvalidProblem,
    WorkUnknown,
    export_upstream,
    import_upstream,
    load_problem,
    problem_names,
    upstream_problems,
)

REFERENCE = """
import numpy as np

def get_inputs():
    return [np.random.normal(size=(256, 512)).astype(np.float32)]

def forward(x):
    return x / (1 + np.exp(-x))

def transform_to_nki_inputs(inputs):
    return [np.reshape(inputs[0], (2, 128, 512))]

def transform_nki_outputs(k_res, ref):
    return [np.reshape(k_res, ref.shape)]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "NKIBench"
    for operator, file in (("silu", "silu_M256_N512"), ("gelu", "gelu_M256_N512")):
        write(folder / "reference" / f"{file}_numpy_1.py", REFERENCE)
        write(folder / "kernels" / f"{file}_0.py", f"# {operator}\n")
    summarize(folder, summary())
    return tmp_path / "checkout"


def summary() -> dict[str, Any]:
    def entry(file: str) -> dict[str, Any]:
        files = {"task": f"./reference/{file}_numpy_1.py", "kernel": f"./kernels/{file}_0.py"}
        return {"seed": "", "cases": {"1": {"values": {"M": 256, "N": 512}, "impls": [files]}}}

    return {"silu": entry("silu_M256_N512"), "gelu": entry("gelu_M256_N512")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def summarize(folder: Path, content: Any) -> None:
    write(folder / "summary.json", json.dumps(content))


def test_each_kernel_of_a_checkout_is_a_problem(checkout: Path) -> None:
    silu, gelu = upstream_problems(checkout)
    assert [silu.name, gelu.name] == ["silu_M256_N512_0", "gelu_M256_N512_0"]
    assert silu.source == "upstream"
    assert silu.baseline_source() == "# silu\n"
    assert [problem.name for problem in upstream_problems(checkout / "NKIBench")] == [silu.name, gelu.name]


def test_work_and_regimes_come_from_our_problem_of_the_same_operator(checkout: Path) -> None:
    silu = next(upstream_problems(checkout))
    ours = load_problem("silu")
    assert silu.work().vector_flops == 3 * 256 * 512
    assert (silu.tolerance, silu.regimes, silu.bound) == (ours.tolerance, ours.regimes, ours.bound)


def test_an_operator_of_which_we_know_nothing_has_its_traffic_measured(checkout: Path) -> None:
    _, gelu = upstream_problems(checkout)
    with pytest.raises(WorkUnknown):
        gelu.work()
    reference = gelu.reference()
    inputs = reference.inputs(0)
    measured = gelu.with_measured_traffic(inputs, reference.forward(inputs))
    assert measured.work().min_traffic_bytes == 2 * 256 * 512 * 4


def test_arguments_are_those_that_upstreams_transform_makes(checkout: Path) -> None:
    silu = next(upstream_problems(checkout))
    (size,) = silu.argument_values()
    assert size.shape == (2, 128, 512)  # type: ignore[union-attr]


def test_imported_problems_load_from_the_registry(checkout: Path, tmp_path: Path) -> None:
    imported = import_upstream(checkout, tmp_path / "home")
    names = [problem.name for problem in imported]
    assert problem_names([tmp_path / "home"]) == problem_names() + sorted(names)
    for problem in imported:
        loaded = load_problem(problem.name, [tmp_path / "home"])
        assert loaded == problem
        assert loaded.source == "upstream"
        assert loaded.reference_source() == REFERENCE
    assert [p.name for p in import_upstream(checkout, tmp_path / "home")] == names


def test_results_go_out_in_the_layout_that_is_read(checkout: Path, tmp_path: Path) -> None:
    upstream, ours = next(upstream_problems(checkout)), load_problem("silu")
    path = export_upstream([(ours, "# one\n"), (ours, "# two\n"), (upstream, "# three\n")], tmp_path / "out")
    content = json.loads(path.read_text())
    assert list(content) == ["silu"]
    assert [case["values"] for case in content["silu"]["cases"].values()] == [ours.shape, upstream.shape]
    back = list(upstream_problems(tmp_path / "out"))
    assert [problem.baseline_source() for problem in back] == ["# one\n", "# two\n", "# three\n"]
    assert back[0].reference_source() == ours.reference_source()
    assert back[2].reference_source() == REFERENCE
    assert back[0].work() == ours.work()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "operators by name"),
        ({"silu": {}}, "silu is not in NKIBench's layout: no 'cases'"),
        ({"silu": {"cases": {"1": {"values": {"M": 1}, "impls": [{}]}}}}, "no 'task'"),
        ({"silu": {"cases": [1]}}, "not in NKIBench's layout"),
    ],
)
def test_a_summary_in_another_layout_is_refused(checkout: Path, content: Any, message: str) -> None:
    summarize(checkout / "NKIBench", content)
    with pytest.raises(InvalidProblem, match=message):
        list(upstream_problems(checkout))


@pytest.mark.parametrize("name", ["./kernels/none.py", "../../secret.py", "/etc/hostname"])
def test_files_that_are_not_in_the_checkout_are_refused(checkout: Path, tmp_path: Path, name: str) -> None:
    write(tmp_path / "secret.py", "")
    content = summary()
    content["gelu"]["cases"]["1"]["impls"][0]["kernel"] = name
    summarize(checkout / "NKIBench", content)
    with pytest.raises(InvalidProblem, match="there is no file"):
        import_upstream(checkout, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_sizes_that_are_none_are_refused(checkout: Path) -> None:
    content = summary()
    content["silu"]["cases"]["1"]["values"] = {"M": "many", "N": 512}
    summarize(checkout / "NKIBench", content)
    with pytest.raises(InvalidProblem, match=r"silu_M256_N512_0: shape\.M"):
        list(upstream_problems(checkout))


def test_a_folder_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem, match=r"summary\.json"):
        list(upstream_problems(tmp_path))
