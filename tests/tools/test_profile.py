"""A profile bears neuron-profile's names, and its bounds say where the time goes."""

import pytest
from pydantic import ValidationError

from tools.profile import COUNTERS, Bounds, profile_from_counters

BOUNDS = Bounds(
    total_ms=2.0,
    memory_bound_ms=1.5,
    memory_bound_ideal_ms=1.0,
    memory_bound_no_reloads_ms=0.5,
    compute_bound_ms=1.2,
    compute_bound_ideal_ms=0.9,
    compute_bound_useful_ms=0.8,
    engine_busy_ms={"vector": 1.2, "tensor": 0.9},
)


def test_what_a_summary_lacks_counts_as_zero() -> None:
    profile = profile_from_counters(
        {"hbm_read_bytes": 8.0, "unknown": 1},
        backend="simulator",
        target="trn1",
        latency_ms=1.0,
        band_ms=0.03,
    )
    assert profile.hbm_read_bytes == 8
    assert profile.spill_save_bytes == 0
    assert list(profile.counters()) == list(COUNTERS)


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf")])
def test_a_latency_is_a_positive_number(latency: float) -> None:
    with pytest.raises(ValidationError):
        profile_from_counters({}, backend="simulator", target="trn1", latency_ms=latency, band_ms=0.03)


def test_a_profile_must_say_who_measured() -> None:
    with pytest.raises(ValidationError):
        profile_from_counters({}, backend="guess", target="trn1", latency_ms=1.0, band_ms=0.0)  # type: ignore[arg-type]


def test_the_digest_names_every_bound_and_orders_the_gaps() -> None:
    text = BOUNDS.digest()
    for name in ("total", "memory_bound_ideal", "memory_bound_no_reloads", "compute_bound_useful"):
        assert name in text
    gaps = text.split("gaps, largest first:")[1]
    assert gaps.index("not overlapped") < gaps.index("engine inefficiency") < gaps.index("transposes")
    assert "2000.0 us" in text and "75.0 %" in text


def test_the_limiting_resource_is_the_larger_bound_or_latency() -> None:
    assert BOUNDS.limiting == "memory"
    assert BOUNDS.model_copy(update={"compute_bound_ms": 1.9}).limiting == "compute"
    assert BOUNDS.model_copy(update={"total_ms": 10.0}).limiting == "latency"
