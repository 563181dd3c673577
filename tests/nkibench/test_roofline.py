import math

import pytest

from nkibench import Work, load_problem, problem_names, published_results, trn1_profiles
from nkibench.errors import UnknownTarget
from nkibench.roofline import PEAKS, bound, peak_ms, percent_of_peak


@pytest.mark.parametrize("name", problem_names())
def test_the_published_base_percentages_follow_from_formulas_peaks_and_latencies(name: str) -> None:
    published = published_results()[name]
    latency_ms = trn1_profiles()[name]["latency"]
    percent = percent_of_peak(load_problem(name).work(), latency_ms, "trn1")
    # The table is given to a tenth and mixes rounding with truncation.
    assert percent == pytest.approx(published.baseline_percent_of_peak, abs=0.1)
    assert latency_ms == pytest.approx(published.baseline_latency_ms, rel=1e-3)


def test_the_published_geometric_means_follow_too() -> None:
    results = published_results().values()
    for field, headline in (("baseline_percent_of_peak", 49.2), ("accelopt_percent_of_peak", 60.6)):
        logarithms = [math.log(getattr(result, field)) for result in results]
        assert math.exp(sum(logarithms) / len(logarithms)) == pytest.approx(headline, abs=0.1)


@pytest.mark.parametrize("name", problem_names())
def test_each_problem_states_the_resource_that_bounds_it(name: str) -> None:
    problem = load_problem(name)
    assert bound(problem.work(), "trn1") == problem.bound


def test_the_busiest_resource_sets_the_least_time() -> None:
    peak = PEAKS["trn2"]
    work = Work(
        vector_flops=int(peak.vector_flops_per_s * 1e-3),
        matmul_flops=int(peak.matmul_flops_per_s * 3e-3),
        min_traffic_bytes=int(peak.memory_bytes_per_s * 2e-3),
    )
    assert peak_ms(work, "trn2") == pytest.approx(3.0)
    assert bound(work, "trn2") == "matmul"
    assert percent_of_peak(work, 6.0, "trn2") == pytest.approx(50.0)


def test_a_target_that_does_not_exist_is_named_with_those_that_do() -> None:
    work = Work(vector_flops=1, matmul_flops=1, min_traffic_bytes=1)
    with pytest.raises(UnknownTarget, match="'trn9': known are trn1, trn2"):
        peak_ms(work, "trn9")


@pytest.mark.parametrize("latency_ms", [0.0, -1.0, float("nan")])
def test_a_latency_that_is_none_is_refused(latency_ms: float) -> None:
    work = Work(vector_flops=1, matmul_flops=1, min_traffic_bytes=1)
    with pytest.raises(ValueError, match="positive"):
        percent_of_peak(work, latency_ms, "trn1")
