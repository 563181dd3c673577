"""Instructions and functions of the later `nki` package against NumPy, on odd shapes and short element types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tools.neuroncore import entries, lookup

from . import running
from .running import LATER, TYPES, assert_close, line_of, ops, stored

RNG = np.random.default_rng(28)
P, F = 37, 44
Function = Callable[..., Any]


def run(body: str, *args: Any, target: str = "trn2") -> np.ndarray:
    return running.run(body, *args, target=target, header=LATER)


def uniform(low: float, high: float, *shape: int, dtype: str = "float32") -> np.ndarray:
    return stored(RNG.uniform(low, high, shape or (P, F)), TYPES[dtype])


INTO_A_TILE = """\
out = nl.ndarray({shape}, dtype={dtype}, buffer=nl.shared_hbm)
a, b, s = nl.load(x), nl.load(y), nl.load(z)
d = nl.ndarray({shape}, dtype={dtype}, buffer=nl.sbuf)
{call}
nl.store(out, d)
return out
"""

INSTRUCTIONS: dict[str, tuple[str, Function]] = {
    "activation": (
        "nisa.activation(d, nl.exp, a, bias=s, scale=-0.5)",
        lambda a, b, s: np.exp(s - 0.5 * a),
    ),
    "activation with a number": (
        "nisa.activation(d, nl.sqrt, a, 1.0, 2.0)",
        lambda a, b, s: np.sqrt(2 * a + 1),
    ),
    "activation_reduce": (
        "nisa.activation_reduce(d, nl.square, a, nl.add, s, bias=s)",
        lambda a, b, s: (a + s) ** 2,
    ),
    "tensor_tensor": ("nisa.tensor_tensor(d, a, b, nl.subtract)", lambda a, b, s: a - b),
    "tensor_scalar": (
        "nisa.tensor_scalar(dst=d, data=a, op0=nl.subtract, operand0=s, reverse0=True, op1=nl.maximum, operand1=0.1)",
        lambda a, b, s: np.maximum(s - a, 0.1),
    ),
    "scalar_tensor_tensor": (
        "nisa.scalar_tensor_tensor(d, a, nl.multiply, s, nl.add, b)",
        lambda a, b, s: a * s + b,
    ),
    "reciprocal": ("nisa.reciprocal(d, a)", lambda a, b, s: 1 / a),
    "tensor_copy": ("nisa.tensor_copy(d, a, engine=nisa.engine.vector)", lambda a, b, s: a),
    "memset": ("nisa.memset(d, 2.5)", lambda a, b, s: 0 * a + 2.5),
    "a row broadcast": (
        "nisa.tensor_tensor(d, a, nl.broadcast_to(b[:, 3:4], a.shape), nl.add)",
        lambda a, b, s: a + b[:, 3:4],
    ),
    "a language function": ("d[...] = nl.maximum(nl.exp(a), s)", lambda a, b, s: np.maximum(np.exp(a), s)),
    "softmax": (
        "nisa.tensor_copy(d, nl.softmax(a, axis=-1))",
        lambda a, b, s: np.exp(a) / np.exp(a).sum(1, keepdims=True),
    ),
    "a part of dst": (
        "nisa.tensor_copy(d, b)\nnisa.activation(d[:, 5:20], nl.exp, a[:, 5:20])",
        lambda a, b, s: np.concatenate([b[:, :5], np.exp(a[:, 5:20]), b[:, 20:]], axis=1),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_an_instruction_rounds_into_the_type_of_dst(name: str, dtype: str) -> None:
    call, function = INSTRUCTIONS[name]
    a, b, s = uniform(0.25, 2, dtype=dtype), uniform(0.25, 2, dtype=dtype), uniform(0.5, 1.5, P, 1)
    found = run(INTO_A_TILE.format(shape="x.shape", dtype="x.dtype", call=call), a, b, s)
    expected = function(*(v.astype(np.float64) for v in (a, b, s)))
    assert_close(found, stored(expected, a.dtype), rtol=1e-5)


TILES = {
    "a flat pattern": ("[[2, 44]]", 3, 100, (37, 44), lambda p, f: 3 + 100 * p + 2 * f),
    "two steps": ("[[10, 4], [1, 11]]", 0, 1, (37, 44), lambda p, f: p + 10 * (f // 11) + f % 11),
    "axes of one": ("[[0, 1], [1, 44], [7, 1]]", 0, 0, (37, 44), lambda p, f: f + 0 * p),
    "a loop within": ("[[0, 4], [-1, 11]]", 10, 0, (37, 4, 11), lambda p, f: 10 - f % 11 + 0 * p),
}


@pytest.mark.parametrize("form", TILES)
def test_iota_follows_its_pattern(form: str) -> None:
    pattern, offset, step, shape, function = TILES[form]
    body = f"""
    out = nl.ndarray({shape}, dtype=nl.int32, buffer=nl.shared_hbm)
    d = nl.ndarray({shape}, dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(d, {pattern}, {offset}, {step})
    nl.store(out, d)
    return out
    """
    p, f = np.mgrid[0:P, 0:F]
    np.testing.assert_array_equal(run(body, np.zeros((1, 1), np.float32)).reshape(P, F), function(p, f))


COMPARED = {
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}


@pytest.mark.parametrize("name", COMPARED)
def test_affine_select_compares_with_zero(name: str) -> None:
    call = f"nisa.affine_select(d, [[-1, 44]], 1, a, 0.5, nl.{name}, 2)"
    a = uniform(-2, 2)
    found = run(INTO_A_TILE.format(shape="x.shape", dtype="x.dtype", call=call), a, a, uniform(0, 1, P, 1))
    p, f = np.mgrid[0:P, 0:F]
    np.testing.assert_array_equal(found, np.where(COMPARED[name](2 + p - f, 0), a, np.float32(0.5)))


def test_reductions_of_any_free_axis_and_their_registers() -> None:
    body = """
    out = nl.ndarray((37, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    r = nl.ndarray((37, 3), dtype=nl.float32, buffer=nl.sbuf)
    d = nl.ndarray((37, 4, 11), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(r[:, 0:1], nl.maximum, a, axis=(1, 2))
    half = nl.ndarray((37, 11), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(half, nl.add, a, axis=1)
    nisa.tensor_reduce(r[:, 1:2], nl.add, half, axis=1, negate=True)
    cmd = nisa.reduce_cmd
    nisa.tensor_scalar_reduce(d[:, 0:2], a[:, 0:2], nl.multiply, 2.0, nl.add, r[:, 2:3], reduce_cmd=cmd.reset_reduce)
    nisa.tensor_scalar_reduce(d[:, 2:4], a[:, 2:4], nl.multiply, 2.0, nl.add, r[:, 2:3], reduce_cmd=cmd.reduce)
    nl.store(out, r)
    return out
    """
    a = uniform(-1, 1, 37, 4, 11)
    wide = a.astype(np.float64)
    expected = np.stack([wide.max((1, 2)), -wide.sum((1, 2)), 2 * wide.sum((1, 2))], axis=1)
    assert_close(run(body, a), stored(expected, np.float32), rtol=1e-5, atol=1e-5)


def test_the_eight_largest_are_found_and_replaced_in_place() -> None:
    body = """
    out = nl.ndarray((37, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    top = nl.ndarray((37, 8), dtype=nl.float32, buffer=nl.sbuf)
    where = nl.ndarray((37, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.max8(top, a)
    nisa.nc_find_index8(where, a, top)
    nl.store(out[:, 0:8], top)
    nl.store(out[:, 8:16], nl.copy(where, dtype=nl.float32))
    nisa.nc_match_replace8(a, a, top, -1e9)
    nisa.max8(top, a)
    nl.store(out[:, 0:8], top)
    return out
    """
    x = RNG.normal(size=(P, 60)).astype(np.float32)
    order = np.argsort(-x, axis=1)
    expected = np.concatenate([-np.sort(-x, axis=1)[:, 8:16], order[:, :8].astype(np.float32)], axis=1)
    np.testing.assert_array_equal(run(body, x), expected)


def test_elements_are_gathered_within_partitions() -> None:
    body = """
    out = nl.ndarray((37, 9), dtype=x.dtype, buffer=nl.shared_hbm)
    d = nl.ndarray((37, 9), dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_n_gather(d, nl.load(x), nl.load(y))
    nl.store(out, d)
    return out
    """
    x, i = uniform(-1, 1, dtype="bfloat16"), RNG.integers(0, F, (P, 9)).astype(np.uint32)
    np.testing.assert_array_equal(run(body, x, i), np.take_along_axis(x, i.astype(np.int64), 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_accumulate_from_the_second_on(dtype: str) -> None:
    body = """
    out = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.psum)
    for k in range(3):
        nisa.nc_matmul(acc, nl.load(x[32 * k:32 * k + 32]), nl.load(y[32 * k:32 * k + 32]))
    d = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(d, acc)
    nl.store(out, d)
    return out
    """
    x, y = uniform(-1, 1, 96, 20, dtype=dtype), uniform(-1, 1, 96, 30, dtype=dtype)
    assert_close(run(body, x, y), x.astype(np.float32).T @ y.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_pairs_of_rows_are_contracted_at_once() -> None:
    body = """
    out = nl.ndarray((24, 40), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((24, 40), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(acc, nl.load(x), nl.load(y), perf_mode=nisa.matmul_perf_mode.double_row)
    nl.store(out, nl.copy(acc))
    return out
    """
    x, y = uniform(-1, 1, 32, 2, 24, dtype="float8_e4m3"), uniform(-1, 1, 32, 2, 40, dtype="float8_e4m3")
    expected = np.einsum("krm,krn->mn", x.astype(np.float32), y.astype(np.float32))
    assert_close(run(body, x, y), expected, rtol=1e-5, atol=1e-5)


TRANSPOSES = {
    "on the tensor engine": ("psum", "nisa.nc_transpose(d, a, engine=nisa.engine.tensor)"),
    "where dst is in psum": ("psum", "nisa.nc_transpose(d, a)"),
    "by dma": ("sbuf", "nisa.dma_transpose(d, x)"),
    "by a product with the identity": (
        "psum",
        "nisa.nc_matmul(d, a, nl.shared_identity_matrix(37, dtype=x.dtype), is_transpose=True)",
    ),
}


@pytest.mark.parametrize("way", TRANSPOSES)
def test_tiles_are_transposed(way: str) -> None:
    buffer, call = TRANSPOSES[way]
    body = f"""
    out = nl.ndarray((44, 37), dtype=x.dtype, buffer=nl.shared_hbm)
    d = nl.ndarray((44, 37), dtype=x.dtype, buffer=nl.{buffer})
    a = nl.load(x)
    {call}
    nl.store(out, nl.copy(d))
    return out
    """
    x = uniform(-1, 1)
    np.testing.assert_array_equal(run(body, x), x.T)


def test_the_vector_engine_transposes_into_sbuf() -> None:
    body = """
    out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    d = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_transpose(d, nl.load(x))
    nl.store(out, d)
    return out
    """
    x = uniform(-1, 1, 32, 32)
    np.testing.assert_array_equal(run(body, x), x.T)


def test_a_loop_of_functions_runs_its_body_for_every_index() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    def row(i):
        nl.store(out[8 * i:8 * (i + 1)], nl.negative(nl.load(x[8 * i:8 * (i + 1)])))
    nl.fori_loop(0, 4, row)
    return out
    """
    x = uniform(-1, 1, 32, 9)
    np.testing.assert_array_equal(run(body, x), -x)


def test_positions_on_chip_are_read_at_run_time() -> None:
    body = """
    out = nl.ndarray((37, 11), dtype=x.dtype, buffer=nl.shared_hbm)
    a, i = nl.load(x), nl.load(y)
    d = nl.ndarray((37, 11), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(d, a.select(1, i[0:1, 1:2]))
    nl.store(out, d)
    return out
    """
    x, i = uniform(-1, 1, 37, 4, 11), np.array([[1, 3]], np.int32)
    np.testing.assert_array_equal(run(body, x, i), x[:, 3])


def test_rows_are_scattered_and_added_by_dma() -> None:
    body = """
    out = nl.ndarray((60, 9), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.ones((60, 9), dtype=x.dtype))
    i = nl.load(y)
    nisa.dma_copy(dst=out.vector_select(0, i), src=nl.load(x), dst_rmw_op=nl.add)
    return out
    """
    x, i = uniform(-1, 1, P, 9), RNG.permutation(60)[:P].astype(np.int32).reshape(P, 1)
    expected = np.ones((60, 9), np.float32)
    expected[i[:, 0]] += x
    assert_close(run(body, x, i), expected)


def test_partitions_are_shuffled_and_counted() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    d = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_stream_shuffle(d, nl.load(x), [31 - k for k in range(32)])
    nl.store(out, d)
    return out
    """
    x = uniform(-1, 1, 32, 9)
    np.testing.assert_array_equal(run(body, x), x[::-1])


def test_limits_of_the_machine_are_told() -> None:
    body = """
    assert nl.tile_size.pmax == 128 and nl.tile_size.psum_num_banks == 8 and nl.tile_size.sbuf_fmax > 40000
    assert nisa.get_nc_version() == nisa.nc_version.gen3 and nl.is_on_chip(nl.sbuf) and nl.is_hbm(nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    with nl.no_reorder():
        nl.store(out, nl.load(x))
    nl.device_print("x", out)
    return out
    """
    x = uniform(-1, 1)
    np.testing.assert_array_equal(run(body, x), x)


REFUSED = {
    "a sum of products in bfloat16": ("nisa.nc_matmul(h, a[:, 0:64], a)", "invalid_operand_dtype", "float32"),
    "a mask of a load": ("nl.load(x, mask=True)", "unexpected_argument", "mask"),
    "an axis that is not given": ("nl.sum(a)", "unexpected_argument", "axis"),
    "an argument too many": ("nisa.max8(d, a, a, a)", "unexpected_argument", "max8(dst, src, name=None)"),
    "a run-time loop": (
        "nl.while_loop(lambda i: i < 3, lambda i: i, 0)",
        "unsupported_api",
        "sequential_range",
    ),
    "a register": ("nisa.register_alloc(0)", "unsupported_api", "register"),
    "loop_reduce": ("nl.loop_reduce(a, nl.add, [0])", "unknown_api", "loop_reduce"),
    "par_dim": ("nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32)", "unknown_api", "par_dim"),
    "a dst that is a number": ("nisa.memset(3, 0.0)", "invalid_operand", "dst"),
    "a pattern of another size": ("nisa.iota(d, [[1, 63]])", "shape_mismatch", "63"),
    "scaled sums of dma": (
        "nisa.dma_compute(d, [d, a], nl.add, scales=[0.5, 1.0])",
        "unsupported_api",
        "scales",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_the_dialect_refuses(fault: str) -> None:
    call, name, said = REFUSED[fault]
    body = f"""
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    d = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    h = nl.ndarray((64, 64), dtype=nl.bfloat16, buffer=nl.psum)
    r = {call}
    nl.store(out, a)
    return out
    """
    error = running.refusal(body, [uniform(0, 1, 128, 64)], target="trn2", header=LATER)
    assert error.name == name and said in str(error), error
    assert error.line == line_of("r = n", body, header=LATER)


def test_a_number_as_bias_needs_the_newer_core() -> None:
    body = INTO_A_TILE.format(
        shape="x.shape", dtype="x.dtype", call="nisa.activation(d, nl.exp, a, bias=1.0)"
    )
    args = [uniform(0, 1), uniform(0, 1), uniform(0, 1, P, 1)]
    assert (
        running.refusal(body, args, parameters="x, y, z", header=LATER).name
        == "err_activation_bias_invalid_type"
    )
    assert "nisa.activation" in ops(running.traced(body, *args, target="trn2", header=LATER))


def test_signature_cards_show_the_parameters_of_the_dialect() -> None:
    assert lookup("activation_reduce", "nki").signature == (
        "nisa.activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None)"
    )
    assert lookup("nl.softmax", "nki").signature == "nl.softmax(x, axis=-1, dtype=None)"
    assert len(entries("nki")) > 100
    assert not any("*args" in e.signature or "beta1" in e.signature for e in entries("nki"))
