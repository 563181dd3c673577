"""Instructions of the scalar, vector and gpsimd engines against NumPy: operands, masks, element types, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .running import TYPES, assert_close, instructions, line_of, refusal, run, run_all, stored, traced

RNG = np.random.default_rng(25)
P, F = 37, 44
Function = Callable[..., Any]


def uniform(low: float, high: float, *shape: int, dtype: str = "float32") -> np.ndarray:
    return stored(RNG.uniform(low, high, shape or (P, F)), TYPES[dtype])


ONE = """
out = nl.ndarray({shape}, dtype={out}, buffer=nl.shared_hbm)
a, b, s, t = nl.load(x), nl.load(y), nl.load(z), nl.load(u)
nl.store(out, {expression})
return out
"""


def one(
    expression: str,
    a: np.ndarray,
    b: np.ndarray,
    s: np.ndarray,
    t: np.ndarray,
    *,
    shape: str = "x.shape",
    out: str = "nl.float32",
    target: str = "trn1",
) -> np.ndarray:
    body = ONE.format(shape=shape, out=out, expression=expression)
    return run(body, a, b, s, t, parameters="x, y, z, u", target=target)


A, B = uniform(0.25, 2), uniform(0.25, 2)
S, T = uniform(0.5, 1.5, P, 1), uniform(0.1, 1, P, 1)

ACTIVATIONS: dict[str, tuple[str, Function]] = {
    "function alone": ("nisa.activation(nl.exp, a)", lambda a, b, s, t: np.exp(a)),
    "a bias": ("nisa.activation(op=nl.exp, data=a, bias=t)", lambda a, b, s, t: np.exp(a + t)),
    "a bias by index": (
        "nisa.activation(op=nl.square, data=a, bias=t[nl.arange(37)[:, None], 0])",
        lambda a, b, s, t: (a + t) ** 2,
    ),
    "a number as scale": (
        "nisa.activation(op=np.tanh, data=a, bias=t, scale=-0.5)",
        lambda a, b, s, t: np.tanh(t - 0.5 * a),
    ),
    "a column as scale": (
        "nisa.activation(op=nl.rsqrt, data=a, bias=t, scale=s)",
        lambda a, b, s, t: 1 / np.sqrt(a * s + t),
    ),
    "a copy": ("nisa.activation(nl.copy, a, scale=3)", lambda a, b, s, t: 3 * a),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("form", ACTIVATIONS)
def test_activations_scale_add_and_apply(form: str, dtype: str) -> None:
    expression, function = ACTIVATIONS[form]
    a = stored(A, TYPES[dtype])
    found = one(expression, a, B, S, T, out="x.dtype")
    expected = function(*(v.astype(np.float64) for v in (a, B, S, T)))
    assert_close(found, stored(expected, a.dtype), rtol=1e-5)


TENSOR_SCALAR: dict[str, tuple[str, Function]] = {
    "one operation": ("nisa.tensor_scalar(a, np.add, 1.5)", lambda a, s, t: a + 1.5),
    "a column": ("nisa.tensor_scalar(a, op0=nl.multiply, operand0=s)", lambda a, s, t: a * s),
    "reversed": ("nisa.tensor_scalar(a, np.subtract, 1.0, True)", lambda a, s, t: 1 - a),
    "two operations": (
        "nisa.tensor_scalar(a, np.subtract, s, False, np.multiply, t)",
        lambda a, s, t: (a - s) * t,
    ),
    "both reversed": (
        "nisa.tensor_scalar(a, nl.power, 2.0, reverse0=True, op1=nl.subtract, operand1=t, reverse1=True)",
        lambda a, s, t: t - 2**a,
    ),
    "a comparison": (
        "nisa.tensor_scalar(a, nl.greater, s, op1=nl.multiply, operand1=2.0)",
        lambda a, s, t: (a > s) * 2.0,
    ),
    "maximum and minimum": (
        "nisa.tensor_scalar(a, np.maximum, 0.5, op1=np.minimum, operand1=1.0)",
        lambda a, s, t: np.clip(a, 0.5, 1),
    ),
    "power on gpsimd": (
        "nisa.tensor_scalar(a, nl.power, 1.5, engine=nisa.gpsimd_engine)",
        lambda a, s, t: a**1.5,
    ),
    "rsqrt": ("nisa.tensor_scalar(a, nl.add, 0.5, op1=nl.rsqrt)", lambda a, s, t: 1 / np.sqrt(a + 0.5)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", TENSOR_SCALAR)
def test_tensor_scalar_applies_one_or_two_operations(form: str, dtype: str) -> None:
    expression, function = TENSOR_SCALAR[form]
    a = stored(A, TYPES[dtype])
    found = one(expression, a, B, S, T, out="x.dtype")
    expected = function(*(v.astype(np.float64) for v in (a, S, T)))
    assert_close(found, stored(expected, a.dtype), rtol=1e-5)


TENSOR_TENSOR: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "mod": np.mod,
    "equal": np.equal,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "logical_and": np.logical_and,
    "logical_xor": np.logical_xor,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", TENSOR_TENSOR)
def test_tensor_tensor_keeps_the_promoted_type(op: str, dtype: str) -> None:
    a, b = stored(A, TYPES[dtype]), stored(B, TYPES[dtype])
    b[::2, ::3] = a[::2, ::3]
    found = one(f"nisa.tensor_tensor(a, b, op=nl.{op})", a, b, S, T, out="x.dtype")
    expected = TENSOR_TENSOR[op](a.astype(np.float64), b.astype(np.float64))
    assert_close(found, stored(expected, a.dtype), rtol=1e-5)


@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_xor", "left_shift", "right_shift"])
def test_tensor_tensor_works_on_bits(op: str) -> None:
    a, b = (RNG.integers(0, high, (P, F)).astype(np.uint16) for high in (1 << 16, 16))
    found = one(f"nisa.tensor_tensor(a, b, op=nl.{op})", a, b, S, T, out="x.dtype")
    np.testing.assert_array_equal(found, getattr(np, op)(a, b))


def test_instructions_take_one_operand_from_psum() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    p = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
    p[...] = nl.load(y)
    nl.store(out, nisa.scalar_tensor_tensor(data=p, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=a))
    return out
    """
    assert_close(run(body, A, B), 2 * B + A)


STT: dict[str, tuple[str, Function]] = {
    "plain": ("op0=np.multiply, operand0=s, op1=np.add, operand1=b", lambda a, b, s: a * s + b),
    "reversed": (
        "op0=np.subtract, operand0=1.0, reverse0=True, op1=np.subtract, operand1=b, reverse1=True",
        lambda a, b, s: b - (1 - a),
    ),
    "a comparison": ("op0=nl.less, operand0=s, op1=nl.multiply, operand1=b", lambda a, b, s: (a < s) * b),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", STT)
def test_scalar_tensor_tensor_chains_two_operations(form: str, dtype: str) -> None:
    arguments, function = STT[form]
    a, b = stored(A, TYPES[dtype]), stored(B, TYPES[dtype])
    found = one(f"nisa.scalar_tensor_tensor(data=a, {arguments})", a, b, S, T, out="x.dtype")
    expected = function(*(v.astype(np.float64) for v in (a, b, S)))
    assert_close(found, stored(expected, a.dtype), rtol=1e-5)


SCANS: dict[str, tuple[str, Function]] = {
    "decay": ("0.5, np.multiply, np.add", lambda r, a, b: a * r + b),
    "from a column": ("s, np.multiply, np.add", lambda r, a, b: a * r + b),
    "running maximum": ("-1.0, np.maximum, np.multiply", lambda r, a, b: np.maximum(a, r) * b),
    "reversed": (
        "0.0, np.subtract, np.subtract, reverse0=True, reverse1=True",
        lambda r, a, b: b - (r - a),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", SCANS)
def test_scans_carry_a_value_along_the_free_axis(form: str, dtype: str) -> None:
    arguments, step = SCANS[form]
    a, b = uniform(0.1, 0.9, dtype=dtype), uniform(-1, 1, dtype=dtype)
    found = one(f"nisa.tensor_tensor_scan(a, b, {arguments})", a, b, S, T, out="x.dtype")
    first = arguments.split(",")[0]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    state = S[:, 0].astype(np.float64) if first == "s" else np.full(P, float(first))
    expected = np.empty((P, F))
    for k in range(F):
        state = step(state, wide_a[:, k], wide_b[:, k])
        expected[:, k] = state
    assert_close(found, stored(expected, a.dtype), rtol=1e-4, atol=1e-5)


def test_scalar_and_tensor_results_reduce_in_the_same_instruction() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    r = nl.ndarray((nl.par_dim(x.shape[0]), 1), dtype=nl.float32)
    v = nisa.tensor_scalar_reduce(data=nl.load(x), op0=np.multiply, operand0=nl.load(y), reduce_op=np.max, reduce_res=r)
    nl.store(out, v)
    nl.store(sums, r)
    return out, sums
    """
    out, sums = run_all(body, A, S)
    assert_close(out, A * S)
    assert_close(sums, (A * S).max(1, keepdims=True))


def test_predicated_copies_keep_the_rest() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    a, d, k = nl.load(x), nl.load(y), nl.load(z)
    nisa.tensor_copy_predicated(src=a, dst=d, predicate=k)
    nisa.tensor_copy_predicated(src=-1.0, dst=d[:, 0:9], predicate=k[:, 0:9], reverse_pred=True)
    nl.store(out, d)
    return out
    """
    keep = RNG.integers(0, 2, (P, F)).astype(np.uint8)
    expected = np.where(keep, A, B)
    expected[:, :9][keep[:, :9] == 0] = -1
    np.testing.assert_array_equal(run(body, A, B, keep), expected)


@pytest.mark.parametrize(
    ("arguments", "pick"),
    [
        ("on_false=0.25", lambda k: np.where(k, A, np.float32(0.25))),
        ("on_false=s", lambda k: np.where(k, A, S)),
        ("on_false=s, reverse_pred=True", lambda k: np.where(k == 0, A, S)),
    ],
)
def test_select_reduce_selects_and_takes_the_maximum(arguments: str, pick: Function) -> None:
    body = f"""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    most = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    a, k, s = nl.load(x), nl.load(y), nl.load(z)
    d = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    r = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.select_reduce(dst=d, predicate=k, on_true=a, {arguments}, reduce_res=r,
                       reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=nl.max)
    nl.store(out, d)
    nl.store(most, r)
    return out, most
    """
    keep = RNG.integers(0, 2, (P, F)).astype(np.uint8)
    out, most = run_all(body, A, keep, S)
    np.testing.assert_array_equal(out, pick(keep))
    np.testing.assert_array_equal(most, pick(keep).max(1, keepdims=True))


def test_range_select_keeps_positions_between_bounds() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    most = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    r = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.sbuf)
    v = nisa.range_select(on_true_tile=nl.load(x), comp_op0=np.greater_equal, comp_op1=np.less, bound0=nl.load(y),
                          bound1=nl.load(z), range_start=5, on_false_value=nl.fp32.min, reduce_res=r,
                          reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max)
    nl.store(out, v)
    nl.store(most, r)
    return out, most
    """
    low = RNG.integers(0, 20, (P, 1)).astype(np.float32)
    high = low + RNG.integers(6, 30, (P, 1)).astype(np.float32)
    out, most = run_all(body, A, low, high, target="trn2")
    position = np.arange(5, 5 + F)
    expected = np.where((position >= low) & (position < high), A, np.finfo(np.float32).min)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(most, expected.max(1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint16"])
@pytest.mark.parametrize(
    ("predicate", "allowed"),
    [
        ("p >= f", lambda p, f: p >= f),
        ("3 * p - f + 2 > 0", lambda p, f: 3 * p - f + 2 > 0),
        ("f < 20", lambda p, f: f < 20),
        ("p == f", lambda p, f: p == f),
    ],
)
def test_affine_select_compares_positions(predicate: str, allowed: Function, dtype: str) -> None:
    a = stored(A * 20, TYPES[dtype])
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(37)[:, None], nl.arange(44)[None, :]
    nl.store(out, nisa.affine_select(pred=({predicate}), on_true_tile=nl.load(x), on_false_value=3.0))
    return out
    """
    p, f = np.mgrid[0:P, 0:F]
    np.testing.assert_array_equal(run(body, a), np.where(allowed(p, f), a, stored(3, a.dtype)))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16", "uint8"])
@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("p + 2 * f", lambda p, f, k: p + 2 * f),
        ("100 * k + f + 0 * p", lambda p, f, k: 100 * k + f),
        ("3 * p - f - 1", lambda p, f, k: 3 * p - f - 1),
        ("p * 1 + nl.arange(1)[None, :]", lambda p, f, k: p[:, :1]),
    ],
)
def test_iota_writes_positions(expression: str, function: Function, dtype: str) -> None:
    p, f = np.mgrid[0:P, 0:F]
    columns = function(p, f, 0).shape[1]
    body = f"""
    out = nl.ndarray((2, 37, {columns}), dtype=nl.{dtype}, buffer=nl.shared_hbm)
    p, f = nl.arange(37)[:, None], nl.arange(44)[None, :]
    for k in nl.affine_range(2):
        nl.store(out[k], nisa.iota({expression}, dtype=nl.{dtype}))
    return out
    """
    expected = np.stack([np.broadcast_to(function(p, f, k), (P, columns)) for k in range(2)])
    found = run(body, np.zeros((1, 1), np.float32))
    np.testing.assert_array_equal(found, stored(expected, TYPES[dtype]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint8"])
def test_memset_fills_with_a_rounded_constant(dtype: str) -> None:
    body = f"""
    out = nl.ndarray((37, 3, 5), dtype=nl.{dtype}, buffer=nl.shared_hbm)
    nl.store(out, nisa.memset((37, 3, 5), 2.5, dtype=nl.{dtype}, engine=nisa.vector_engine))
    return out
    """
    found = run(body, np.zeros((1, 1), np.float32))
    np.testing.assert_array_equal(found, stored(np.full((37, 3, 5), 2.5), TYPES[dtype]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_eight_largest_are_found_located_and_replaced(dtype: str) -> None:
    body = """
    top = nl.ndarray((37, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    where = nl.ndarray((37, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    rest = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((37, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    t = nl.load(x)
    v = nisa.max8(src=t)
    i = nl.ndarray((37, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nl.store(top, v)
    nl.store(where, nisa.nc_find_index8(data=t, vals=v))
    nl.store(rest, nisa.nc_match_replace8(data=t, vals=v, imm=-9.0, dst_idx=i))
    nl.store(places, i)
    return top, where, rest, places
    """
    order = np.stack([RNG.permutation(60) for _ in range(P)])
    x = stored(order.reshape(P, 3, 20), TYPES[dtype])
    top, where, rest, places = run_all(body, x)
    flat = x.reshape(P, 60)
    expected = np.argsort(-order, axis=1)[:, :8]
    np.testing.assert_array_equal(where, expected)
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(top, np.take_along_axis(flat, expected, 1))
    np.put_along_axis(flat, expected, stored(-9, x.dtype), 1)
    np.testing.assert_array_equal(rest, x)


def test_values_are_replaced_in_place_round_after_round() -> None:
    body = """
    out = nl.ndarray((37, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    for k in nl.static_range(3):
        v = nisa.max8(src=t)
        nl.store(out[:, 8 * k:8 * (k + 1)], v)
        t[...] = nisa.nc_match_replace8(data=t, vals=v, imm=-1e9)
    return out
    """
    x = RNG.normal(size=(P, 60)).astype(np.float32)
    np.testing.assert_array_equal(run(body, x), -np.sort(-x, axis=1)[:, :24])


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_bounds_of_sequences_are_found(dtype: str) -> None:
    body = f"""
    out = nl.ndarray((1, 2, 12), dtype=nl.{dtype}, buffer=nl.shared_hbm)
    nl.store(out, nisa.sequence_bounds(segment_ids=nl.load(x)))
    return out
    """
    ids = stored([[0, 1, 1, 1, 2, 2, 0, 3, 3, 3, 3, 0]], TYPES[dtype])
    starts = [12, 1, 1, 1, 4, 4, 12, 7, 7, 7, 7, 12]
    ends = [-1, 4, 4, 4, 6, 6, -1, 11, 11, 11, 11, -1]
    np.testing.assert_array_equal(run(body, ids), np.array([[starts, ends]]).astype(TYPES[dtype]))


MASKED = {
    "activation": ("nisa.activation(nl.exp, a[p, f], mask={m})", lambda a, b: np.exp(a)),
    "tensor_scalar": ("nisa.tensor_scalar(a[p, f], np.add, 1.0, mask={m})", lambda a, b: a + 1),
    "tensor_tensor": ("nisa.tensor_tensor(a[p, f], b[p, f], np.multiply, mask={m})", lambda a, b: a * b),
    "reciprocal": ("nisa.reciprocal(a[p, f], mask={m})", lambda a, b: 1 / a),
    "tensor_copy": ("nisa.tensor_copy(a[p, f], mask={m})", lambda a, b: a),
    "scalar_tensor_tensor": (
        "nisa.scalar_tensor_tensor(data=a[p, f], op0=np.add, operand0=1.0, op1=np.multiply, operand1=b[p, f], mask={m})",
        lambda a, b: (a + 1) * b,
    ),
    "memset": ("nisa.memset((37, 44), 4.0, dtype=nl.float32, mask={m})", lambda a, b: 0 * a + 4),
    "iota": ("nisa.iota(p + f, dtype=nl.float32, mask={m})", lambda a, b: np.add(*np.mgrid[0:P, 0:F])),
}


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        ("(f < 30)", lambda p, f: f < 30),
        ("(p < 20)", lambda p, f: p < 20),
        ("((f > p) & (p > 31))", lambda p, f: (f > p) & (p > 31)),
    ],
)
@pytest.mark.parametrize("name", MASKED)
def test_a_masked_instruction_keeps_what_was_there_before(name: str, mask: str, allowed: Function) -> None:
    call, function = MASKED[name]
    body = f"""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(37)[:, None], nl.arange(44)[None, :]
    a, b, r = nl.load(x), nl.load(y), nl.full(x.shape, -5.0, dtype=nl.float32)
    r[p, f] = {call.format(m=mask)}
    nl.store(out, r)
    return out
    """
    p, f = np.mgrid[0:P, 0:F]
    assert_close(run(body, A, B), np.where(allowed(p, f), function(A, B), -5).astype(np.float32))


REFUSED = {
    "an activation that does not exist": ("nisa.activation(np.cbrt, a)", "unsupported_op", "cbrt"),
    "an integer bias": (
        "nisa.activation(nl.exp, a, bias=nl.zeros((128, 1), dtype=nl.int32))",
        "err_activation_bias_invalid_type",
        "int32",
    ),
    "a wide bias": ("nisa.activation(nl.exp, a, bias=a)", "invalid_operand", "one element per partition"),
    "a short scale": (
        "nisa.activation(nl.exp, a, scale=nl.zeros((128, 1), dtype=nl.bfloat16))",
        "err_activation_scale_invalid_type",
        "bfloat16",
    ),
    "a bias of reciprocal": ("nisa.activation(nl.reciprocal, a, bias=s)", "unsupported_on_target", "v3"),
    "a maximum in the scalar engine's registers": (
        "nisa.activation(nl.exp, a, reduce_op=np.max, reduce_res=s)",
        "unsupported_op",
        "max",
    ),
    "a wide reduction target": (
        "nisa.activation_reduce(nl.exp, a, reduce_op=nl.add, reduce_res=a)",
        "shape_mismatch",
        "[128, 1]",
    ),
    "an operand without an operation": (
        "nisa.tensor_scalar(a, np.add, 1.0, operand1=2.0)",
        "invalid_operand",
        "op1",
    ),
    "a wide scalar": ("nisa.tensor_scalar(a, np.add, a)", "invalid_operand", "one element per partition"),
    "bits of floats": ("nisa.tensor_scalar(a, nl.bitwise_and, 1)", "invalid_operand_dtype", "float32"),
    "bits and arithmetic": (
        "nisa.tensor_scalar(i, nl.bitwise_and, 1, op1=nl.add, operand1=1)",
        "unsupported_op",
        "mixes",
    ),
    "rsqrt on the vector engine": (
        "nisa.tensor_scalar(a, nl.rsqrt, 0.0, engine=nisa.vector_engine)",
        "unsupported_engine",
        "neither rsqrt nor power",
    ),
    "addition on gpsimd": (
        "nisa.tensor_scalar(a, nl.add, 0.0, engine=nisa.gpsimd_engine)",
        "unsupported_engine",
        "rsqrt and power only",
    ),
    "addition on the scalar engine of trn1": (
        "nisa.tensor_scalar(a, nl.add, 0.0, engine=nisa.scalar_engine)",
        "unsupported_engine",
        "before trn2",
    ),
    "two operands in psum": ("nisa.tensor_tensor(q, q, np.add)", "err_unsupported_memory", "both"),
    "psum on gpsimd": ("nisa.tensor_tensor(q, a, nl.power)", "err_unsupported_memory", "gpsimd"),
    "free sizes that differ": (
        "nisa.tensor_tensor(a, a[:, 0:100], np.add)",
        "shape_mismatch",
        "",
    ),
    "partitions that differ": (
        "nisa.scalar_tensor_tensor(data=a, op0=np.add, operand0=1.0, op1=np.add, operand1=a[0:64])",
        "err_num_partition_mismatch",
        "64",
    ),
    "a scan with a unary operation": (
        "nisa.tensor_tensor_scan(a, a, 0.0, np.multiply, nl.rsqrt)",
        "unsupported_op",
        "rsqrt",
    ),
    "a quotient": ("nisa.tensor_tensor(a, a, np.divide)", "unsupported_op", "divide"),
    "a quotient by a number": ("nisa.tensor_scalar(a, nl.divide, 2.0)", "unsupported_op", "divide"),
    "a power on the vector engine": (
        "nisa.scalar_tensor_tensor(data=a, op0=nl.power, operand0=-1.0, op1=nl.multiply, operand1=a)",
        "unsupported_op",
        "power",
    ),
    "a function of one tile, of two": (
        "nisa.tensor_tensor(a, a, nl.reciprocal)",
        "unsupported_op",
        "reciprocal",
    ),
    "a reduction of quotients": ("nisa.tensor_reduce(np.divide, a, axis=1)", "unsupported_op", "divide"),
    "negated bits": (
        "nisa.tensor_reduce(nl.bitwise_or, i, axis=1, negate=True)",
        "unsupported_op",
        "negates",
    ),
    "a product over partitions": (
        "nisa.tensor_partition_reduce(np.multiply, a)",
        "unsupported_op",
        "multiply",
    ),
    "a predicate of floats": (
        "nisa.tensor_copy_predicated(src=a, dst=a, predicate=a)",
        "invalid_operand_dtype",
        "predicate",
    ),
    "selection by position on trn1": (
        "nisa.range_select(on_true_tile=a, comp_op0=np.less, comp_op1=np.less, bound0=s, bound1=s)",
        "unsupported_on_target",
        "trn2",
    ),
    "a joined predicate": ("nisa.affine_select((p < 3) & (f < 3), a, 0.0)", "invalid_predicate", "joined"),
    "selection in 32-bit integers": ("nisa.affine_select(p < 3, i, 0.0)", "invalid_operand_dtype", "int32"),
    "positions of one axis": ("nisa.iota(nl.arange(128), dtype=nl.int32)", "invalid_operand", "iota"),
    "long statistics": ("nisa.bn_stats(w)", "err_size_of_dimension_exceed_arch_limit", "513"),
    "statistics that are no triples": ("nisa.bn_aggr(a[:, 0:16])", "shape_mismatch", "triples"),
    "few elements for the top eight": (
        "nisa.max8(src=a[:, 0:7])",
        "err_size_of_dimension_exceed_arch_limit",
        "8 to 16384",
    ),
    "seven values": ("nisa.nc_find_index8(data=a, vals=a[:, 0:7])", "shape_mismatch", "8 values"),
    "a short shuffle": ("nisa.nc_stream_shuffle(a, w[:, 0:512], [0, 1])", "invalid_operand", "2 values"),
    "sequences in several partitions": ("nisa.sequence_bounds(segment_ids=a)", "shape_mismatch", "128"),
    "random loss by an integer": (
        "nisa.dropout(a, i[:, 0:1])",
        "invalid_operand_dtype",
        "prob",
    ),
    "a keyword that does not exist": (
        "nisa.activation(nl.exp, a, axis=1)",
        "unexpected_argument",
        "axis",
    ),
    "a missing argument": ("nisa.tensor_tensor(a, a)", "unexpected_argument", "op"),
    "an engine for activations": (
        "nisa.memset((4, 4), 0, dtype=nl.int8, engine=nisa.scalar_engine)",
        "unsupported_engine",
        "scalar",
    ),
    "an operand in hbm": ("nisa.activation(nl.exp, x)", "err_unsupported_memory", "hbm"),
    "a number for a tile": ("nisa.reciprocal(2.0)", "invalid_operand", "float"),
    "a tile for a number": ("nisa.memset((4, 4), a, dtype=nl.int8)", "invalid_operand", ""),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_an_instruction_refuses(fault: str) -> None:
    call, name, said = REFUSED[fault]
    body = f"""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    a, w = nl.load(x[0:128, 0:512]), nl.load(x[0:128, 0:513])
    s = nl.zeros((128, 1), dtype=nl.float32)
    i = nl.zeros((128, 512), dtype=nl.int32)
    q = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    r = {call}
    nl.store(out, a)
    return out
    """
    error = refusal(body)
    assert error.name == name and said in error.message + (error.remedy or ""), error
    assert error.line == line_of("r = n", body) and error.remedy


def test_a_wrong_argument_is_answered_with_the_signature() -> None:
    body = """
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.tensor_reduce(np.add, nl.load(x[0:128, 0:9]), axes=1))
    return out
    """
    error = refusal(body)
    assert error.name == "unexpected_argument" and "axes" in error.message
    assert "tensor_reduce(op, data, axis, *, mask=None" in (error.remedy or "")


def test_the_engine_is_noted_where_the_kernel_chooses_it() -> None:
    body = """
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nisa.tensor_copy(nl.load(x[0:128, 0:64]), engine=nisa.gpsimd_engine)
    u = nisa.tensor_scalar(t, np.add, 1.0, engine=nisa.vector_engine)
    nl.store(out, nisa.tensor_tensor(u, t, np.add))
    return out
    """
    kernel = traced(body, np.zeros((128, 64), np.float32))
    assert [i.attrs["engine"] for i in instructions(kernel) if "engine" in i.attrs] == [
        "gpsimd",
        "vector",
        "unknown",
    ]


def test_the_generation_decides_what_the_scalar_engine_takes() -> None:
    expression = "nisa.tensor_scalar(a, nl.multiply, s, op1=nl.add, operand1=t, engine=nisa.scalar_engine)"
    assert_close(one(expression, A, B, S, T, target="trn2"), A * S + T)
    body = ONE.format(shape="x.shape", out="nl.float32", expression=expression)
    assert refusal(body, [A, B, S, T], parameters="x, y, z, u").name == "unsupported_engine"


def test_a_kernel_asks_for_its_generation() -> None:
    body = """
    out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    newer = nisa.get_nc_version() >= nisa.nc_version.gen3
    nl.store(out, nl.full((4, 4), 2.0 if newer else 1.0, dtype=nl.float32))
    return out
    """
    zero = np.zeros((4, 4), np.float32)
    assert run(body, zero)[0, 0] == 1 and run(body, zero, target="trn2")[0, 0] == 2
