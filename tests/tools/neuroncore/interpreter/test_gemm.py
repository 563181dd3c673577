"""Matmuls over many tiles: whatever the strides, the product is right; where they allow it, BLAS gets the original memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.neuroncore.errors import BrokenClaimError
from tools.neuroncore.interpreter import compile_plan, interpret
from tools.neuroncore.interpreter.gemm import Group, Problem, best_form, blas_takes, joined, split_axes
from tools.neuroncore.interpreter.schedule import Pieces, Run

from .execute import run, run_kernel, traced

RNG = np.random.default_rng(5)

TILED = """
def kernel({params}):
    m, k, n = {m}, {k}, {n}
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 16):
        for j in nl.affine_range(n // 24):
            total = nl.zeros((16, 24), dtype=nl.float32, buffer=nl.psum)
            for p in nl.affine_range(k // 8):
                {body}
            nl.store(out[i * 16 : i * 16 + 16, j * 24 : j * 24 + 24], nl.copy(total))
    return out
"""
LEFT = "a[i * 16 : i * 16 + 16, p * 8 : p * 8 + 8]"
LEFT_T = "a[p * 8 : p * 8 + 8, i * 16 : i * 16 + 16]"
RIGHT = "nl.load(b[p * 8 : p * 8 + 8, j * 24 : j * 24 + 24])"


def product(body: str, a: np.ndarray, b: np.ndarray, m: int, k: int, n: int) -> np.ndarray:
    source = TILED.format(params="a, b", m=m, k=k, n=n, body=body)
    return run(source, a, b, rtol=1e-4)


@pytest.mark.parametrize(
    ("body", "turned"),
    [
        (f"total += nl.matmul(nl.load({LEFT}), {RIGHT})", False),
        (f"total += nl.matmul(nl.load({LEFT_T}), {RIGHT}, transpose_x=True)", True),
        (f"total += nisa.nc_matmul(nl.load({LEFT_T}), {RIGHT})", True),
        (f"total += nisa.nc_matmul(nl.copy(nisa.nc_transpose(nl.load({LEFT}))), {RIGHT})", False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_tiles_multiply_to_the_whole_product(body: str, turned: bool, dtype: type) -> None:
    m, k, n = 48, 24, 72
    a, b = RNG.normal(size=(m, k)).astype(dtype), RNG.normal(size=(k, n)).astype(dtype)
    found = product(body, np.ascontiguousarray(a.T) if turned else a, b, m, k, n)
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


def runs(nodes: list[Run | Pieces]) -> list[Run]:
    found: list[Run] = []
    for node in nodes:
        found.extend(runs(node.body) if isinstance(node, Pieces) else [node])
    return found


def test_a_tiled_matmul_is_one_call_into_the_result() -> None:
    body = f"total += nl.matmul(nl.load({LEFT}), {RIGHT})"
    a, b = np.zeros((48, 24), np.float32), np.zeros((24, 72), np.float32)
    kernel = traced(TILED.format(params="a, b", m=48, k=24, n=72, body=body), (a, b))
    plan = compile_plan(kernel)
    (only,) = runs(plan.schedule.body)
    assert only.statement.op == "nl.matmul"
    assert only.statement.dsts[0].storage.is_output
    assert len(only.loops) == 3
    assert plan.temporary_bytes == 0


def test_unrolled_accumulation_starts_by_overwriting() -> None:
    source = """
def kernel(a, b):
    out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((16, 24), dtype=nl.float32, buffer=nl.psum)
    for p in nl.static_range(4):
        total += nisa.nc_matmul(nl.load(a[p * 8 : p * 8 + 8, 0:16]), nl.load(b[p * 8 : p * 8 + 8, 0:24]))
    nl.store(out, nl.copy(total))
    return out
"""
    a, b = RNG.normal(size=(32, 16)).astype(np.float32), RNG.normal(size=(32, 24)).astype(np.float32)
    np.testing.assert_allclose(run(source, a, b, rtol=1e-4), a.T @ b, rtol=1e-4, atol=1e-5)


def test_sums_over_an_outer_loop_join_the_matmul() -> None:
    source = """
def kernel(a, b):
    out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((16, 24), dtype=nl.float32)
    for q in nl.sequential_range(3):
        part = nl.zeros((16, 24), dtype=nl.float32, buffer=nl.psum)
        for p in nl.affine_range(2):
            r = 16 * q + 8 * p
            part += nisa.nc_matmul(nl.load(a[r : r + 8, 0:16]), nl.load(b[r : r + 8, 0:24]))
        total[...] = nl.loop_reduce(part, op=np.add, loop_indices=[q])
    nl.store(out, total)
    return out
"""
    a, b = RNG.normal(size=(48, 16)).astype(np.float32), RNG.normal(size=(48, 24)).astype(np.float32)
    np.testing.assert_allclose(run(source, a, b, rtol=1e-4), a.T @ b, rtol=1e-4, atol=1e-5)
    plan = compile_plan(traced(source, (a, b)))
    (only,) = runs(plan.schedule.body)
    assert {v.name for v in only.loops} == {"q", "p"}


def test_a_mask_on_the_columns_leaves_the_last_tile_narrow() -> None:
    source = """
def kernel(a, b):
    rows, columns = b.shape
    out = nl.ndarray((16, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    jf, jp, mf = nl.arange(24)[None, :], nl.arange(8)[:, None], nl.arange(16)[:, None]
    for j in nl.affine_range((columns + 23) // 24):
        total = nl.zeros((16, 24), dtype=nl.float32, buffer=nl.psum)
        for p in nl.affine_range(rows // 8):
            moving = nl.ndarray((8, 24), dtype=nl.float32)
            moving[jp, jf] = nl.load(b[8 * p + jp, 24 * j + jf], mask=24 * j + jf < columns)
            stationary = nl.load(a[8 * p + jp, nl.arange(16)[None, :]])
            total[mf, jf] += nisa.nc_matmul(stationary, moving[jp, jf], mask=24 * j + jf < columns)
        nl.store(out[mf, 24 * j + jf], nl.copy(total, mask=24 * j + jf < columns), mask=24 * j + jf < columns)
    return out
"""
    a, b = RNG.normal(size=(16, 16)).astype(np.float32), RNG.normal(size=(16, 53)).astype(np.float32)
    np.testing.assert_allclose(run(source, a, b, rtol=1e-4), a.T @ b, rtol=1e-4, atol=1e-5)


def test_a_transpose_passes_nan_through_and_a_product_spreads_it() -> None:
    source = """
def kernel(a, eye):
    out = nl.ndarray((2, 8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    identity = nl.load(nl.shared_constant(np.identity(8, dtype=np.float32)))
    x = nl.load(a)
    nl.store(out[0], nl.copy(nisa.nc_matmul(x, identity, is_transpose=True)))
    nl.store(out[1], nl.copy(nisa.nc_matmul(x, nl.load(eye))))
    return out
"""
    a = RNG.normal(size=(8, 8)).astype(np.float32)
    a[2, 3] = np.nan
    arguments = a, np.identity(8, dtype=np.float32)
    (found,) = interpret(traced(source, arguments), arguments)
    np.testing.assert_array_equal(found[0], a.T)
    assert np.isnan(found[1][3]).all() and np.isnan(found[1]).sum() == 8


CLAIM = """
def kernel(a, b):
    out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(2):
        total += nisa.nc_matmul(nl.load(a[k * 8 : k * 8 + 8, :]), nl.load(b[k * 8 : k * 8 + 8, :]), {claim}=True)
    nl.store(out, nl.copy(total))
    return out
"""


@pytest.mark.parametrize("claim", ["is_transpose", "is_moving_onezero", "is_stationary_onezero"])
def test_what_a_matmul_says_of_its_operands_is_held_against_the_data(claim: str) -> None:
    source = CLAIM.format(claim=claim)
    a = (RNG.normal(size=(16, 8)) > 0).astype(np.float32)
    b = np.vstack([np.identity(8), np.identity(8)]).astype(np.float32)
    np.testing.assert_array_equal(run(source, a, b), a.T @ b)
    a[9, 3] = b[9, 1] = 0.5
    with pytest.raises(BrokenClaimError) as caught:
        interpret(traced(source, (a, b)), (a, b))
    assert claim in caught.value.message and "holds 0.5" in caught.value.message and caught.value.line


@st.composite
def operands(draw: st.DrawFn) -> tuple[list[int], ...]:
    orders = [draw(st.permutations(range(4))) for _ in range(3)]
    extents = [draw(st.integers(1, 3)) for _ in range(6)]
    return extents, *orders  # type: ignore[return-value]


@given(operands())
@settings(max_examples=60, deadline=None)
def test_any_order_of_dimensions_in_memory_gives_the_same_product(case: tuple[list[int], ...]) -> None:
    (i, j, p, m, k, n), order_a, order_b, order_c = case
    # Row tiles (i, m), inner tiles (p, k), column tiles (j, n), stored with their dimensions in any order.
    a = RNG.integers(-4, 5, size=(i, m, p, k)).astype(np.float32)
    b = RNG.integers(-4, 5, size=(p, k, j, n)).astype(np.float32)
    index_a = [("i", "0", "p", "1")[d] for d in order_a]
    index_b = [("p", "0", "j", "1")[d] for d in order_b]
    index_c = [("i", "0", "j", "1")[d] for d in order_c]
    shape_c = [(i, m, j, n)[d] for d in order_c]

    def text(index: list[str], first: int, second: int) -> str:
        axes = {"0": f"nl.arange({first})[:, None]", "1": f"nl.arange({second})[None, :]"}
        return ", ".join(axes.get(x, x) for x in index)

    source = f"""
def kernel(a, b):
    out = nl.ndarray({tuple(shape_c)}, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range({i}):
        for j in nl.affine_range({j}):
            total = nl.zeros(({m}, {n}), dtype=nl.float32, buffer=nl.psum)
            for p in nl.affine_range({p}):
                total += nl.matmul(nl.load(a[{text(index_a, m, k)}]), nl.load(b[{text(index_b, k, n)}]))
            nl.store(out[{text(index_c, m, n)}], nl.copy(total))
    return out
"""
    arguments = np.ascontiguousarray(a.transpose(order_a)), np.ascontiguousarray(b.transpose(order_b))
    (found,) = run_kernel(traced(source, arguments), arguments)
    expected = np.einsum("impk,pkjn->imjn", a, b).transpose(order_c)
    np.testing.assert_array_equal(found, expected)


def test_dimensions_join_where_every_stride_that_matters_allows_it() -> None:
    outer, inner = Group(4, 128, 0, 512), Group(8, 16, 0, 64)
    assert [g.extent for g in joined([outer, inner], "ac")] == [32]
    assert [g.extent for g in joined([outer, Group(8, 16, 0, 1)], "ac")] == [4, 8]
    assert [g.extent for g in joined([outer, Group(8, 16, 0, 1)], "a")] == [32]


def test_blas_takes_matrices_with_one_contiguous_direction() -> None:
    assert blas_takes(64, 1, 10, 64) and blas_takes(1, 10, 10, 64)
    assert not blas_takes(64, 2, 10, 32) and not blas_takes(32, 1, 10, 64)


def test_an_operand_with_no_contiguous_direction_is_packed() -> None:
    rows, columns = (Group(512, 2048, 0, 1024),), (Group(1024, 0, 1, 1),)
    form = best_form(Problem((), rows, columns, (Group(1024, 2, 1024, 0),)), False)
    assert form.pack_a and not form.pack_b and not form.stage


def test_axes_regroup_to_common_pieces() -> None:
    assert split_axes([(1, 24)], [(100, 4), (1, 6)]) == [(4, 6, 100), (6, 1, 1)]
    with pytest.raises(ValueError, match="regroup"):
        split_axes([(1, 6), (1, 4)], [(1, 4), (1, 6)])
