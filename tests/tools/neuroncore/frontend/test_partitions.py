"""Engines start at a quadrant or a half, and take neighbouring partitions; DMA engines reach all of them."""

import numpy as np
import pytest

from .running import refusal, run

X = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)

COPY = """
out = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
t = nl.load(x)
i = nl.arange({rows})[:, None]
j = nl.arange(4)[None, :]
for k in nl.affine_range({trips}):
    nl.store(out[{place} + i, j], nl.{op}(t[{place} + i, j]))
return out
"""


@pytest.mark.parametrize(
    ("rows", "place", "trips"), [(128, "0", 1), (64, "64 * k", 2), (32, "32 * k", 4), (20, "32 * k", 4)]
)
def test_tiles_at_quadrants_and_halves_are_computed(rows: int, place: str, trips: int) -> None:
    found = run(COPY.format(rows=rows, place=place, trips=trips, op="negative"), X)
    starts = [k * (128 // max(trips, 1)) for k in range(trips)]
    for start in starts:
        np.testing.assert_array_equal(found[start : start + rows], -X[start : start + rows])


@pytest.mark.parametrize(
    ("rows", "place", "trips", "said"),
    [
        (123, "5", 1, "123 partitions of `t` from partition 5 on; the engines start that many at 0"),
        (64, "32", 1, "64 partitions of `t` from partition 32 on; the engines start that many at 0 or 64"),
        (
            1,
            "k",
            128,
            "1 partitions of `t` from partitions k on; the engines start that many at 0, 32, 64 or 96",
        ),
        (16, "16 * k", 8, "from partitions 16*k on"),
    ],
)
def test_tiles_elsewhere_are_refused(rows: int, place: str, trips: int, said: str) -> None:
    error = refusal(COPY.format(rows=rows, place=place, trips=trips, op="negative"), [X])
    assert error.name == "invalid_partition_access" and said in error.message and error.remedy


@pytest.mark.parametrize("index", ["2 * i", "127 - i"])
def test_partitions_that_are_no_neighbours_are_refused(index: str) -> None:
    body = """
    out = nl.ndarray((64, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    i = nl.arange(64)[:, None]
    nl.store(out, nl.negative(t[{index}, nl.arange(4)[None, :]]))
    return out
    """
    assert refusal(body.format(index=index), [X]).name == "invalid_partition_access"


def test_dma_engines_reach_any_partition() -> None:
    body = """
    out = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.sbuf)
    t[0:5, :] = nl.load(x[123:128, :])
    t[5:128, :] = nl.load(x[0:123, :])
    nl.store(out[7:128, :], t[7:128, :])
    nl.store(out[0:7, :], t[0:7, :])
    return out
    """
    np.testing.assert_array_equal(run(body, X), np.concatenate([X[123:], X[:123]]))


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ("i >= 5", True),
        ("i < 5", False),
        ("i >= 32 * k", False),
        ("i + 5 * k >= 40", True),
        ("i >= 128 * k", False),
    ],
)
def test_a_mask_leaves_partitions_that_engines_can_start_at(condition: str, refused: bool) -> None:
    body = f"""
    out = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    i, j = nl.arange(128)[:, None], nl.arange(4)[None, :]
    for k in nl.sequential_range(3):
        t[i, j] = nl.negative(t[i, j], mask=({condition}))
    nl.store(out[i, j], t, mask=(i >= 5))
    nl.store(out[i, j], t, mask=(i < 5))
    return out
    """
    if refused:
        assert refusal(body, [X]).name == "invalid_partition_access"
    else:
        assert run(body, X).shape == X.shape


@pytest.mark.parametrize(
    ("columns", "place", "crossed"),
    [(1024, "512 * k", False), (1024, "256 * k", True), (768, "256", True), (512, "256 * k", False)],
)
def test_a_matmul_writes_one_bank(columns: int, place: str, crossed: bool) -> None:
    width = 512 if crossed or columns > 512 else 256
    body = f"""
    out = nl.ndarray((4, {columns}), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    wide = nl.ndarray((128, {width}), dtype=nl.float32, buffer=nl.sbuf)
    wide[...] = 1.0
    acc = nl.zeros((4, {columns}), dtype=nl.float32, buffer=nl.psum)
    for k in nl.sequential_range(2):
        acc[:, nl.ds({place}, {width})] += nisa.nc_matmul(t, wide)
    nl.store(out, nl.copy(acc))
    return out
    """
    if crossed:
        assert refusal(body, [X]).name == "psum_bank_crossed"
    else:
        assert run(body, X).shape == (4, columns)
