"""Simulated against measured: the level reached, held with a margin."""

import pytest

from nkibench import InvalidProblem, problem_names
from tools.fidelity import fidelity


@pytest.fixture(scope="module")
def report():
    return fidelity(leave_one_out=False)


def test_our_baselines_are_compared_as_what_they_are(report):
    assert report.kernels == "ours" and not report.same_kernels
    assert {p.problem for p in report.problems} == set(problem_names())
    assert report.leave_one_out is None


def test_our_baselines_stay_near_the_figures_of_upstreams(report):
    """Other kernels for the same problems: within a factor of two each, and in the same order."""
    assert all(0.5 < p.latency_simulated_ms / p.latency_measured_ms < 2 for p in report.problems)
    assert report.summary.latency_spearman > 0.95


def test_fitted_constants_are_listed_with_their_source(report):
    assert 0 < len(report.constants) <= 10
    assert all(c.unit and "fitted" in c.source for c in report.constants)


def test_counters_name_what_was_measured(report):
    silu = next(p for p in report.problems if p.problem == "silu")
    found = {c.name: c for c in silu.counters}
    assert found["hbm_read_bytes"].measured == found["hbm_read_bytes"].simulated == 117_440_512
    assert found["hbm_read_bytes"].error == 0
    assert found["spill_save_bytes"].error is None


def test_a_folder_that_is_no_nkibench_is_refused(tmp_path):
    with pytest.raises(InvalidProblem):
        fidelity(tmp_path)
