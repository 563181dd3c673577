"""Instructions of `nki.isa` against NumPy, on odd shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .execute import run, run_all

RNG = np.random.default_rng(11)
A = RNG.normal(size=(45, 52)).astype(np.float32)
B = RNG.uniform(0.5, 2, size=(45, 52)).astype(np.float32)
SCALE = RNG.normal(size=(45, 1)).astype(np.float32)
BIAS = RNG.normal(size=(45, 1)).astype(np.float32)

ONE = """
def kernel(a, b, s, t):
    out = nl.ndarray({shape}, dtype={dtype}, buffer=nl.shared_hbm)
    x, y, scale, bias = nl.load(a), nl.load(b), nl.load(s), nl.load(t)
    nl.store(out, {expression})
    return out
"""


def one(
    expression: str, shape: tuple[int, ...] = (45, 52), dtype: str = "nl.float32", target: str = "trn1"
) -> np.ndarray:
    return run(ONE.format(expression=expression, shape=shape, dtype=dtype), A, B, SCALE, BIAS, target=target)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nisa.activation(nl.exp, x, scale=scale, bias=bias)", np.exp(A * SCALE + BIAS)),
        ("nisa.activation(nl.square, x, scale=-0.5)", np.square(A * np.float32(-0.5))),
        ("nisa.activation(nl.copy, x, bias=bias)", A + BIAS),
        ("nisa.tensor_tensor(x, y, op=np.subtract)", A - B),
        ("nisa.tensor_tensor(x, y, op=nl.maximum)", np.maximum(A, B)),
        ("nisa.tensor_scalar(x, nl.subtract, 2.0, reverse0=True)", 2 - A),
        ("nisa.tensor_scalar(x, nl.multiply, scale, op1=nl.add, operand1=bias)", A * SCALE + BIAS),
        ("nisa.tensor_scalar(x, nl.add, 1.0, op1=nl.subtract, operand1=bias, reverse1=True)", BIAS - (A + 1)),
        (
            "nisa.scalar_tensor_tensor(data=x, op0=nl.multiply, operand0=scale, op1=nl.subtract, operand1=y, reverse1=True)",
            B - A * SCALE,
        ),
        ("nisa.reciprocal(y)", 1 / B),
        ("nisa.tensor_copy(x)", A),
        ("nisa.affine_select(nl.arange(45)[:, None] - nl.arange(52)[None, :] >= 0, x, -7.0)",
         np.where(np.arange(45)[:, None] >= np.arange(52), A, np.float32(-7))),
        ("nisa.iota(3 * nl.arange(45)[:, None] + nl.arange(52)[None, :] + 1, dtype=nl.float32)",
         (3 * np.arange(45)[:, None] + np.arange(52) + 1).astype(np.float32)),
        ("nisa.memset((45, 52), 2.5, nl.float32)", np.full((45, 52), np.float32(2.5))),
        ("nl.softmax(x, axis=1)", np.exp(A) / np.exp(A).sum(1, keepdims=True)),
        ("nl.rms_norm(x, y, axis=1, n=52, epsilon=1e-5)", A * B / np.sqrt(np.mean(A**2, axis=1, keepdims=True) + 1e-5)),
    ],
)  # fmt: skip
def test_element_wise_instructions(expression: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(one(expression), expected, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nisa.tensor_reduce(np.add, x, axis=[1])", A.sum(1, keepdims=True)),
        ("nisa.tensor_reduce(np.max, x, axis=1, negate=True)", -A.max(1, keepdims=True)),
        ("nisa.tensor_reduce(np.multiply, y, axis=[1])", B.prod(1, keepdims=True)),
        ("nl.sum(x, axis=1)", A.sum(1, keepdims=True)),
        ("nl.min(x, axis=[1], keepdims=True)", A.min(1, keepdims=True)),
        ("nl.mean(x, axis=1)", A.mean(1, keepdims=True)),
        ("nl.var(x, axis=1)", A.var(1, keepdims=True)),
        ("nl.prod(y, axis=1)", B.prod(1, keepdims=True)),
        ("nl.all(y, axis=1, dtype=nl.float32)", np.ones((45, 1), np.float32)),
        ("nl.sum(x, axis=1, mask=nl.arange(52)[None, :] < 17)", A[:, :17].sum(1, keepdims=True)),
    ],
)
def test_reductions_along_the_free_axis(expression: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(one(expression, (45, 1)), expected, rtol=3e-6, atol=1e-5)


def test_a_reduction_under_a_diagonal_mask_takes_in_what_the_mask_lets_through() -> None:
    expression = (
        "nisa.tensor_reduce(np.max, x, axis=[1], mask=nl.arange(45)[:, None] - nl.arange(52)[None, :] >= 0)"
    )
    below = np.arange(45)[:, None] >= np.arange(52)
    np.testing.assert_array_equal(one(expression, (45, 1)), np.where(below, A, -np.inf).max(1, keepdims=True))


def test_reductions_of_two_free_axes() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((9, 7), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((9, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    nl.store(out, nisa.tensor_reduce(np.max, x, axis=[2]))
    nl.store(total, nl.sum(x, axis=[1, 2]))
    return out, total
"""
    a = RNG.normal(size=(9, 7, 5)).astype(np.float32)
    out, total = run_all(source, a)
    np.testing.assert_array_equal(out, a.max(2))
    np.testing.assert_allclose(total[:, 0], a.sum((1, 2)), rtol=1e-5, atol=1e-5)


def test_reduction_over_partitions() -> None:
    found = one("nisa.tensor_partition_reduce(np.add, x)", (1, 52))
    np.testing.assert_allclose(found, A.sum(0, keepdims=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "values", "reduced"),
    [
        ("nisa.activation(nl.exp, x, scale=0.5, reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
         np.exp(A * 0.5), np.exp(A * 0.5).sum(1, keepdims=True)),
        ("nisa.activation_reduce(nl.square, x, reduce_op=np.add, reduce_res=r, bias=bias)",
         np.square(A + BIAS), np.square(A + BIAS).sum(1, keepdims=True)),
        ("nisa.tensor_scalar_reduce(data=x, op0=nl.multiply, operand0=scale, reduce_op=np.max, reduce_res=r)",
         A * SCALE, (A * SCALE).max(1, keepdims=True)),
    ],
)  # fmt: skip
def test_instructions_with_a_second_result(call: str, values: np.ndarray, reduced: np.ndarray) -> None:
    source = f"""
def kernel(a, s, t):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((45, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    x, scale, bias = nl.load(a), nl.load(s), nl.load(t)
    r = nl.ndarray((45, 1), dtype=nl.float32)
    nl.store(out, {call})
    nl.store(sums, r)
    return out, sums
"""
    out, sums = run_all(source, A, SCALE, BIAS, rtol=1e-5)
    np.testing.assert_allclose(out, values, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(sums, reduced, rtol=1e-5, atol=1e-5)


def test_a_reduction_register_accumulates_over_instructions() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((45, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    r = nl.ndarray((45, 1), dtype=nl.float32)
    nisa.activation(nl.exp, x[:, 0:20], reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    nisa.activation(nl.exp, x[:, 20:52], reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reduce)
    nl.store(out, r)
    return out
"""
    np.testing.assert_allclose(run(source, A, rtol=1e-5), np.exp(A).sum(1, keepdims=True), rtol=1e-5)


def test_batch_norm_statistics() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((45, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    raw = nl.ndarray((45, 12), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    stats = nl.ndarray((45, 12), dtype=nl.float32)
    stats[:, 0:6] = nisa.bn_stats(x[:, 0:31])
    stats[:, 6:12] = nisa.bn_stats(x[:, 31:52])
    nl.store(raw, stats)
    nl.store(out, nisa.bn_aggr(stats))
    return out, raw
"""
    out, raw = run_all(source, A)
    np.testing.assert_allclose(out[:, 0], A.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[:, 1], A.var(1), rtol=1e-5)
    even = A[:, 0:31:2]
    np.testing.assert_allclose(raw[:, 0], 16)
    np.testing.assert_allclose(raw[:, 1], even.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(raw[:, 2], even.var(1) * 16, rtol=1e-5)


def test_top_eight_and_where_they_are() -> None:
    source = """
def kernel(a, v):
    top = nl.ndarray((3, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    where = nl.ndarray((3, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    replaced = nl.ndarray((3, 10), dtype=a.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((3, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    x, vals = nl.load(a), nl.load(v)
    nl.store(top, nisa.max8(src=x))
    nl.store(where, nisa.nc_find_index8(data=x, vals=vals))
    index = nl.ndarray((3, 8), dtype=nl.uint32)
    nl.store(replaced, nisa.nc_match_replace8(data=x, vals=vals, imm=-1.0, dst_idx=index))
    nl.store(places, index)
    return top, where, replaced, places
"""
    a = np.asarray([[5, 1, 5, 2, 9, 0, 7, 7, 3, 4], [1] * 10, list(range(10))], np.float32)
    v = np.asarray([[5, 5, 5, 9, 7, 0, 100, 7], [1] * 8, [9, 8, 7, 6, 5, 4, 3, 2]], np.float32)
    top, where, replaced, places = run_all(source, a, v)
    np.testing.assert_array_equal(top, -np.sort(-a, axis=1)[:, :8])
    none = 0xFFFFFFFF
    np.testing.assert_array_equal(where[0], [0, 2, none, 4, 6, 5, none, 7])
    np.testing.assert_array_equal(where[1], range(8))
    np.testing.assert_array_equal(replaced[0], [-1, 1, -1, 2, -1, -1, -1, -1, 3, 4])
    # Repeated values are served last to first.
    np.testing.assert_array_equal(places[0], [none, 2, 0, 4, 7, 5, none, 6])


def test_stream_shuffle_moves_partitions_within_quadrants() -> None:
    lanes = [*range(31, 15, -1), *[255] * 16]
    source = f"""
def kernel(a, b):
    out = nl.ndarray((64, 6), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    nisa.nc_stream_shuffle(x, y, {lanes})
    nl.store(out, y)
    return out
"""
    a, b = (RNG.normal(size=(64, 6)).astype(np.float32) for _ in range(2))
    expected = b.copy()
    for quadrant in (0, 32):
        for p, lane in enumerate(lanes):
            if lane != 255:
                expected[quadrant + p] = a[quadrant + lane]
    np.testing.assert_array_equal(run(source, a, b), expected)


def test_predicated_copy_keeps_the_destination_elsewhere() -> None:
    source = """
def kernel(a, b, p):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y, chosen = nl.load(a), nl.load(b), nl.load(p)
    nisa.tensor_copy_predicated(src=x, dst=y, predicate=chosen)
    nl.store(out, y)
    return out
"""
    p = RNG.integers(0, 2, size=A.shape).astype(np.uint8)
    np.testing.assert_array_equal(run(source, A, B, p), np.where(p, A, B))


def test_select_reduce() -> None:
    source = """
def kernel(a, p):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, chosen = nl.load(a), nl.load(p)
    y = nl.ndarray(a.shape, dtype=a.dtype)
    nisa.select_reduce(dst=y, predicate=chosen, on_true=x, on_false=-3.0)
    nl.store(out, y)
    return out
"""
    p = RNG.integers(0, 2, size=A.shape).astype(np.uint8)
    np.testing.assert_array_equal(run(source, A, p), np.where(p, A, np.float32(-3)))


def test_range_select_keeps_a_range_of_positions() -> None:
    source = """
def kernel(a, lo, hi):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, low, high = nl.load(a), nl.load(lo), nl.load(hi)
    y = nisa.range_select(on_true_tile=x, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high,
                          range_start=2)
    nl.store(out, y)
    return out
"""
    low = RNG.integers(0, 20, size=(45, 1)).astype(np.float32)
    high = low + 11
    position = np.arange(52) + 2
    expected = np.where((position >= low) & (position < high), A, np.finfo(np.float32).min)
    np.testing.assert_array_equal(run(source, A, low, high, target="trn2"), expected)


def test_local_gather_reads_indices_partition_first() -> None:
    source = """
def kernel(a, i):
    out = nl.ndarray((32, 3, 16, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.local_gather(nl.load(a), nl.load(i), num_elem_per_idx=2))
    return out
"""
    a = RNG.normal(size=(32, 20)).astype(np.float32)
    index = RNG.integers(0, 19, size=(32, 3)).astype(np.uint16)
    expected = np.empty((32, 3, 16, 2), np.float32)
    for core in range(2):
        rows = slice(16 * core, 16 * core + 16)
        for k in range(2):
            expected[rows, :, :, k] = a[rows][:, index[rows].T + k]
    np.testing.assert_array_equal(run(source, a, index), expected)


def test_gather_flattened() -> None:
    source = """
def kernel(a, i):
    out = nl.ndarray((45, 9), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.gather_flattened(nl.load(a), nl.load(i)))
    return out
"""
    index = RNG.integers(0, 52, size=(45, 9)).astype(np.uint32)
    np.testing.assert_array_equal(run(source, A, index), np.take_along_axis(A, index.astype(np.int64), 1))


def test_sequence_bounds() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((1, 2, 7), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.sequence_bounds(segment_ids=nl.load(a)))
    return out
"""
    found = run(source, np.asarray([[0, 1, 1, 2, 2, 2, 0]], np.float32))
    np.testing.assert_array_equal(found[0], [[7, 1, 1, 3, 3, 3, 7], [-1, 3, 3, 6, 6, 6, -1]])


def test_random_values_and_dropout() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    noise = nl.ndarray((4, 45, 52), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(noise[i], nl.rand((45, 52), nl.float32))
    nl.store(out, nisa.dropout(nl.load(a), 0.25))
    return out, noise
"""
    from tools.neuroncore.interpreter import interpret

    from .execute import traced

    out, noise = interpret(traced(source, (A,)), (A,))
    assert ((out == A) | (out == 0)).all()
    assert 0.15 < (out == 0).mean() < 0.35
    assert noise.min() >= 0 and noise.max() < 1
    assert len({tile.tobytes() for tile in noise}) == 4


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_transposes_move_elements_exactly(dtype: type) -> None:
    source = """
def kernel(a):
    rows, columns = a.shape
    out = nl.ndarray((3, columns, rows), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    nl.store(out[0], nl.copy(nisa.nc_transpose(x), dtype=a.dtype))
    nl.store(out[1], nl.copy(nl.transpose(x), dtype=a.dtype))
    nl.store(out[2], nl.load_transpose2d(a))
    return out
"""
    a = A.astype(dtype).copy()
    a[3, 5], a[4, 6] = np.nan, np.inf
    found = run(source, a)
    for part in found:
        np.testing.assert_array_equal(part.astype(np.float32), a.T.astype(np.float32))


@pytest.mark.parametrize("shape", [(1, 53), (1, 4, 9), (1, 1), (37, 1)])
@pytest.mark.parametrize("loop", ["affine_range", "static_range"])
def test_a_reduction_may_leave_a_single_number(shape: tuple[int, ...], loop: str) -> None:
    x = RNG.normal(size=(3, *shape)).astype(np.float32)
    axes = list(range(1, len(shape)))
    body = f"""
def kernel(a):
    out = nl.ndarray((3, {shape[0]}, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.{loop}(3):
        nl.store(out[i], nisa.tensor_reduce(np.max, nl.load(a[i]), axis={axes}, negate=True))
    return out
"""
    expected = -x.max(axis=tuple(axis + 1 for axis in axes)).reshape(3, shape[0], 1)
    np.testing.assert_array_equal(run(body, x), expected)
