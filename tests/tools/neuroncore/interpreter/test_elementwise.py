"""Element-wise operations on tiles: odd shapes, broadcasts, masks and element types, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .execute import run, run_all

RNG = np.random.default_rng(7)
A = RNG.normal(size=(37, 53)).astype(np.float32)
B = (RNG.uniform(1, 5, size=(37, 53))).astype(np.float32)
COLUMN = RNG.normal(size=(37, 1)).astype(np.float32)
ROW = RNG.normal(size=(1, 53)).astype(np.float32)

TWO_TILES = """
def kernel(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    y = nl.load(b)
    nl.store(out, {expression})
    return out
"""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nl.add(x, y)", A + B),
        ("nl.subtract(x, y)", A - B),
        ("nl.subtract(1.5, x)", 1.5 - A),
        ("nl.multiply(x, -2)", A * -2),
        ("nl.divide(x, y)", A / B),
        ("nl.maximum(x, y)", np.maximum(A, B)),
        ("nl.minimum(x, 0.25)", np.minimum(A, np.float32(0.25))),
        ("nl.power(y, 2)", B**2),
        ("nl.mod(x, y)", np.mod(A, B)),
        ("nl.fmod(x, y)", np.fmod(A, B)),
        ("nl.less(x, y, dtype=nl.float32)", (A < B).astype(np.float32)),
        ("nl.greater_equal(x, 0, dtype=nl.float32)", (A >= 0).astype(np.float32)),
        ("nl.logical_and(x > 0, y > 3, dtype=nl.float32)", ((A > 0) & (B > 3)).astype(np.float32)),
        ("(x - y) * 0.5 + x", (A - B) * np.float32(0.5) + A),
        ("nl.where(x > 0, x, y)", np.where(A > 0, A, B)),
        ("nl.exp(nl.negative(nl.abs(x)))", np.exp(-np.abs(A))),
        ("nl.sigmoid(x)", 1 / (1 + np.exp(-A))),
        ("nl.square(x)", np.square(A)),
        ("nl.rsqrt(y)", 1 / np.sqrt(B)),
    ],
)
def test_tile_functions_do_what_numpy_does(expression: str, expected: np.ndarray) -> None:
    found = run(TWO_TILES.format(expression=expression), A, B)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_columns_and_rows_broadcast() -> None:
    source = """
def kernel(a, c, r):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, column, row = nl.load(a), nl.load(c), nl.load(r)
    spread = row.broadcast_to(a.shape)
    nl.store(out, nl.add(nl.multiply(x, column), nl.multiply(spread, column)))
    return out
"""
    found = run(source, A, COLUMN, ROW)
    np.testing.assert_allclose(found, A * COLUMN + ROW * COLUMN, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int32, np.int8, np.uint8])
def test_results_are_computed_in_float32_and_stored_in_their_type(dtype: type) -> None:
    low, high = (0, 100) if np.dtype(dtype).kind == "u" else (-100, 100)
    a = RNG.integers(low, high, size=(9, 31)).astype(dtype)
    b = RNG.integers(low, high, size=(9, 31)).astype(dtype)
    found = run(
        TWO_TILES.format(expression="nl.add(nl.multiply(x, 0.37, dtype=nl.float32), y, dtype=x.dtype)"), a, b
    )
    exact = a.astype(np.float32) * np.float32(0.37) + b.astype(np.float32)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        expected = np.clip(np.rint(exact), info.min, info.max).astype(dtype)
    else:
        expected = exact.astype(dtype)
    np.testing.assert_array_equal(found, expected)


def test_integers_add_and_multiply_exactly() -> None:
    a = np.asarray([[2**30, 16777217, -5], [3, 2**24 + 3, 7]], np.int32)
    b = np.asarray([[1, 2, 2**31 - 1], [1, 1, 1]], np.int32)
    np.testing.assert_array_equal(run(TWO_TILES.format(expression="nl.add(x, y)"), a, b), a + b)
    found = run(TWO_TILES.format(expression="nl.multiply(x, 3)"), a, b)
    np.testing.assert_array_equal(found, np.clip(a.astype(np.int64) * 3, -(2**31), 2**31 - 1))


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("nl.bitwise_and(x, y)", np.bitwise_and),
        ("nl.bitwise_or(x, 5)", lambda a, b: a | 5),
        ("nl.bitwise_xor(x, y)", np.bitwise_xor),
        ("nl.left_shift(x, 2)", lambda a, b: a << 2),
        ("nl.right_shift(x, 3)", lambda a, b: (a.view(np.uint32) >> 3).view(np.int32)),
        ("nl.invert(x)", lambda a, b: ~a),
    ],
)
def test_bit_operations_work_on_raw_bits(expression: str, function: object) -> None:
    a = RNG.integers(-(2**31), 2**31 - 1, size=(5, 11)).astype(np.int32)
    b = RNG.integers(-(2**31), 2**31 - 1, size=(5, 11)).astype(np.int32)
    found = run(TWO_TILES.format(expression=expression), a, b)
    np.testing.assert_array_equal(found, function(a, b))  # type: ignore[operator]


def test_a_mask_leaves_the_rest_of_the_destination_untouched() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.arange(37)[:, None], nl.arange(53)[None, :]
    x = nl.load(a)
    tile = nl.zeros((37, 53), dtype=nl.float32)
    tile[ip, jf] = nl.add(x[ip, jf], 1.0, mask=(ip < 30) & (jf >= 7))
    tile[ip, jf] = nl.multiply(x[ip, jf], 2.0, mask=(ip - jf >= 3))
    nl.store(out, tile)
    return out
"""
    p, f = np.mgrid[0:37, 0:53]
    expected = np.where((p < 30) & (f >= 7), A + 1, 0)
    expected = np.where(p - f >= 3, A * 2, expected)
    np.testing.assert_array_equal(run(source, A), expected)


def test_a_mask_keeps_loads_and_stores_in_bounds() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    ip, jf = nl.arange(16)[:, None], nl.arange(24)[None, :]
    for i in nl.affine_range((rows + 15) // 16):
        for j in nl.affine_range((columns + 23) // 24):
            inside = (16 * i + ip < rows) & (24 * j + jf < columns)
            x = nl.load(a[16 * i + ip, 24 * j + jf], mask=inside)
            y = nl.exp(x, mask=inside)
            nl.store(out[16 * i + ip, 24 * j + jf], value=y, mask=inside)
    return out
"""
    np.testing.assert_allclose(run(source, A), np.exp(A), rtol=1e-6)


def test_what_no_store_reaches_stays_poisoned() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((40, 53), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:37, 0:53], nl.load(a))
    return out
"""
    found = run(source, A)
    np.testing.assert_array_equal(found[:37], A)
    assert np.isnan(found[37:]).all()


def test_three_axes_and_regrouped_axes() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((12, 30), dtype=a.dtype, buffer=nl.shared_hbm)
    ip, jf, kf = nl.arange(12)[:, None, None], nl.arange(5)[None, :, None], nl.arange(6)[None, None, :]
    tile = nl.ndarray((12, 30), dtype=a.dtype)
    tile[ip, 6 * jf + kf] = nl.load(a[ip, jf, kf])
    nl.store(out, nl.exp(tile))
    return out
"""
    a = RNG.normal(size=(12, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(run(source, a), np.exp(a.reshape(12, 30)), rtol=1e-6)


def test_several_results_come_in_order() -> None:
    source = """
def kernel(a, b):
    first = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(second, nl.copy(nl.load(b), dtype=nl.bfloat16))
    nl.store(first, nl.load(a))
    return first, second
"""
    first, second = run_all(source, A, B)
    np.testing.assert_array_equal(first, A)
    np.testing.assert_array_equal(second, B.astype(ml_dtypes.bfloat16))
