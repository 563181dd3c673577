"""Reductions along free axes, over partitions and over loops, and what is made of them, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .running import TYPES, assert_close, instructions, refusal, run, run_all, stored, traced

RNG = np.random.default_rng(22)
Function = Callable[..., Any]


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return stored(RNG.normal(size=shape), TYPES[dtype])


REDUCTIONS: dict[str, Function] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "prod": np.prod,
}
REDUCED = """
out = nl.ndarray({shape}, dtype={out}, buffer=nl.shared_hbm)
t = nl.load(x)
nl.store(out, {expression})
return out
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_free_axis_is_reduced_in_float32_and_rounded_once(name: str, dtype: str) -> None:
    x = stored(RNG.uniform(0.5, 1.5, (37, 9)), TYPES[dtype])
    found = run(REDUCED.format(shape="(37, 1)", out="x.dtype", expression=f"nl.{name}(t, axis=1)"), x)
    expected = REDUCTIONS[name](x.astype(np.float64), axis=1, keepdims=True)
    assert_close(found, stored(expected, x.dtype), rtol=1e-5)


@pytest.mark.parametrize(
    ("axis", "keepdims", "shape"),
    [
        ("[1]", False, (19, 7, 4)),
        ("[2]", False, (19, 5, 4)),
        ("[1, 2]", False, (19, 4)),
        ("(2, 3)", False, (19, 5)),
        ("[1, 2, 3]", False, (19, 1)),
        ("[-1]", True, (19, 5, 7, 1)),
        ("[1, 3]", True, (19, 1, 7, 1)),
        ("[1, 2, 3]", True, (19, 1, 1, 1)),
    ],
)
@pytest.mark.parametrize("name", ["sum", "max", "mean"])
def test_any_free_axes_of_several_are_reduced(
    name: str, axis: str, keepdims: bool, shape: tuple[int, ...]
) -> None:
    x = normal(19, 5, 7, 4)
    found = run(
        REDUCED.format(
            shape=shape, out="x.dtype", expression=f"nl.{name}(t, axis={axis}, keepdims={keepdims})"
        ),
        x,
    )
    axes = tuple(int(a) for a in axis.strip("[]()").split(","))
    expected = REDUCTIONS[name](x.astype(np.float64), axis=axes, keepdims=keepdims).reshape(shape)
    assert_close(found, stored(expected, np.float32), rtol=1e-5, atol=1e-5)


MASKED_REDUCTIONS: dict[str, tuple[str, Function]] = {
    "columns": ("f < 30", lambda x, p, f: f < 30),
    "a diagonal": ("f <= p", lambda x, p, f: f <= p),
    "a band": ("(f - p < 9) & (f + 1 > p)", lambda x, p, f: (f - p < 9) & (f + 1 > p)),
}


@pytest.mark.parametrize("mask", MASKED_REDUCTIONS)
@pytest.mark.parametrize(
    ("call", "function", "empty"),
    [
        ("nl.sum(t[p, f], axis=1, mask={mask})", np.sum, 0),
        ("nl.max(t[p, f], axis=1, mask={mask})", np.max, -np.inf),
        ("nisa.tensor_reduce(np.min, t[p, f], axis=[1], mask={mask})", np.min, np.inf),
    ],
)
def test_a_masked_reduction_takes_in_what_the_mask_lets_through(
    mask: str, call: str, function: Function, empty: float
) -> None:
    condition, allowed = MASKED_REDUCTIONS[mask]
    body = REDUCED.format(shape="(37, 1)", out="nl.float32", expression="r")
    body = body.replace(
        "nl.store", f"p, f = nl.mgrid[0:37, 0:40]\nr = {call.format(mask=condition)}\nnl.store"
    )
    x = normal(37, 40)
    p, f = np.mgrid[0:37, 0:40]
    expected = function(np.where(allowed(x, p, f), x, np.float32(empty)), axis=1, keepdims=True)
    assert_close(run(body, x), expected.astype(np.float32), rtol=1e-5, atol=1e-5)


OPERATIONS: dict[str, Function] = {
    "np.add": np.sum,
    "nl.multiply": np.prod,
    "np.max": np.max,
    "nl.minimum": np.min,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("op", OPERATIONS)
def test_tensor_reduce_takes_operations_as_values_and_may_negate(op: str, negate: bool, dtype: str) -> None:
    x = stored(RNG.uniform(0.5, 1.5, (45, 3, 4)), TYPES[dtype])
    call = f"nisa.tensor_reduce({op}, t, axis=[1, 2], dtype=nl.float32, negate={negate})"
    found = run(REDUCED.format(shape="(45, 1)", out="nl.float32", expression=call), x)
    expected = OPERATIONS[op](x.astype(np.float64), axis=(1, 2)).reshape(45, 1) * (-1 if negate else 1)
    assert_close(found, stored(expected, np.float32), rtol=1e-5)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_are_reduced(name: str) -> None:
    x = RNG.integers(0, 256, (45, 12)).astype(np.uint8)
    call = f"nisa.tensor_reduce(nl.{name}, t, axis=1)"
    found = run(REDUCED.format(shape="(45, 1)", out="nl.uint8", expression=call), x)
    np.testing.assert_array_equal(found, getattr(np, name).reduce(x, axis=1, keepdims=True))


def test_sums_of_short_integers_saturate() -> None:
    x = RNG.integers(-100, 100, (45, 12)).astype(np.int8)
    found = run(REDUCED.format(shape="(45, 1)", out="nl.int8", expression="nl.sum(t, axis=1)"), x)
    np.testing.assert_array_equal(found, stored(x.astype(np.int64).sum(1, keepdims=True), np.int8))


def test_all_says_whether_no_element_is_zero() -> None:
    x = RNG.integers(0, 4, (45, 3)).astype(np.float32)
    found = run(REDUCED.format(shape="(45, 1)", out="nl.uint8", expression="nl.all(t, axis=1)"), x)
    np.testing.assert_array_equal(found, x.all(axis=1, keepdims=True).astype(np.uint8))


@pytest.mark.parametrize(("op", "function"), [("np.add", np.sum), ("np.max", np.max)])
def test_partitions_are_reduced_on_gpsimd(op: str, function: Function) -> None:
    x = normal(37, 3, 5)
    call = f"nisa.tensor_partition_reduce({op}, t)"
    found = run(REDUCED.format(shape="(1, 3, 5)", out="nl.float32", expression=call), x)
    assert_close(found, function(x, axis=0, keepdims=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_softmax_is_stable_and_sums_to_one(dtype: str) -> None:
    x = stored(RNG.normal(size=(37, 5, 8)) * 30, TYPES[dtype])
    call = "nl.softmax(t, axis=[2], compute_dtype=nl.float32)"
    found = run(REDUCED.format(shape="x.shape", out="nl.float32", expression=call), x)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(2, keepdims=True))
    assert_close(found, stored(e / e.sum(2, keepdims=True), np.float32), rtol=1e-5)


@pytest.mark.parametrize("weight", ["w", "None"])
def test_rms_norm_scales_rows_to_unit_power(weight: str) -> None:
    x, w = normal(37, 48), normal(1, 48)
    body = f"""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    t, w = nl.load(x), nl.load(y)
    nl.store(out, nl.rms_norm(t, {weight}, axis=1, n=48, epsilon=1e-5))
    return out
    """
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    expected = expected * (w if weight == "w" else 1)
    assert_close(run(body, x, w), stored(expected, np.float32), rtol=1e-5)


LOOP_REDUCE = {
    "into a tile of before the loop": "best[...] = nl.loop_reduce(t, op=np.max, loop_indices=[k])",
    "by its own name": "best = nl.loop_reduce(t, op=np.max, loop_indices=[k])",
    "of one loop index": "best[...] = nl.loop_reduce(t, np.max, k)",
}


@pytest.mark.parametrize("form", LOOP_REDUCE)
@pytest.mark.parametrize("loop", ["affine_range", "static_range"])
def test_loop_reduce_reduces_over_iterations_from_the_first_on(form: str, loop: str) -> None:
    body = f"""
    out = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    best = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.{loop}(4):
        t = nl.load(x[32 * k:32 * (k + 1), :])
        {LOOP_REDUCE[form]}
    nl.store(out, best)
    return out
    """
    x = normal(128, 16) - 5
    np.testing.assert_array_equal(run(body, x), x.reshape(4, 32, 16).max(0))


def test_loop_reduce_over_two_loops_begins_anew_for_the_outer_one() -> None:
    body = """
    out = nl.ndarray((2, 32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        total = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(2):
            for k in nl.affine_range(3):
                t = nl.load(x[i, j, k])
                total[...] = nl.loop_reduce(t, op=nl.add, loop_indices=[j, k], dtype=nl.float32)
        nl.store(out[i], total)
    return out
    """
    x = normal(2, 2, 3, 32, 16)
    assert_close(run(body, x), x.sum((1, 2)), rtol=1e-5, atol=1e-5)


def test_batch_statistics_of_long_rows_are_aggregated() -> None:
    body = """
    out = nl.ndarray((45, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    stats = nl.ndarray((45, 3, 6), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.static_range(3):
        stats[:, k, :] = nisa.bn_stats(t[:, 100 * k:100 * (k + 1)])
    nl.store(out, nisa.bn_aggr(stats))
    return out
    """
    x = normal(45, 300)
    wide = x.astype(np.float64)
    expected = np.stack([wide.mean(1), wide.var(1)], axis=1)
    assert_close(run(body, x), stored(expected, np.float32), rtol=1e-5, atol=1e-5)


def test_batch_statistics_tell_even_from_odd_elements() -> None:
    body = """
    out = nl.ndarray((45, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.bn_stats(nl.load(x)))
    return out
    """
    x = normal(45, 33, dtype="bfloat16")
    wide = x.astype(np.float64)
    even, odd = wide[:, 0::2], wide[:, 1::2]
    columns = [f(part) for part in (even, odd) for f in _STATISTICS]
    assert_close(run(body, x), stored(np.stack(columns, axis=1), np.float32), rtol=1e-2, atol=2e-2)


_STATISTICS: tuple[Function, ...] = (
    lambda v: np.full(len(v), v.shape[1]),
    lambda v: v.mean(1),
    lambda v: v.var(1) * v.shape[1],
)


def test_statistics_of_a_masked_free_axis_are_refused() -> None:
    body = """
    out = nl.ndarray((128, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    f = nl.arange(256)[None, :]
    nl.store(out, nisa.bn_stats(nl.load(x[0:128, 0:256]), mask=(f < 10)))
    return out
    """
    assert refusal(body).name == "err_unsupported_expression_in_mask"


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        ("nl.sum(t, axis=1)", "int32"),
        ("nl.mean(t, axis=1)", "float32"),
        ("nl.max(t, axis=1, dtype=nl.bfloat16)", "bfloat16"),
        ("nl.all(t, axis=1)", "uint8"),
    ],
)
def test_the_type_of_a_reduction_of_integers(call: str, dtype: str) -> None:
    x = RNG.integers(0, 9, (8, 12)).astype(np.int32)
    kernel = traced(REDUCED.format(shape="(8, 1)", out="nl.float32", expression=call), x)
    assert instructions(kernel)[1].dst.dtype == TYPES[dtype]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("nl.sum(t, axis=0)", "partition axis"),
        ("nl.sum(t, axis=[1, 4])", "axes [1, 4]"),
        ("nisa.tensor_reduce(np.add, t, axis=[1])", "trailing"),
        ("nisa.tensor_reduce(np.add, t, axis=[1, 3])", "trailing"),
    ],
)
def test_axes_that_cannot_be_reduced_are_named(call: str, said: str) -> None:
    body = f"""
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 2, 3, 4), dtype=nl.float32, buffer=nl.sbuf)
    nl.store(out, {call})
    return out
    """
    error = refusal(body)
    assert error.name == "unsupported_axis" and said in error.message


def test_values_and_their_reduction_come_from_one_instruction() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    r = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.load(x)
    bias = nl.sum(t, axis=1)
    nl.store(out, nisa.activation_reduce(nl.exp, t, reduce_op=np.add, reduce_res=r, bias=bias, scale=0.5))
    nl.store(sums, r)
    return out, sums
    """
    x = normal(37, 3, 4).reshape(37, 12)
    out, sums = run_all(body, x)
    expected = np.exp(x.astype(np.float64) * 0.5 + x.sum(1, keepdims=True, dtype=np.float64))
    assert_close(out, stored(expected, np.float32), rtol=1e-5)
    assert_close(sums, stored(expected.sum(1, keepdims=True), np.float32), rtol=1e-5)


REGISTERS = """
out = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.shared_hbm)
r = nl.ndarray((37, 1), dtype=nl.float32, buffer=nl.sbuf)
t = nl.load(x)
{body}
nl.store(out, r)
return out
"""


def test_registers_of_the_scalar_engine_add_until_they_are_read() -> None:
    body = """
cmd = nisa.reduce_cmd
a = nisa.activation(nl.copy, t[:, 0:4], reduce_op=nl.add, reduce_cmd=cmd.reset_reduce)
b = nisa.activation(nl.copy, t[:, 4:8], reduce_op=nl.add, reduce_cmd=cmd.reduce)
c = nisa.activation(nl.copy, t[:, 8:12], reduce_op=nl.add, reduce_cmd=cmd.reduce, reduce_res=r)
"""
    x = normal(37, 12)
    assert_close(run(REGISTERS.format(body=body), x), x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_a_reset_leaves_nothing_in_the_registers() -> None:
    body = """
cmd = nisa.reduce_cmd
a = nisa.activation(nl.copy, t[:, 0:4], reduce_op=nl.add, reduce_cmd=cmd.reset_reduce)
b = nisa.activation(nl.copy, t[:, 4:8], reduce_cmd=cmd.reset)
c = nisa.activation(nl.copy, t[:, 8:12], reduce_op=nl.add, reduce_cmd=cmd.reduce, reduce_res=r)
"""
    x = normal(37, 12)
    assert_close(run(REGISTERS.format(body=body), x), x[:, 8:].sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_registers_that_nothing_started_are_refused() -> None:
    body = "a = nisa.activation(nl.copy, t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce)\n"
    error = refusal(REGISTERS.format(body=body), [normal(37, 12)])
    assert error.name == "invalid_operand" and "reset_reduce" in (error.remedy or "")
