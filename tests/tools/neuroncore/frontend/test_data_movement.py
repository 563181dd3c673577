"""Loads, stores, copies and gathers against NumPy: indices of every kind, masks, what lies outside, element types."""

from __future__ import annotations

import numpy as np
import pytest

from tools.neuroncore.errors import RuntimeAccessError

from .running import TYPES, assert_close, instructions, line_of, ops, refusal, run, run_all, stored, traced

RNG = np.random.default_rng(24)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return stored(RNG.normal(size=shape), TYPES[dtype])


LOADED = """
t = nl.load({index})
out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
nl.store(out, t)
return out
"""
X = normal(60, 4, 30)
INDICES: dict[str, np.ndarray] = {
    "x": X,
    "x[...]": X,
    "x[0:37]": X[0:37],
    "x[5:37, 1:3, 2:30:3]": X[5:37, 1:3, 2:30:3],
    "x[-20:, 2, :-5]": X[-20:, 2, :-5],
    "x[7, :, 3:9]": X[7, :, 3:9],
    "x[..., 4:6]": X[..., 4:6],
    "x[3, ...]": X[3],
    "x[nl.ds(9, 20), 0, nl.ds(1, 7)]": X[9:29, 0, 1:8],
    "x[:, None, 1, :]": X[:, None, 1, :],
    "x[nl.arange(37)[:, None], 3, nl.arange(11)[None, :]]": X[:37, 3, :11],
    "x[nl.arange(60)[:, None] , 3, 2 * nl.arange(11)[None, :] + 1]": X[:, 3, 1:23:2],
    "x[nl.arange(4)[None, :, None] + 8, nl.arange(4)[None, :, None], nl.arange(30)[None, None, :]]": X[
        np.arange(4)[None, :, None] + 8, np.arange(4)[None, :, None], np.arange(30)[None, None, :]
    ],
    "x[nl.arange(30)[:, None] + nl.arange(31)[None, :], 0, 4]": X[
        np.arange(30)[:, None] + np.arange(31)[None, :], 0, 4
    ],
    "x[nl.mgrid[0:40, 0:4, 0:6]]": X[:40, :, :6],
    "x.reshape((120, 60))": X.reshape(120, 60),
    "x.reshape((60, 2, 2, 30))[3:50, 1]": X.reshape(60, 2, 2, 30)[3:50, 1],
    "x[10:50].reshape((40, 120))[:, 7:90]": X[10:50].reshape(40, 120)[:, 7:90],
    "x[10:50].reshape((80, 60))[5:9]": X[10:50].reshape(80, 60)[5:9],
    "x[10:50].reshape((20, 2, 120))[:, 1]": X[10:50].reshape(20, 2, 120)[:, 1],
    "x.reshape((15, 4, 120))[7, 1:3].reshape((4, 60))": X.reshape(15, 4, 120)[7, 1:3].reshape(4, 60),
}


@pytest.mark.parametrize("index", INDICES)
def test_a_load_takes_the_elements_that_numpy_would(index: str) -> None:
    np.testing.assert_array_equal(run(LOADED.format(index=index), X), INDICES[index])


STORED = """
out = nl.ndarray((60, 4, 30), dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(out.reshape((60, 120)), nl.zeros((60, 120), dtype=nl.float32))
nl.store({index}, nl.load(x))
return out
"""


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ("out[5:37, 1:3, 2:30:3]", (32, 2, 10)),
        ("out[-20:, 2, :-5]", (20, 25)),
        ("out[nl.arange(37)[:, None], 3, 2 * nl.arange(11)[None, :]]", (37, 11)),
        ("out.reshape((120, 60))[100:, 4:9]", (20, 5)),
    ],
)
def test_a_store_fills_the_elements_that_numpy_would(index: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    expected = np.zeros((60, 4, 30), np.float32)
    numpy_index = index.replace("nl.", "np.")
    exec(f"{numpy_index} = x", {"out": expected, "x": x, "np": np})
    np.testing.assert_array_equal(run(STORED.format(index=index), x), expected)


TILE_INDICES = {
    "t[0:37]": X[0:37],
    "t[32:60, 1:3, 2:30:3]": X[32:60, 1:3, 2:30:3],
    "t[:, 2]": X[:, 2],
    "t[:, 2, 5]": X[:, 2, 5:6],
    "t[nl.arange(60)[:, None], nl.arange(4)[None, :], 3]": X[:, :, 3],
    "t[nl.arange(60)[:, None], 1, 29 - nl.arange(30)[None, :]]": X[:, 1, ::-1],
    "t[nl.mgrid[0:32, 0:4, 0:6]]": X[:32, :, :6],
    "t.reshape((60, 120))[:, 11:100:2]": X.reshape(60, 120)[:, 11:100:2],
    "t.reshape((60, 2, 60))[:, 1]": X.reshape(60, 2, 60)[:, 1],
    "nl.expand_dims(t, 2)[:, :, 0, 0:9]": X[:, :, :9],
    "nl.broadcast_to(t[:, 0:1, :], shape=(60, 3, 30))": np.broadcast_to(X[:, :1], (60, 3, 30)),
    "t[32, 1]": X[32:33, 1],
}


@pytest.mark.parametrize("index", TILE_INDICES)
def test_parts_of_tiles_are_operands(index: str) -> None:
    body = f"""
    t = nl.load(x)
    u = nl.copy({index})
    out = nl.ndarray(u.shape, dtype=u.dtype, buffer=nl.shared_hbm)
    nl.store(out, u)
    return out
    """
    np.testing.assert_array_equal(run(body, X), TILE_INDICES[index])


@pytest.mark.parametrize(
    ("index", "value"),
    [
        ("t[0:32, 1]", "nl.load(x[0:32, 2])"),
        ("t[...]", "nl.load(x[0:60])"),
        ("t[:, 0:2, 3:9]", "nl.load(x[0:60, 2:4, 3:9])"),
        ("t[nl.arange(60)[:, None], 3, nl.arange(30)[None, :]]", "nl.load(x[0:60, 0])"),
        ("t[:, 1, 4:8]", "0.5"),
        ("t[:, 0, :]", "nl.load(x[0:60, 0, 0:1])"),
    ],
)
def test_assignment_fills_a_part_of_a_tile(index: str, value: str) -> None:
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros(x.shape, dtype=x.dtype)
    {index} = {value}
    nl.store(out, t)
    return out
    """
    expected = np.zeros_like(X)
    code = f"{index} = {value}".replace("nl.arange", "np.arange").replace("nl.load", "")
    exec(code, {"t": expected, "x": X, "np": np})
    found = run(body, X)
    np.testing.assert_array_equal(found, expected)


def test_masks_keep_the_edge_of_a_tensor_inside() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        for j in nl.affine_range(4):
            p, f = nl.mgrid[0:32, 0:16]
            rows, columns = 32 * i + p, 16 * j + f
            inside = (rows < x.shape[0]) & (columns < x.shape[1])
            t = nl.load(x[rows, columns], mask=inside)
            nl.store(out[rows, columns], nl.negative(t, mask=inside), mask=inside)
    return out
    """
    x = normal(70, 53)
    np.testing.assert_array_equal(run(body, x), -x)


def test_slices_may_leave_the_tensor_under_a_mask() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        p = nl.arange(32)[:, None]
        t = nl.load(x[nl.ds(32 * i, 32), :], mask=(32 * i + p < 70))
        nl.store(out[32 * i:32 * (i + 1), :], t, mask=(32 * i + p < 70))
    return out
    """
    x = normal(70, 20)
    np.testing.assert_array_equal(run(body, x), x)


ROWS = RNG.permutation(60)[:37].astype(np.int32).reshape(37, 1)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "uint8"])
def test_rows_are_loaded_by_an_index_tile(dtype: str) -> None:
    body = """
    i = nl.load(y)
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    out = nl.ndarray((37, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[i[p, 0], 2, f + 3]))
    return out
    """
    rows = ROWS.astype(TYPES[dtype])
    np.testing.assert_array_equal(run(body, X, rows), X[ROWS[:, 0], 2, 3:18])


def test_rows_are_stored_by_an_index_tile() -> None:
    body = """
    i = nl.load(y)
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    out = nl.ndarray((60, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((60, 15), dtype=x.dtype))
    nl.store(out[i[p, 0], f], nl.load(x))
    return out
    """
    x = normal(37, 15)
    expected = np.zeros((60, 15), np.float32)
    expected[ROWS[:, 0]] = x
    np.testing.assert_array_equal(run(body, x, ROWS), expected)


def test_an_index_outside_is_an_error_of_the_run() -> None:
    body = """
    i = nl.load(y)
    out = nl.ndarray((37, 30), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(37)[:, None], nl.arange(30)[None, :]
    nl.store(out, nl.load(x[i[p, 0], 2, f]))
    return out
    """
    rows = ROWS.copy()
    rows[5] = 60
    with pytest.raises(RuntimeAccessError) as caught:
        run(body, X, rows)
    assert caught.value.line == line_of("nl.load(x[i", body)


def test_rows_are_added_to_by_an_index_tile() -> None:
    body = """
    i = nl.load(y)
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    out = nl.ndarray((60, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.ones((60, 15), dtype=x.dtype))
    nl.atomic_rmw(out[i[p, 0], f], nl.load(x), op=np.add)
    return out
    """
    x = normal(37, 15)
    expected = np.ones((60, 15), np.float32)
    expected[ROWS[:, 0]] += x
    assert_close(run(body, x, ROWS), expected)


COPIES = {
    "hbm to hbm": ("out[0:37, :]", "x[0:37]", lambda x, out: out.__setitem__(slice(0, 37), x[0:37])),
    "hbm to sbuf": (
        "t[0:32, 5:9]",
        "x[4:36, 1:5]",
        lambda x, out: out.__setitem__((slice(0, 32), slice(5, 9)), x[4:36, 1:5]),
    ),
    "sbuf to hbm": (
        "out[:, 3:5]",
        "nl.load(x[:, 0:2])",
        lambda x, out: out.__setitem__((slice(None), slice(3, 5)), x[:, 0:2]),
    ),
    "sbuf to sbuf": (
        "t[:, 3:5]",
        "nl.load(x[:, 0:2])",
        lambda x, out: out.__setitem__((slice(None), slice(3, 5)), x[:, 0:2]),
    ),
}


@pytest.mark.parametrize("way", COPIES)
def test_dma_copies_between_memories(way: str) -> None:
    dst, src, expected_of = COPIES[way]
    finish = "nl.store(out, t)" if dst.startswith("t") else ""
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros(x.shape, dtype=x.dtype)
    nl.store(out, t)
    nisa.dma_copy(dst={dst}, src={src})
    {finish}
    return out
    """
    x = normal(60, 15)
    expected = np.zeros_like(x)
    expected_of(x, expected)
    np.testing.assert_array_equal(run(body, x), expected)


@pytest.mark.parametrize("to", ["bfloat16", "float8_e4m3", "int8", "uint8", "int32"])
def test_dma_copies_cast(to: str) -> None:
    x = (RNG.normal(size=(60, 15)) * 90).astype(np.float32)
    body = f"""
    out = nl.ndarray(x.shape, dtype=nl.{to}, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
    """
    np.testing.assert_array_equal(run(body, x), stored(x, TYPES[to]))


def test_dma_copies_skip_indices_outside() -> None:
    body = """
    out = nl.ndarray((37, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.load(y)
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    t = nl.full((37, 15), -1.0, dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x[i[p, 0], f], oob_mode=nisa.oob_mode.skip)
    nl.store(out, t)
    return out
    """
    x = normal(60, 15)
    rows = ROWS.copy()
    rows[3:9] = 1000
    expected = np.full((37, 15), -1, np.float32)
    inside = rows[:, 0] < 60
    expected[inside] = x[rows[inside, 0]]
    np.testing.assert_array_equal(run(body, x, rows), expected)


def test_dma_copies_scatter_and_add() -> None:
    body = """
    out = nl.ndarray((60, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.load(y)
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    nl.store(out, nl.ones((60, 15), dtype=x.dtype))
    nisa.dma_copy(dst=out[i[p, 0], f], src=nl.load(x), dst_rmw_op=np.add)
    return out
    """
    x = normal(37, 15)
    expected = np.ones((60, 15), np.float32)
    expected[ROWS[:, 0]] += x
    assert_close(run(body, x, ROWS), expected)


@pytest.mark.parametrize("part", ["x[p, f]", "x[0:1][p, f]", "x[p - 20, f]"])
def test_a_position_beside_the_only_row_is_out_of_bounds(part: str) -> None:
    body = f"""
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    out = nl.ndarray((37, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load({part}))
    return out
    """
    assert refusal(body, [normal(1, 15)]).name == "err_tensor_access_out_of_bound"


def test_a_mask_keeps_positions_at_the_only_row() -> None:
    body = """
    p, f = nl.arange(37)[:, None], nl.arange(15)[None, :]
    out = nl.ndarray((37, 15), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros((37, 15), dtype=x.dtype)
    t[p, f] = nl.load(x[p, f], mask=(p < 1))
    nl.store(out, t)
    return out
    """
    x = normal(1, 15)
    np.testing.assert_array_equal(run(body, x), np.concatenate([x, np.zeros((36, 15), np.float32)]))


def test_a_copy_on_chip_reads_its_offset_at_run_time() -> None:
    body = """
    out = nl.ndarray((37, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    t, i = nl.load(x), nl.load(y)
    p, f = nl.mgrid[0:37, 0:8]
    nl.store(out, nisa.tensor_copy_dynamic_src(t[p, i[0, 1] + 2 * f + 1]))
    return out
    """
    x, offsets = normal(37, 60), np.array([[3, 9]], np.uint32)
    np.testing.assert_array_equal(run(body, x, offsets), x[:, 10:26:2])


def test_a_copy_on_chip_writes_to_an_offset_read_at_run_time() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, i = nl.load(x), nl.load(y)
    p, f = nl.mgrid[0:37, 0:8]
    nisa.tensor_copy_dynamic_dst(dst=t[p, i[0, 0] + f], src=nl.zeros((37, 8), dtype=x.dtype))
    nl.store(out, t)
    return out
    """
    x, offsets = normal(37, 60), np.array([[21]], np.int32)
    expected = x.copy()
    expected[:, 21:29] = 0
    np.testing.assert_array_equal(run(body, x, offsets), expected)


@pytest.mark.parametrize("loop", ["affine_range", "static_range"])
def test_offsets_of_a_loop_are_read_one_by_one(loop: str) -> None:
    body = f"""
    out = nl.ndarray((37, 6), dtype=x.dtype, buffer=nl.shared_hbm)
    t, i = nl.load(x), nl.load(y)
    p, f = nl.mgrid[0:37, 0:2]
    for k in nl.{loop}(3):
        nl.store(out[p, 2 * k + f], nisa.tensor_copy_dynamic_src(t[p, i[0, k] + f]))
    return out
    """
    x, offsets = normal(37, 60), np.array([[40, 3, 21]], np.int32)
    expected = np.concatenate([x[:, o : o + 2] for o in offsets[0]], axis=1)
    np.testing.assert_array_equal(run(body, x, offsets), expected)


def test_elements_are_gathered_within_partitions() -> None:
    body = """
    out = nl.ndarray((37, 5, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.gather_flattened(nl.load(x), nl.load(y)))
    return out
    """
    x, i = normal(37, 3, 20), RNG.integers(0, 60, (37, 5, 4)).astype(np.uint32)
    expected = np.take_along_axis(x.reshape(37, 60), i.reshape(37, 20).astype(np.int64), 1).reshape(37, 5, 4)
    np.testing.assert_array_equal(run(body, x, i), expected)


@pytest.mark.parametrize("width", [1, 4])
def test_cores_of_gpsimd_gather_by_their_own_indices(width: int) -> None:
    body = f"""
    out = nl.ndarray((32, 3, 16, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.local_gather(nl.load(x), nl.load(y), num_elem_per_idx={width}))
    return out
    """
    x, i = normal(32, 64), RNG.integers(0, 64 // width, (32, 3)).astype(np.uint16) * np.uint16(width)
    expected = np.empty((32, 3, 16, width), np.float32)
    for core in range(2):
        rows = slice(16 * core, 16 * core + 16)
        flat = i[rows].T.reshape(-1).astype(np.int64)
        for p in range(16 * core, 16 * core + 16):
            expected[p] = np.stack([x[p, k : k + width] for k in flat]).reshape(3, 16, width)
    np.testing.assert_array_equal(run(body, x, i), expected)


def test_partitions_are_shuffled_within_quadrants() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(x), nl.zeros(x.shape, dtype=x.dtype)
    nisa.nc_stream_shuffle(t, u, [31 - k if k % 5 else 255 for k in range(32)])
    nl.store(out, u)
    return out
    """
    x = normal(64, 9)
    expected = np.zeros_like(x)
    for row in range(64):
        if row % 32 % 5:
            expected[row] = x[row // 32 * 32 + 31 - row % 32]
    np.testing.assert_array_equal(run(body, x), expected)


def test_constants_come_with_the_kernel() -> None:
    body = """
    out = nl.ndarray((4, 9), dtype=nl.float32, buffer=nl.shared_hbm)
    table = nl.shared_constant(np.arange(36).reshape(4, 9), dtype=nl.float32)
    one = nl.shared_identity_matrix(4)
    assert one.dtype == nl.uint8
    nl.store(out, nl.add(nl.load(table), nl.load(x)))
    return out
    """
    x = normal(4, 9)
    np.testing.assert_array_equal(run(body, x), x + np.arange(36, dtype=np.float32).reshape(4, 9))


def test_tiles_are_made_like_others() -> None:
    body = """
    out = nl.ndarray((37, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    u, v = nl.zeros_like(t), nl.empty_like(t, dtype=nl.float32)
    assert u.shape == t.shape and u.dtype == t.dtype and v.dtype == nl.float32
    v[...] = nl.ones(t.shape, dtype=nl.float32)
    w = nl.full(t.shape, 2.5, dtype=nl.float32)
    nl.store(out, u + v + w)
    return out
    """
    x = normal(37, 12, dtype="bfloat16")
    np.testing.assert_array_equal(run(body, x), np.full((37, 12), 3.5).astype(x.dtype))


def test_blocks_of_tiles_are_separate() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((3, 2, nl.par_dim(32), 10), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            t[i, j] = nl.load(x[i, j])
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            nl.store(out[i, j], nl.add(t[i, j], t[2 - i, 1 - j, 0:32, 0:10]))
    return out
    """
    x = normal(3, 2, 32, 10)
    np.testing.assert_array_equal(run(body, x), x + x[::-1, ::-1])


def test_values_leave_psum_through_a_store() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((32, 20), dtype=nl.float32, buffer=nl.psum)
    t[...] = nl.load(x)
    nl.store(out, t)
    return out
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)


def test_instructions_write_into_the_tile_they_are_assigned_to() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((32, 20), dtype=nl.bfloat16, buffer=nl.sbuf)
    t[...] = nl.exp(nl.load(x))
    nl.store(out, t)
    return out
    """
    kernel = traced(body, normal(32, 20))
    assert ops(kernel) == ["nl.load", "nl.exp", "nl.store"]
    assert instructions(kernel)[1].dst.dtype == TYPES["bfloat16"]


def test_hbm_holds_what_kernels_park_there() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    spill = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm, name="_spill")
    nl.store(spill, nl.exp(nl.load(x)))
    nl.store(out, nl.load(spill))
    return out
    """
    x = normal(32, 20)
    assert_close(run(body, x), np.exp(x))


@pytest.mark.parametrize(
    ("call", "name", "said"),
    [
        ("nl.store(out[0:128, 0:256], t)", "err_store_dst_shape_smaller_than_other_shape", ""),
        ("nl.store(t, t)", "err_unsupported_memory", "hbm"),
        ("nl.load(x[0:200, 0:9])", "err_num_partition_exceed_arch_limit", "200"),
        ("nl.load(3)", "invalid_operand", "int"),
        ("nl.load(x[0:128, 1000:1030])", "err_tensor_access_out_of_bound", "[1000, 1029]"),
        ("nl.load(x[256])", "err_tensor_access_out_of_bound", "[256, 256]"),
        ("nl.load(x[0:128, 9:9])", "empty_slice", "empty"),
        ("nl.load(x[0:128, 9:0:-1])", "unsupported_slice", "step"),
        ("nl.load(x[0:1, 0:1, 0:1])", "too_many_indices", "3 indices"),
        ("nl.load(x[0.5, 0:3])", "unsupported_index", "0.5"),
        ("nl.exp(t[0:64][32:80])", "err_tensor_access_out_of_bound", "[32, 79]"),
        ("nl.exp(t[p < 3, f])", "unsupported_index", "mask="),
        ("nisa.dma_copy(dst=s, src=t)", "err_unsupported_memory", "psum"),
        (
            "nisa.dma_copy(dst=out, src=t, dst_rmw_op=np.add, oob_mode=nisa.oob_mode.skip)",
            "invalid_operand",
            "error only",
        ),
        ("nisa.dma_copy(dst=out, src=t, dge_mode=nisa.dge_mode.hwdge)", "unsupported_on_target", "hwdge"),
        ("nisa.dma_copy(dst=out, src=t, dst_rmw_op=np.max)", "unsupported_op", "max"),
        ("nl.atomic_rmw(out, t, op=np.multiply)", "unsupported_op", "multiply"),
        ("nl.load_transpose2d(x.reshape((128, 2, 1024)))", "err_exceed_max_supported_dimension", "3"),
        ("nl.gather_flattened(t, t)", "invalid_operand_dtype", "uint32"),
        ("nisa.local_gather(t, t)", "invalid_operand_dtype", "uint16"),
        ("nisa.local_gather(t[0:9], t[0:9])", "err_num_partition_mismatch", "multiple of 16"),
        ("nisa.tensor_copy(s, engine=nisa.gpsimd_engine)", "err_unsupported_memory", "gpsimd"),
        ("nl.shared_constant([1, 2])", "invalid_operand", "NumPy array"),
        ("nl.ndarray((4, 4), dtype=nl.float32, buffer='cache')", "unknown_buffer", "cache"),
        ("nl.ndarray((4, 4), dtype=np.float64)", "unsupported_dtype", "float64"),
        ("nl.ndarray((128,), dtype=nl.float32)", "insufficient_rank", "free dimension"),
        ("nl.ndarray((nl.par_dim(4), nl.par_dim(4)), dtype=nl.float32)", "invalid_shape", "more than one"),
        ("nl.ndarray((129, 4), dtype=nl.float32)", "err_num_partition_exceed_arch_limit", "129"),
        ("t.reshape((128, 3))", "shape_mismatch", "[128, 3]"),
    ],
)
def test_what_cannot_be_moved_is_refused(call: str, name: str, said: str) -> None:
    body = f"""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:512]
    t = nl.load(x[0:128, 0:512])
    s = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    r = {call}
    nl.store(out, t)
    return out
    """
    error = refusal(body)
    assert error.name == name and said in error.message + (error.remedy or ""), error
    assert error.line == line_of(f"r = {call}", body)


def test_results_come_in_the_order_they_are_returned() -> None:
    body = """
    first = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(first, -t)
    nl.store(second, nl.sum(t, axis=1))
    return second, first
    """
    x = normal(32, 20)
    second, first = run_all(body, x)
    np.testing.assert_array_equal(first, -x)
    assert_close(second, x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
