import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from nkibench import InvalidProblem, Problem, Work, WorkUnknown, load_problem, problem_names
from nkibench.problem import ArraySize, SourceFile

FIELDS: dict[str, Any] = {
    "name": "add",
    "title": "Addition",
    "operator": "elementwise",
    "description": "y = a + b.",
    "shape": {"M": 64},
    "small_shape": {"M": 8},
    "tolerance": 2e-5,
    "vector_flops": "M",
    "matmul_flops": "0",
    "min_traffic_elements": "3*M",
    "bound": "memory",
    "source": "user",
    "reference_file": {"text": ""},
    "baseline_file": {"text": ""},
}


def test_work_is_counted_at_either_shape() -> None:
    problem = Problem.model_validate(FIELDS)
    assert problem.work() == Work(vector_flops=64, matmul_flops=0, min_traffic_bytes=3 * 64 * 4)
    assert problem.work(small=True) == Work(vector_flops=8, matmul_flops=0, min_traffic_bytes=3 * 8 * 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../etc"}, "letters, digits"),
        ({"vector_flops": "M*K"}, "uses K"),
        ({"matmul_flops": "M - 100"}, "is negative"),
        ({"small_shape": {"N": 8}}, r"small_shape has \['N'\], shape has \['M'\]"),
        ({"shape": {"M": 0}}, "greater than 0"),
        ({"tolerance": 0.0}, "greater than 0"),
        ({"regimes": ["zeros"]}, "must contain normal"),
        ({"regimes": ["normal", "odd"]}, "wide_scale"),
        ({"bound": "luck"}, "memory"),
        ({"arguments": [{"name": "x"}]}, "needs either a shape or a value"),
        ({"arguments": [{"name": "x", "shape": ["K"]}]}, "uses K"),
        ({"reference_file": {}}, "needs a path or a text"),
    ],
)
def test_a_problem_that_does_not_hold_together_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Problem.model_validate({**FIELDS, **change})


def test_a_problem_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Problem.model_validate(FIELDS).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", problem_names())
def test_a_problem_survives_json(name: str) -> None:
    problem = load_problem(name)
    text = json.dumps(problem.model_dump(mode="json"))
    assert Problem.model_validate_json(text) == problem


@pytest.mark.parametrize("name", problem_names())
@pytest.mark.parametrize("small", [True, False])
def test_stated_arguments_fit_the_stated_work(name: str, small: bool) -> None:
    problem = load_problem(name)
    arguments = problem.argument_values(small)
    elements = sum(int(np.prod(size.shape)) for size in arguments if isinstance(size, ArraySize))
    assert 0 < elements * 4 < problem.work(small).min_traffic_bytes


@pytest.mark.parametrize("name", problem_names())
def test_stated_arguments_are_those_of_the_reference(name: str) -> None:
    problem = load_problem(name)
    reference = problem.reference(small=True)
    drawn = reference.to_nki(reference.inputs(0))
    stated = problem.argument_values(small=True)
    measured = problem.model_copy(update={"arguments": None}).argument_values(small=True)
    assert stated == measured
    assert len(stated) == len(drawn)


def test_unknown_work_says_how_to_know_it() -> None:
    problem = Problem.model_validate({**FIELDS, "min_traffic_elements": None})
    with pytest.raises(WorkUnknown, match="after its reference has run once"):
        problem.work()
    arrays = [np.zeros(5, np.float32), np.zeros(7, np.float32)]
    measured = problem.with_measured_traffic([arrays[0], 1.0], arrays[1:])
    assert measured.work().min_traffic_bytes == 48


def test_a_source_file_is_a_path_or_a_text(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("x = 1")
    assert SourceFile.of(path).read() == SourceFile.of("x = 1").read()
    with pytest.raises(InvalidProblem, match=r"gone\.py"):
        SourceFile.of(tmp_path / "gone.py").read()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidProblem, match="cannot read"):
        SourceFile.of(path).read()
