"""Memory: poison where it can be seen, none where it cannot, and no more temporaries than must live at once."""

from __future__ import annotations

import numpy as np

from tools.neuroncore.interpreter import compile_plan
from tools.neuroncore.interpreter.schedule import Budgets, Pieces, Run

from .execute import run, run_all, traced

RNG = np.random.default_rng(17)


def operations(nodes: list[Run | Pieces]) -> list[str]:
    found: list[str] = []
    for node in nodes:
        found.extend(operations(node.body) if isinstance(node, Pieces) else [node.statement.op])
    return found


PRINTED = """
def kernel(a):
    n, m, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray((n, m, nl.par_dim(rows), columns), dtype=a.dtype)
    y = nl.ndarray((n, m, nl.par_dim(rows), columns), dtype=a.dtype)
    z = nl.ndarray((n, m, nl.par_dim(rows), columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        for j in nl.affine_range(m):
            x[i, j] = nl.load(a[i, j])
            y[i, j] = nl.exp(x[i, j])
            z[i, j] = nl.add(y[i, j], 1.0)
            nl.store(out[i, j], value=z[i, j])
    return out
"""


def test_block_dimensions_of_printed_kernels_do_not_materialize() -> None:
    a = RNG.normal(size=(8, 4, 16, 64)).astype(np.float32)
    np.testing.assert_allclose(run(PRINTED, a), np.exp(a) + 1, rtol=1e-6)
    tile = 16 * 64 * 4
    plan = compile_plan(traced(PRINTED, (a,)), Budgets(2 * tile, 2 * tile, 2 * tile))
    # The load is a view of the input and the sum goes straight to the result; only the exponential is kept.
    assert operations(plan.schedule.body) == ["nl.exp", "nl.add"]
    assert plan.temporary_bytes <= 2 * tile


def test_a_chain_of_operations_works_in_one_place() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.exp(nl.load(a))
    for _ in nl.static_range(6):
        x = nl.multiply(nl.add(x, 1.0), 0.5)
    nl.store(out, x)
    return out
"""
    a = RNG.normal(size=(16, 32)).astype(np.float32)
    expected = np.exp(a)
    for _ in range(6):
        expected = (expected + 1) * np.float32(0.5)
    np.testing.assert_allclose(run(source, a), expected, rtol=1e-6)
    assert compile_plan(traced(source, (a,))).temporary_bytes == 16 * 32 * 4


def test_temporaries_that_live_at_different_times_share_memory() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray((2, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray((n, nl.par_dim(rows), columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        first[i] = nl.exp(nl.load(a[i]))
    total = nl.ndarray((rows, columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        total[...] = nl.loop_reduce(first[i], op=np.add, loop_indices=[i])
    nl.store(out[0], total)
    second = nl.ndarray((n, nl.par_dim(rows), columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        second[i] = nl.square(nl.load(a[i]))
    best = nl.ndarray((rows, columns), dtype=a.dtype)
    for i in nl.affine_range(n):
        best[...] = nl.loop_reduce(second[i], op=np.max, loop_indices=[i])
    nl.store(out[1], best)
    return out
"""
    a = RNG.normal(size=(6, 8, 32)).astype(np.float32)
    found = run(source, a, rtol=1e-5)
    np.testing.assert_allclose(found[0], np.exp(a).sum(0), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.square(a).max(0), rtol=1e-6)
    assert compile_plan(traced(source, (a,))).temporary_bytes == a.nbytes


def test_loads_and_transposes_are_views() -> None:
    source = """
def kernel(a):
    rows, columns = a.shape
    out = nl.ndarray((columns, rows), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    turned = nl.copy(nl.transpose(x))
    nl.store(out, nl.add(turned, 1.0))
    return out
"""
    a = RNG.normal(size=(12, 20)).astype(np.float32)
    np.testing.assert_array_equal(run(source, a), a.T + 1)
    plan = compile_plan(traced(source, (a,)))
    assert operations(plan.schedule.body) == ["nl.add"] and plan.temporary_bytes == 0


def test_a_load_is_copied_when_its_source_changes_while_it_is_needed() -> None:
    source = """
def kernel(a):
    rows, columns = a.shape
    out = nl.ndarray((2, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.hbm)
    nl.store(scratch, nl.load(a))
    before = nl.load(scratch)
    nl.store(scratch, nl.add(before, 1.0))
    after = nl.load(scratch)
    nl.store(out[0], before)
    nl.store(out[1], after)
    return out
"""
    a = RNG.normal(size=(4, 6)).astype(np.float32)
    found = run(source, a)
    np.testing.assert_array_equal(found[0], a)
    np.testing.assert_array_equal(found[1], a + 1)


def test_unwritten_tiles_read_as_poison() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    whole = nl.ndarray((4, 6), dtype=nl.int32, buffer=nl.shared_hbm)
    x = nl.ndarray((4, 6), dtype=nl.float32)
    x[:, 0:4] = nl.load(a[:, 0:4])
    nl.store(out, nl.add(x, 1.0))
    y = nl.ndarray((4, 6), dtype=nl.int32)
    nl.store(whole, y)
    return out, whole
"""
    a = RNG.normal(size=(4, 6)).astype(np.float32)
    out, whole = run_all(source, a)
    np.testing.assert_array_equal(out[:, :4], a[:, :4] + 1)
    assert np.isnan(out[:, 4:]).all()
    assert (whole == np.iinfo(np.int32).min).all()


def test_every_iteration_begins_with_fresh_tiles() -> None:
    source = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    jf = nl.arange(columns)[None, :]
    ip = nl.arange(rows)[:, None]
    for i in nl.sequential_range(n):
        x = nl.ndarray((rows, columns), dtype=a.dtype)
        x[ip, jf] = nl.load(a[i, ip, jf], mask=jf < i)
        nl.store(out[i], x)
    return out
"""
    a = RNG.normal(size=(4, 3, 5)).astype(np.float32)
    found = run(source, a)
    for i in range(4):
        np.testing.assert_array_equal(found[i, :, :i], a[i, :, :i])
        assert np.isnan(found[i, :, i:]).all()


def test_no_memory_is_filled_that_is_written_before_it_is_read() -> None:
    a = RNG.normal(size=(8, 4, 16, 64)).astype(np.float32)
    plan = compile_plan(traced(PRINTED, (a,)))
    assert all(storage.fill is None for storage in plan.placement.storages)


def test_results_covered_in_pieces_need_no_fill() -> None:
    source = """
def kernel(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.arange(16)[:, None], nl.arange(columns // 2)[None, :]
    for i in nl.affine_range((rows + 15) // 16):
        for j in nl.affine_range(2):
            inside = 16 * i + ip < rows
            x = nl.load(a[16 * i + ip, columns // 2 * j + jf], mask=inside)
            nl.store(out[16 * i + ip, columns // 2 * j + jf], nl.negative(x, mask=inside), mask=inside)
    return out
"""
    a = RNG.normal(size=(37, 10)).astype(np.float32)
    np.testing.assert_array_equal(run(source, a), -a)
    plan = compile_plan(traced(source, (a,)))
    assert all(storage.fill is None for storage in plan.placement.storages if storage.is_output)
