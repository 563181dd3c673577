"""Element-wise functions against double precision, and casts against the hardware's rules."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tools.neuroncore.interpreter.functions import BINARY, UNARY, converted

X = np.concatenate(
    [np.linspace(-6, 6, 4001), [0.0, -0.0, 1e-6, -1e-6, 1e-20, 30.0, -30.0, 80.0, -80.0]]
).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(1e-6)


def phi(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def density(x: np.ndarray) -> np.ndarray:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


EXACT = {
    "copy": lambda x: x,
    "identity": lambda x: x,
    "square": np.square,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * phi(x),
    "gelu_dx": lambda x: phi(x) + x * density(x),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x))),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0, x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "erf": np.vectorize(math.erf),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "exp2": np.exp2,
    "sign": np.sign,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "reciprocal": lambda x: 1 / x,
    "negative": np.negative,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "logical_not": lambda x: (x == 0).astype(float),
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
NEEDS_POSITIVE = {"log", "sqrt", "rsqrt"}
BITS = {"invert"}


def test_every_function_is_checked() -> None:
    assert set(UNARY) == set(EXACT) | BITS


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("where", ["new", "other", "same"])
def test_a_function_is_exact_to_float32(name: str, where: str) -> None:
    x = POSITIVE if name in NEEDS_POSITIVE else X
    with np.errstate(all="ignore"):
        expected = EXACT[name](x.astype(np.float64))
        if where == "new":
            found = UNARY[name](x)
        else:
            out = x.copy() if where == "same" else np.empty_like(x)
            found = UNARY[name](out if where == "same" else x, out=out)
            assert found is out
    finite = np.isfinite(expected) & (np.abs(expected) < 3e38)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_operands_may_write_into_its_first(name: str) -> None:
    integers = name.startswith("bitwise") or name.endswith("shift")
    x = np.arange(1, 9, dtype=np.int32) if integers else np.linspace(-3, 3, 8, dtype=np.float32)
    y = np.asarray([2, 1, 3, 1, 2, 0, 1, 2], x.dtype)
    with np.errstate(all="ignore"):
        expected = BINARY[name](x, y).astype(x.dtype)
        out = x.copy()
        BINARY[name](out, y, out=out)
    np.testing.assert_array_equal(out, expected)


def test_right_shift_is_logical_for_signed_integers() -> None:
    x = np.asarray([-1, -8, 8], np.int32)
    np.testing.assert_array_equal(BINARY["right_shift"](x, np.int32(1)), [2**31 - 1, 2**31 - 4, 4])


def test_casts_to_integers_round_to_even_and_saturate() -> None:
    x = np.asarray([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(converted(x, np.dtype(np.int8)), [0, 2, 2, 0, -2, 127, -128, 0, 127])
    np.testing.assert_array_equal(converted(x, np.dtype(np.uint8)), [0, 2, 2, 0, 0, 255, 0, 0, 255])
    huge = np.asarray([3e9, -3e9], np.float32)
    np.testing.assert_array_equal(converted(huge, np.dtype(np.int32)), [2**31 - 1, -(2**31)])


def test_casts_between_integers_saturate() -> None:
    x = np.asarray([70000, -70000, 5], np.int64)
    np.testing.assert_array_equal(converted(x, np.dtype(np.int16)), [32767, -32768, 5])


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
)  # fmt: skip
def test_casts_to_narrow_floats_round_to_nearest(dtype: type) -> None:
    values = np.asarray([1.0, 1.0 + 2**-9, 0.1, -3.3, 17.0], np.float32)
    grid = np.arange(0, 256, dtype=np.uint8 if np.dtype(dtype).itemsize == 1 else np.uint16)
    found = converted(values, np.dtype(dtype)).astype(np.float64)
    if np.dtype(dtype).itemsize == 1:
        table = grid.view(dtype).astype(np.float64)
        table = table[np.isfinite(table)]
        nearest = np.abs(table[:, None] - values).min(axis=0)
        np.testing.assert_allclose(np.abs(found - values), nearest)
    else:
        np.testing.assert_array_equal(found, values.astype(dtype).astype(np.float64))
