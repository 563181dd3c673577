"""Loops: carried values, reductions, grids, scopes."""

from __future__ import annotations

import numpy as np

from tools.neuroncore.frontend import trace
from tools.neuroncore.interpreter import compile_plan
from tools.neuroncore.interpreter.schedule import Pieces, Run

from .execute import HEADER, run, run_all, run_kernel, traced

RNG = np.random.default_rng(9)


def loops_in_order(nodes: list[Run | Pieces]) -> list[str]:
    names = []
    for node in nodes:
        if isinstance(node, Pieces):
            names += [node.var.name, *loops_in_order(node.body)]
    return names


def test_a_running_maximum_is_carried_from_iteration_to_iteration() -> None:
    source = """
def kernel(a):
    tiles, rows, columns = a.shape
    out = nl.ndarray((tiles, rows, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    best = nl.full((rows, 1), -1e30, dtype=nl.float32)
    for i in nl.sequential_range(tiles):
        own = nl.max(nl.load(a[i]), axis=1)
        best[...] = nl.maximum(best, own)
        nl.store(out[i], best)
    return out
"""
    a = RNG.normal(size=(6, 5, 7)).astype(np.float32)
    np.testing.assert_array_equal(run(source, a)[..., 0], np.maximum.accumulate(a.max(2), axis=0))


def test_online_softmax_over_blocks_of_keys() -> None:
    source = """
def kernel(q, k, v):
    heads, rows, d = q.shape
    blocks = k.shape[1] // 8
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(heads):
        query = nl.load_transpose2d(q[h])
        m = nl.full((rows, 1), -1e30, dtype=nl.float32)
        s = nl.zeros((rows, 1), dtype=nl.float32)
        o = nl.zeros((rows, d), dtype=nl.float32)
        for b in nl.sequential_range(blocks):
            key = nl.load_transpose2d(k[h, 8 * b : 8 * b + 8, 0:d])
            score = nl.copy(nisa.nc_matmul(query, key))
            new = nl.maximum(m, nl.max(score, axis=1))
            weight = nl.exp(nl.subtract(score, new))
            shrink = nl.exp(nl.subtract(m, new))
            s[...] = nl.add(nl.multiply(s, shrink), nl.sum(weight, axis=1))
            part = nl.matmul(weight, nl.load(v[h, 8 * b : 8 * b + 8, 0:d]))
            o[...] = nl.add(nl.multiply(o, shrink), part)
            m[...] = nl.copy(new)
        nl.store(out[h], nl.divide(o, s))
    return out
"""
    q, k, v = (RNG.normal(size=(3, n, 4)).astype(np.float32) for n in (5, 32, 32))
    score = q @ k.transpose(0, 2, 1)
    weight = np.exp(score - score.max(-1, keepdims=True))
    expected = weight @ v / weight.sum(-1, keepdims=True)
    np.testing.assert_allclose(run(source, q, k, v, rtol=1e-4), expected, rtol=1e-4, atol=1e-5)
    plan = compile_plan(traced(source, (q, k, v)))
    assert loops_in_order(plan.schedule.body) == ["b"]


def test_a_prefix_sum_through_hbm_is_taken_in_order() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0], nl.load(a[0]))
    for i in nl.sequential_range(n - 1):
        nl.store(out[i + 1], nl.add(nl.load(out[i]), nl.load(a[i + 1])))
    return out
"""
    a = RNG.integers(-5, 6, size=(7, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(source, a), np.cumsum(a, axis=0))


def test_independent_iterations_are_taken_at_once() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(n):
        nl.store(out[i], nl.exp(nl.load(a[i])))
    return out
"""
    a = RNG.normal(size=(7, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(source, a), np.exp(a), rtol=1e-6)
    assert loops_in_order(compile_plan(traced(source, (a,))).schedule.body) == []


def test_a_buffer_declared_outside_and_overwritten_in_every_iteration_does_not_order_them() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    work = nl.ndarray((rows, columns), dtype=a.dtype)
    for i in nl.sequential_range(n):
        work[...] = nl.load(a[i])
        work[...] = nl.exp(work)
        nl.store(out[i], work)
    return out
"""
    a = RNG.normal(size=(7, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(source, a), np.exp(a), rtol=1e-6)
    assert loops_in_order(compile_plan(traced(source, (a,))).schedule.body) == []


def test_loop_reduce_starts_afresh_for_every_outer_iteration() -> None:
    source = """
def kernel(a):
    n, m, rows, columns = a.shape
    out = nl.ndarray((n, 2, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((n, nl.par_dim(rows), columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        best = nl.ndarray((rows, columns), dtype=a.dtype)
        for j in nl.affine_range(m):
            x = nl.load(a[i, j])
            total[i] = nl.loop_reduce(x, op=np.add, loop_indices=[j])
            best[...] = nl.loop_reduce(x, op=np.max, loop_indices=[j])
        nl.store(out[i, 0], total[i])
        nl.store(out[i, 1], best)
    return out
"""
    a = RNG.integers(-9, 10, size=(3, 4, 5, 6)).astype(np.float32)
    found = run(source, a)
    np.testing.assert_array_equal(found[:, 0], a.sum(1))
    np.testing.assert_array_equal(found[:, 1], a.max(1))


def test_what_iterations_share_is_computed_once() -> None:
    source = """
def kernel(a, w):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    last = nl.zeros((rows, columns), dtype=a.dtype)
    for i in nl.sequential_range(n):
        weight = nl.exp(nl.load(w))
        last[...] = nl.subtract(nl.multiply(nl.load(a[i]), weight), last)
        nl.store(out[i], last)
    return out
"""
    a, w = RNG.normal(size=(4, 3, 5)).astype(np.float32), RNG.normal(size=(3, 5)).astype(np.float32)
    last, expected = np.zeros((3, 5), np.float32), []
    for i in range(4):
        last = a[i] * np.exp(w) - last
        expected.append(last)
    np.testing.assert_allclose(run(source, a, w), np.stack(expected), rtol=1e-5, atol=1e-6)
    first = compile_plan(traced(source, (a, w))).schedule.body[0]
    assert isinstance(first, Run) and first.statement.op == "nl.exp"


def test_the_launch_grid_runs_every_instance() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    nl.store(out[4 * i : 4 * i + 4, 6 * j : 6 * j + 6], nl.exp(nl.load(a[4 * i : 4 * i + 4, 6 * j : 6 * j + 6])))
    return out
"""
    a = RNG.normal(size=(8, 18)).astype(np.float32)
    kernel = trace(HEADER + source.lstrip(), [a], grid=(2, 3))
    (found,) = run_kernel(kernel, (a,))
    np.testing.assert_allclose(found, np.exp(a), rtol=1e-6)


def test_block_dimensions_follow_their_loops() -> None:
    source = """
def kernel(a):
    n, m, rows, columns = a.shape
    out = nl.ndarray((m, n, columns, rows), dtype=a.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((m, n, nl.par_dim(rows), columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        for j in nl.affine_range(m):
            kept[j, i] = nl.negative(nl.load(a[i, j]))
    for j in nl.affine_range(m):
        for i in nl.affine_range(n):
            nl.store(out[j, i], nl.copy(nl.transpose(kept[j, i])))
    return out
"""
    a = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(source, a), -a.transpose(1, 0, 3, 2))


def test_overlapping_writes_keep_the_last() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray((rows, n + columns), dtype=a.dtype, buffer=nl.shared_hbm)
    same = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(n):
        x = nl.load(a[i])
        nl.store(out[0:rows, i : i + columns], x)
        nl.store(same, x)
    return out, same
"""
    a = RNG.normal(size=(4, 3, 5)).astype(np.float32)
    out, same = run_all(source, a)
    expected = np.full((3, 9), np.nan, np.float32)
    for i in range(4):
        expected[:, i : i + 5] = a[i]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(same, a[3])
