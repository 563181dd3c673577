"""A verdict rests on norms in float64, on the worst tile, and on what a machine can do."""

import math

import numpy as np
import pytest

from nkibench.problem import Work
from tools.backends import ArrayType, Narrowing
from tools.profile import profile_from_counters
from tools.verification import (
    Check,
    Expected,
    compare,
    first_difference,
    impossible,
    precision_finding,
    tile_squares,
    traffic_of,
)

TOLERANCE = 2e-5


def right(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def found(output: np.ndarray, expected: np.ndarray):
    comparison = compare([output], Expected.of([expected]), TOLERANCE)
    return comparison.finding


def test_equal_outputs_have_no_error() -> None:
    array = right(300, 700)
    comparison = compare([array.copy()], Expected.of([array]), TOLERANCE)
    assert comparison == (0.0, 0.0, None)


@pytest.mark.parametrize("shape", [(), (1,), (700,), (130, 3), (3, 5, 7), (2, 200, 600), (128, 1025), (0, 4)])
def test_norms_agree_with_numpy_whatever_the_shape(shape: tuple[int, ...]) -> None:
    expected = right(*shape)
    output = (expected + np.float32(1e-6)).astype(np.float32)
    comparison = compare([output], Expected.of([expected]), TOLERANCE)
    difference = output.astype(np.float64) - expected
    norm = np.linalg.norm(expected.astype(np.float64).reshape(-1))
    assert comparison.relative_l2 == pytest.approx(
        np.linalg.norm(difference.reshape(-1)) / norm if norm else 0.0
    )


def test_threads_change_nothing() -> None:
    array = right(2048, 2100)
    np.testing.assert_array_equal(tile_squares(array, threads=1), tile_squares(array, threads=3))


def test_an_error_above_the_tolerance_is_found_where_it_is_worst() -> None:
    expected = right(256, 1024)
    output = expected.copy()
    output[200, 900] += 5
    finding = found(output, expected)
    assert finding.check is Check.norm
    assert finding.place == (200, 900)
    assert finding.expected == pytest.approx(float(expected[200, 900]))
    assert finding.got == pytest.approx(float(output[200, 900]))


def test_one_wrong_tile_cannot_hide_in_the_norm_of_the_whole() -> None:
    expected = right(128 * 32, 512 * 8)
    output = expected.copy()
    # 7e-5 of one tile in 256: 4e-6 of the whole.
    output[:128, 512:1024] *= np.float32(1 + 7e-5)
    comparison = compare([output], Expected.of([expected]), TOLERANCE)
    assert comparison.relative_l2 < TOLERANCE
    assert comparison.finding.check is Check.tile
    assert comparison.finding.place[0] < 128 and 512 <= comparison.finding.place[1] < 1024


def test_a_small_tile_that_was_skipped_is_found() -> None:
    expected = right(256, 512)
    expected[128:] *= 1e-4
    output = expected.copy()
    output[128:] = 0
    assert found(output, expected) is not None


def test_rounding_in_a_tile_of_zeros_is_forgiven() -> None:
    expected = right(256, 512)
    expected[128:] = 0
    output = expected.copy()
    output[128:] = 1e-7
    assert found(output, expected) is None


def test_all_zeros_must_be_met_exactly() -> None:
    expected = np.zeros((128, 512), np.float32)
    assert found(expected.copy(), expected) is None
    assert found(expected + np.float32(1e-6), expected).check is Check.norm


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found(value: float) -> None:
    expected = right(256, 512)
    output = expected.copy()
    output[130, 7] = value
    finding = found(output, expected)
    assert finding.place == (130, 7)
    if math.isnan(value):
        assert finding.check is Check.written


def test_a_right_norm_in_the_wrong_places_is_wrong() -> None:
    expected = right(256, 512)
    assert found(expected[::-1].copy(), expected).check is Check.norm


def test_wrong_number_and_wrong_shape_are_named() -> None:
    expected = Expected.of([right(4, 4), right(4, 4)])
    assert compare([right(4, 4)], expected, TOLERANCE).finding.check is Check.number
    assert compare([right(4, 4), right(4, 5)], expected, TOLERANCE).finding.check is Check.shape


def test_large_values_do_not_overflow_the_norm() -> None:
    expected = np.full((128, 512), 1e30, np.float32)
    assert found(expected.copy(), expected) is None
    assert found(expected * np.float32(1.001), expected).check is Check.norm


def test_two_runs_must_agree_to_the_last_bit() -> None:
    array = right(300, 700)
    other = array.copy()
    assert first_difference([array], [other]) is None
    other[2, 3] = np.nextafter(other[2, 3], np.float32(np.inf))
    finding = first_difference([array], [other])
    assert finding.check is Check.reproducible and finding.place == (2, 3)


def test_types_below_fp32_are_named_with_their_line() -> None:
    assert precision_finding([]) is None
    finding = precision_finding([Narrowing("bfloat16", "acc", 12)])
    assert finding.check is Check.precision and "acc" in finding.message and "line 12" in finding.message


WORK = Work(vector_flops=0, matmul_flops=0, min_traffic_bytes=440_234_147)  # 1 ms on trn1


def profile(latency_ms: float, traffic: int):
    counters = {"hbm_read_bytes": traffic // 2, "hbm_write_bytes": traffic - traffic // 2}
    return profile_from_counters(
        counters, backend="simulator", target="trn1", latency_ms=latency_ms, band_ms=0.0
    )


def test_faster_than_the_roofline_is_impossible() -> None:
    assert impossible(profile(0.99, 10**9), WORK).check is Check.latency
    assert impossible(profile(1.01, 10**9), WORK) is None


def test_a_narrow_matmul_may_be_faster_than_fp32_can() -> None:
    work = Work(vector_flops=0, matmul_flops=int(23.75e9), min_traffic_bytes=0)  # 1 ms on trn1 in fp32
    half = profile(0.5, 10**9).model_copy(update={"hardware_flops": int(23.75e9)})
    assert impossible(half, work).check is Check.latency
    assert impossible(half, work, narrow=True) is None
    assert impossible(half.model_copy(update={"latency_ms": 0.2}), work, narrow=True).check is Check.latency


def test_less_traffic_than_inputs_and_outputs_is_impossible() -> None:
    assert impossible(profile(2.0, 440_000_000), WORK).check is Check.traffic


def test_fewer_flops_than_the_problem_needs_are_impossible() -> None:
    work = Work(vector_flops=0, matmul_flops=1000, min_traffic_bytes=0)
    few = profile(2.0, 100).model_copy(update={"hardware_flops": 1100, "transpose_flops": 200})
    assert impossible(few, work).check is Check.flops
    assert impossible(few.model_copy(update={"transpose_flops": 0}), work) is None


def test_traffic_counts_every_tensor_once_and_no_numbers() -> None:
    assert traffic_of([ArrayType((2, 3)), 0.5], [ArrayType((4,), "bfloat16")]) == 24 + 8
