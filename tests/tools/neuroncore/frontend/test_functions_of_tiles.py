"""Element-wise functions of `nki.language` against NumPy: every function, element types, masks, broadcasting, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .running import TYPES, assert_close, ops, run, run_all, stored, traced

RNG = np.random.default_rng(21)
SHAPE = (37, 45)
FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
Function = Callable[..., Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + erf(x / math.sqrt(2)))


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


UNARY: dict[str, tuple[Function, float, float]] = {
    "exp": (np.exp, -4, 4),
    "log": (np.log, 0.1, 8),
    "sin": (np.sin, -3.1, 3.1),
    "cos": (np.cos, -3.1, 3.1),
    "tan": (np.tan, -1.2, 1.2),
    "tanh": (np.tanh, -3, 3),
    "arctan": (np.arctan, -1.5, 1.5),
    "sqrt": (np.sqrt, 0.1, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sigmoid": (sigmoid, -4, 4),
    "relu": (lambda x: np.maximum(x, 0), -3, 3),
    "silu": (lambda x: x * sigmoid(x), -4, 4),
    "silu_dx": (lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))), -4, 4),
    "gelu": (lambda x: x * normal_cdf(x), -3, 3),
    "gelu_dx": (lambda x: normal_cdf(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), -3, 3),
    "gelu_apprx_tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        -3,
        3,
    ),
    "gelu_apprx_sigmoid": (lambda x: x * sigmoid(1.702 * x), -3, 3),
    "erf": (erf, -3, 3),
    "erf_dx": (lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), -2, 2),
    "mish": (lambda x: x * np.tanh(softplus(x)), -3, 3),
    "softplus": (softplus, -4, 4),
    "square": (np.square, -3, 3),
    "sign": (np.sign, -3, 3),
    "abs": (np.abs, -3, 3),
    "ceil": (np.ceil, -5, 5),
    "floor": (np.floor, -5, 5),
    "trunc": (np.trunc, -5, 5),
    "negative": (np.negative, -3, 3),
    "reciprocal": (np.reciprocal, 0.25, 4),
    "logical_not": (np.logical_not, -3, 3),
}


def uniform(low: float, high: float, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return stored(RNG.uniform(low, high, shape), TYPES[dtype])


ONE_TILE = """
out = nl.ndarray(x.shape, dtype={out}, buffer=nl.shared_hbm)
nl.store(out, {expression})
return out
"""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_tile_computes_in_float32_and_rounds_once(name: str, dtype: str) -> None:
    function, low, high = UNARY[name]
    x = uniform(low, high, dtype)
    found = run(ONE_TILE.format(out="x.dtype", expression=f"nl.{name}(nl.load(x))"), x)
    assert_close(found, stored(function(x.astype(np.float64)), x.dtype))


MASKED = """
out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
p, f = nl.mgrid[0:{rows}, 0:{columns}]
t, r = nl.load(x), nl.full(x.shape, -5.0, dtype=nl.float32)
r[p, f] = {call}
nl.store(out, r)
return out
"""


@pytest.mark.parametrize("name", ["exp", "rsqrt", "abs", "ceil", "reciprocal"])
def test_a_mask_keeps_what_was_there_before(name: str) -> None:
    function, low, high = UNARY[name]
    x = uniform(low, high)
    call = f"nl.{name}(t[p, f], mask=((p < 20) & (f > p)))"
    found = run(MASKED.format(rows=37, columns=45, call=call), x)
    p, f = np.mgrid[0:37, 0:45]
    assert_close(found, stored(np.where((p < 20) & (f > p), function(x.astype(np.float64)), -5), np.float32))


BINARY: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "mod": np.mod,
    "fmod": np.fmod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
PREDICATES = list(BINARY)[9:]
TWO_TILES = """
out = nl.ndarray({shape}, dtype={out}, buffer=nl.shared_hbm)
a, b = nl.load(x), nl.load(y)
nl.store(out, {expression})
return out
"""


def pair(name: str, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Operands with some equal elements and some zeros."""
    low = 0.5 if name in ("power", "mod", "fmod", "divide") else -3
    x, y = uniform(low, 3, dtype), uniform(low, 3, dtype)
    x[::3, ::2] = y[::3, ::2]
    if low < 0:
        x[1::4] = 0
    return x, y


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_tiles_computes_in_float32_and_rounds_once(name: str, dtype: str) -> None:
    x, y = pair(name, dtype)
    result = np.dtype(np.uint8) if name in PREDICATES else x.dtype
    out = "nl.uint8" if name in PREDICATES else "x.dtype"
    found = run(TWO_TILES.format(shape="x.shape", out=out, expression=f"nl.{name}(a, b)"), x, y)
    expected = BINARY[name](x.astype(np.float64), y.astype(np.float64))
    assert_close(found, stored(expected, result), rtol=1e-5)


FORMS = {
    "a number on the right": ("nl.{name}(a, 1.5)", lambda x, y: (x, np.float64(1.5))),
    "a number on the left": ("nl.{name}(1.5, b)", lambda x, y: (np.float64(1.5), y)),
    "a column": ("nl.{name}(a, b[:, 3:4])", lambda x, y: (x, y[:, 3:4])),
    "a column on the left": ("nl.{name}(a[:, 7:8], b)", lambda x, y: (x[:, 7:8], y)),
    "a row": ("nl.{name}(a, b[32:33, :])", lambda x, y: (x, y[32:33, :])),
    "a row and a column": ("nl.{name}(a[0:1, :], b[:, 2:3])", lambda x, y: (x[0:1, :], y[:, 2:3])),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["subtract", "divide", "maximum", "power", "less", "logical_and"])
def test_operands_broadcast_as_in_numpy(name: str, form: str) -> None:
    x, y = pair(name)
    call, operands = FORMS[form]
    body = TWO_TILES.format(
        shape="x.shape", out="nl.float32", expression=call.format(name=name)[:-1] + ", dtype=nl.float32)"
    )
    a, b = operands(x.astype(np.float64), y.astype(np.float64))
    assert_close(run(body, x, y), stored(BINARY[name](a, b), np.float32), rtol=1e-5)


OPERATORS: dict[str, Function] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "a ** 2": lambda a, b: a**2,
    "2 ** a": lambda a, b: 2**a,
    "3 - a": lambda a, b: 3 - a,
    "1 / a": lambda a, b: 1 / a,
    "a % b": lambda a, b: a % b,
    "-a": lambda a, b: -a,
    "a > b": lambda a, b: a > b,
    "a <= 1": lambda a, b: a <= 1,
    "a == b": lambda a, b: a == b,
    "a != b": lambda a, b: a != b,
    "(a > 1) & (b > 1)": lambda a, b: (a > 1) & (b > 1),
    "(a > 1) | (b > 1)": lambda a, b: (a > 1) | (b > 1),
    "(a > 1) ^ (b > 1)": lambda a, b: (a > 1) ^ (b > 1),
}


@pytest.mark.parametrize("expression", OPERATORS)
def test_python_operators_work_on_tiles(expression: str) -> None:
    x, y = pair("mod")
    body = TWO_TILES.format(shape="x.shape", out="nl.float32", expression=expression)
    expected = OPERATORS[expression](x.astype(np.float64), y.astype(np.float64))
    assert_close(run(body, x, y), stored(expected, np.float32), rtol=1e-5)


AUGMENTED = ["+=", "-=", "*=", "/="]


@pytest.mark.parametrize("operator", AUGMENTED)
def test_augmented_assignment_updates_the_tile_in_place(operator: str) -> None:
    x, y = pair("divide")
    body = f"""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    a[0:20, 0:30] {operator} b[0:20, 0:30]
    nl.store(out, a)
    return out
    """
    expected = x.copy()
    exec(f"e[0:20, 0:30] {operator} y[0:20, 0:30]", {"e": expected, "y": y})
    assert_close(run(body, x, y), expected)


INTEGERS = ("int32", "uint32", "int16", "uint16", "int8", "uint8")


def integers(dtype: str, *, small: bool = False) -> np.ndarray:
    limits = np.iinfo(TYPES[dtype])
    low, high = (max(limits.min, -60), min(limits.max, 60)) if small else (limits.min, limits.max)
    return RNG.integers(low, high, SHAPE, endpoint=True).astype(TYPES[dtype])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_combine_as_in_numpy(name: str, dtype: str) -> None:
    x, y = integers(dtype), integers(dtype)
    found = run(TWO_TILES.format(shape="x.shape", out="x.dtype", expression=f"nl.{name}(a, b)"), x, y)
    np.testing.assert_array_equal(found, getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_shift_and_invert(dtype: str) -> None:
    x = integers(dtype)
    unsigned = x.view(f"u{x.dtype.itemsize}")
    found = [
        run(ONE_TILE.format(out="x.dtype", expression=call), x)
        for call in ("nl.left_shift(nl.load(x), 3)", "nl.right_shift(nl.load(x), 2)", "nl.invert(nl.load(x))")
    ]
    np.testing.assert_array_equal(found[0].view(unsigned.dtype), unsigned << 3)
    np.testing.assert_array_equal(found[1].view(unsigned.dtype), unsigned >> 2)
    np.testing.assert_array_equal(found[2], ~x)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum"])
def test_integer_arithmetic_saturates(name: str, dtype: str) -> None:
    x, y = integers(dtype), integers(dtype)
    found = run(TWO_TILES.format(shape="x.shape", out="x.dtype", expression=f"nl.{name}(a, b)"), x, y)
    exact = BINARY[name](x.astype(np.int64), y.astype(np.int64))
    if np.abs(exact).max() > 1 << 24:
        exact = exact.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(found, stored(exact, x.dtype))


def test_int32_products_are_exact() -> None:
    x, y = integers("int16").astype(np.int32), integers("int16").astype(np.int32)
    found = run(TWO_TILES.format(shape="x.shape", out="x.dtype", expression="nl.multiply(a, b)"), x, y)
    np.testing.assert_array_equal(found, x * y)


def test_a_quotient_of_integers_is_a_float() -> None:
    x, y = integers("int16"), np.abs(integers("int16", small=True)) + np.int16(1)
    found = run(TWO_TILES.format(shape="x.shape", out="nl.float32", expression="nl.divide(a, b)"), x, y)
    assert_close(found, stored(x / y, np.float32))


PROMOTIONS = {
    ("bfloat16", "float16"): "float32",
    ("float8_e4m3", "float8_e5m2"): "bfloat16",
    ("float8_e4m3", "float16"): "float16",
    ("int32", "bfloat16"): "bfloat16",
    ("int8", "uint8"): "int16",
    ("int16", "uint16"): "int32",
    ("int32", "uint32"): "float32",
    ("float32", "int8"): "float32",
}


@pytest.mark.parametrize("types", PROMOTIONS, ids="+".join)
def test_operands_of_two_types_promote(types: tuple[str, str]) -> None:
    x, y = (stored(RNG.integers(0, 8, SHAPE), TYPES[t]) for t in types)
    kernel = traced(TWO_TILES.format(shape="x.shape", out="nl.float32", expression="nl.add(a, b)"), x, y)
    added = next(i for i, _ in kernel.walk() if i.op == "nl.add")
    assert added.dst.dtype == TYPES[PROMOTIONS[types]]


def test_where_takes_tiles_numbers_and_columns() -> None:
    x, y = pair("add")
    for expression, expected in (
        ("nl.where(a > b, a, b)", np.maximum(x, y)),
        ("nl.where(a > 0, a, 0.25)", np.where(x > 0, x, np.float32(0.25))),
        ("nl.where(a[:, 0:1] > 0, a, b)", np.where(x[:, :1] > 0, x, y)),
        ("nl.where(a, 1.0, b)", np.where(x != 0, np.float32(1), y)),
    ):
        found = run(TWO_TILES.format(shape="x.shape", out="nl.float32", expression=expression), x, y)
        np.testing.assert_array_equal(found, expected, err_msg=expression)


EDGES = np.array(
    [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.4999, 126.5, 127.5, 128.5, 255.5, 300.0, -128.5, -300.0, 40000.0, -40000.0, 7e4]
)  # fmt: skip
CASTS = {
    "nl.copy": "nl.copy(nl.load(x), dtype=out.dtype)",
    "nl.static_cast": "nl.static_cast(nl.load(x), out.dtype)",
    "nl.load": "nl.load(x, dtype=out.dtype)",
    "nl.store": "nl.load(x)",
    "nisa.tensor_copy": "nisa.tensor_copy(nl.load(x), dtype=out.dtype)",
    "nisa.activation": "nisa.activation(nl.copy, nl.load(x), dtype=out.dtype)",
    "an operation": "nl.add(nl.load(x), 0.0, dtype=out.dtype)",
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("way", CASTS)
def test_casts_to_integers_round_to_even_and_saturate(way: str, dtype: str) -> None:
    x = np.resize(EDGES, (3, 35)).astype(np.float32)
    out = f"nl.{dtype}"
    found = run(ONE_TILE.format(out=out, expression=CASTS[way]), x)
    np.testing.assert_array_equal(found, stored(x, TYPES[dtype]))


@pytest.mark.parametrize("to", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("way", CASTS)
def test_casts_to_short_floats_round_to_nearest(way: str, to: str) -> None:
    x = RNG.normal(size=SHAPE).astype(np.float32)
    found = run(ONE_TILE.format(out=f"nl.{to}", expression=CASTS[way]), x)
    np.testing.assert_array_equal(found, x.astype(TYPES[to]))


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("of", TYPES)
def test_small_integers_survive_every_cast(of: str, to: str) -> None:
    x = stored(np.arange(8).reshape(2, 4), TYPES[of])
    found = run(ONE_TILE.format(out=f"nl.{to}", expression="nl.copy(nl.load(x), dtype=out.dtype)"), x)
    np.testing.assert_array_equal(found, stored(np.arange(8).reshape(2, 4), TYPES[to]))


def test_element_types_are_callable_and_comparable() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    assert x.dtype == nl.bfloat16 and x.dtype != nl.float32 and nl.bfloat16 in (nl.float32, nl.bfloat16)
    half = nl.float32(0.5)
    nl.store(out, nl.multiply(nl.load(x), half))
    return out
    """
    x = uniform(-2, 2, "bfloat16")
    np.testing.assert_array_equal(run(body, x), (x.astype(np.float32) / 2).astype(x.dtype))


def test_numpy_scalars_and_numpy_functions_name_operations() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    t = nisa.tensor_scalar(nl.load(x), op0=np.multiply, operand0=np.float32(2), op1=np.add, operand1=np.int32(1))
    nl.store(out, nl.maximum(t, np.float64(0.5)))
    return out
    """
    x = uniform(-2, 2)
    assert_close(run(body, x), np.maximum(2 * x + 1, np.float32(0.5)))


def test_dropout_and_random_values_are_repeatable() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    noise = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.random_seed(3)
    nl.store(out, nl.dropout(nl.load(x), 0.25))
    nl.store(noise, nl.rand(x.shape))
    return out, noise
    """
    x = np.ones((64, 200), np.float32)
    (kept, noise), again = run_all(body, x), run_all(body, x)
    np.testing.assert_array_equal(kept, again[0])
    np.testing.assert_array_equal(noise, again[1])
    assert 0 <= noise.min() and noise.max() < 1 and 0.4 < noise.mean() < 0.6
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1)} and 0.2 < (kept == 0).mean() < 0.3


def test_a_number_needs_no_tile() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    assert nl.maximum(3, 4) == 4 and nl.sqrt(4.0) == 2.0
    nl.store(out, nl.add(nl.load(x), nl.exp(0.0)))
    return out
    """
    x = uniform(-1, 1)
    kernel = traced(body, x)
    assert ops(kernel) == ["nl.load", "nl.add", "nl.store"]
