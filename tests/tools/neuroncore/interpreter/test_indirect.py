"""Indices read at run time."""

from __future__ import annotations

import numpy as np
import pytest

from tools.neuroncore.errors import RuntimeAccessError
from tools.neuroncore.interpreter import interpret

from .execute import run, traced

RNG = np.random.default_rng(13)
TABLE = RNG.normal(size=(20, 7)).astype(np.float32)

GATHER = """
def kernel(table, rows):
    n = rows.shape[0]
    out = nl.ndarray((n, 7), dtype=table.dtype, buffer=nl.shared_hbm)
    jf = nl.arange(7)[None, :]
    for i in nl.affine_range(n // 4):
        ip = nl.arange(4)[:, None]
        index = nl.load(rows[4 * i : 4 * i + 4, 0:1])
        nl.store(out[4 * i + ip, jf], nl.load(table[index[ip, 0], jf]))
    return out
"""


def test_rows_are_gathered() -> None:
    rows = RNG.integers(0, 20, size=(12, 1)).astype(np.int32)
    np.testing.assert_array_equal(run(GATHER, TABLE, rows), TABLE[rows[:, 0]])


@pytest.mark.parametrize("wrong", [20, -1, 2**30])
def test_an_index_out_of_range_is_an_error_with_its_line(wrong: int) -> None:
    rows = RNG.integers(0, 20, size=(12, 1)).astype(np.int32)
    rows[5] = wrong
    with pytest.raises(RuntimeAccessError, match=str(wrong)) as caught:
        interpret(traced(GATHER, (TABLE, rows)), (TABLE, rows))
    assert caught.value.line > 0


def test_rows_are_scattered() -> None:
    source = """
def kernel(values, rows):
    out = nl.ndarray((20, 7), dtype=values.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.arange(8)[:, None], nl.arange(7)[None, :]
    nl.store(out[nl.arange(20)[:, None], jf], nl.zeros((20, 7), dtype=values.dtype))
    index = nl.load(rows)
    nl.store(out[index[ip, 0], jf], nl.load(values))
    return out
"""
    rows = RNG.permutation(20)[:8].astype(np.int32).reshape(8, 1)
    values = RNG.normal(size=(8, 7)).astype(np.float32)
    expected = np.zeros((20, 7), np.float32)
    expected[rows[:, 0]] = values
    np.testing.assert_array_equal(run(source, values, rows), expected)


def test_atomic_addition_counts_repeated_rows_once_each() -> None:
    source = """
def kernel(values, rows):
    out = nl.ndarray((5, 7), dtype=values.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.arange(8)[:, None], nl.arange(7)[None, :]
    nl.store(out[nl.arange(5)[:, None], jf], nl.zeros((5, 7), dtype=values.dtype))
    index = nl.load(rows)
    nl.atomic_rmw(out[index[ip, 0], jf], value=nl.load(values), op=np.add)
    return out
"""
    rows = np.asarray([0, 1, 1, 4, 4, 4, 2, 0], np.int32).reshape(8, 1)
    values = RNG.integers(-9, 10, size=(8, 7)).astype(np.float32)
    expected = np.zeros((5, 7), np.float32)
    np.add.at(expected, rows[:, 0], values)
    np.testing.assert_array_equal(run(source, values, rows), expected)
