"""Which loops run in pieces, and how large."""

from __future__ import annotations

import numpy as np

from tools.neuroncore.interpreter import compile_plan
from tools.neuroncore.interpreter.schedule import Budgets, Pieces, Run
from tools.neuroncore.ir import Affine, Instr, Loop, LoopKind, LoopVar

from .build import at, axis, kernel, parameter, result, tensor
from .execute import run, traced

RNG = np.random.default_rng(23)

TWO_STEPS = """
def kernel(a):
    n, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(n):
        x = nl.exp(nl.load(a[i]))
        nl.store(out[i], nl.multiply(x, nl.load(a[i])))
    return out
"""


def pieces_of(nodes: list[Run | Pieces]) -> list[tuple[str, int, int]]:
    found = []
    for node in nodes:
        if isinstance(node, Pieces):
            found += [(node.var.name, node.size, node.count), *pieces_of(node.body)]
    return found


def test_a_loop_is_cut_into_even_pieces_that_fit() -> None:
    a = RNG.normal(size=(10, 8, 16)).astype(np.float32)
    tile = 8 * 16 * 4
    # Each iteration has one temporary in flight and comes back to one tile of the input.
    plan = compile_plan(traced(TWO_STEPS, (a,)), Budgets(elementwise=8 * tile))
    assert pieces_of(plan.schedule.body) == [("i", 4, 3)]
    assert plan.temporary_bytes == 4 * tile
    np.testing.assert_allclose(plan.run([a])[0], np.exp(a) * a, rtol=1e-6)


def test_a_loop_that_fits_is_taken_whole() -> None:
    a = RNG.normal(size=(10, 8, 16)).astype(np.float32)
    assert pieces_of(compile_plan(traced(TWO_STEPS, (a,))).schedule.body) == []


def test_matmuls_are_cut_where_blas_rearranges_less() -> None:
    source = """
def kernel(a, b):
    m, k = a.shape
    n = b.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 16):
        for j in nl.affine_range(n // 32):
            x = nl.load(a[16 * i : 16 * i + 16, 0:k])
            y = nl.load(b[0:k, 32 * j : 32 * j + 32])
            nl.store(out[16 * i : 16 * i + 16, 32 * j : 32 * j + 32], nl.exp(nl.matmul(x, y)))
    return out
"""
    a = RNG.normal(size=(32, 8)).astype(np.float32) * 0.1
    b = RNG.normal(size=(8, 1024)).astype(np.float32) * 0.1
    np.testing.assert_allclose(run(source, a, b, rtol=1e-4), np.exp(a @ b), rtol=1e-4)
    plan = compile_plan(traced(source, (a, b)), Budgets(matmul=32 * 512 * 4))
    # Half of the columns at a time, with all rows: the large operand is read once.
    assert pieces_of(plan.schedule.body) == [("j", 16, 2)]


def test_results_that_nobody_reads_are_not_computed() -> None:
    source = """
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    unused = nl.exp(nl.log(x))
    nl.store(out, nl.negative(x))
    return out
"""
    a = RNG.normal(size=(4, 6)).astype(np.float32)
    assert len(compile_plan(traced(source, (a,))).schedule.body) == 1


def test_many_nested_loops_stay_within_numpys_dimensions() -> None:
    loops = [Loop(LoopVar(f"i{k}", 2), LoopKind.AFFINE) for k in range(16)]
    x, y = parameter("x", (1 << 16, 2)), result("y", (1 << 16, 2))
    place = axis(0)
    for k, loop in enumerate(loops):
        place = place + Affine.of(loop.var, 1 << k)
    tile = tensor("t", (1, 2), scope=loops[-1])
    body: list[Instr | Loop] = [
        Instr("nl.load", (tile.whole(),), {"src": at(x, [place, axis(1)], (1, 2))}),
        Instr("nl.store", (at(y, [place, axis(1)], (1, 2)),), {"value": tile.whole()}),
    ]
    for loop in reversed(loops):
        loop.body = body
        body = [loop]
    a = RNG.normal(size=(1 << 16, 2)).astype(np.float32)
    np.testing.assert_array_equal(compile_plan(kernel([x], [y], body)).run([a])[0], a)
