"""The first-draft kernels in the simulator: right on every kind of input, and as slow as first drafts are."""

import math
from functools import cache

import numpy as np
import pytest

from nkibench import Problem, load_problem, problem_names
from nkibench.problem import ArraySize
from nkibench.regime import change
from nkibench.roofline import percent_of_peak
from tools.neuroncore import ArraySpec, estimate, interpret, trace


@cache
def traced(name: str, small: bool):  # type: ignore[no-untyped-def]
    problem = load_problem(name)
    arguments = [
        ArraySpec(value.shape, np.dtype(value.dtype)) if isinstance(value, ArraySize) else value
        for value in problem.argument_values(small)
    ]
    return trace(problem.baseline_source(), arguments)


def relative_error(problem: Problem, regime: str) -> float:
    reference = problem.reference(small=True)
    inputs = change(reference.inputs(0), regime, seed=0)
    arrays = [value for value in reference.to_nki(inputs) if isinstance(value, np.ndarray)]
    (expected,) = reference.forward(inputs, np.float64)
    (actual,) = reference.from_nki(interpret(traced(problem.name, True), arrays), [expected])
    error, scale = np.linalg.norm(actual - expected), np.linalg.norm(expected)
    return float(error / scale) if scale else float(error)


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_is_right_under_every_regime_of_its_problem(name: str) -> None:
    problem = load_problem(name)
    errors = {regime: relative_error(problem, regime) for regime in problem.regimes}
    assert {regime: error for regime, error in errors.items() if not error < problem.tolerance / 2} == {}


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_leaves_room_above_it_and_is_no_caricature(name: str) -> None:
    latency_ms = estimate(traced(name, False), "trn1").latency_ms
    assert 15 < percent_of_peak(load_problem(name).work(), latency_ms, "trn1") < 80


def test_the_baselines_geometric_mean_lies_where_the_papers_does() -> None:
    percents = [
        percent_of_peak(load_problem(name).work(), estimate(traced(name, False), "trn1").latency_ms, "trn1")
        for name in problem_names()
    ]
    assert 40 < math.exp(sum(map(math.log, percents)) / len(percents)) < 55
