"""Overlap of affine accesses, and what loops may be reordered."""

from __future__ import annotations

import numpy as np

from tools.neuroncore.ir import Access, Affine, Buffer, Loop, LoopKind, LoopVar, Tensor
from tools.neuroncore.machine import machine_for
from tools.rewrites.capacity import psum_banks, sbuf_bytes_per_partition
from tools.rewrites.dependence import carries, is_parallel, may_overlap

X = Tensor("x", (1024, 512), np.dtype(np.float32), Buffer.HBM)
ROW, COLUMN = LoopVar("i", 8), LoopVar("j", 4)


def rows(start: Affine, n: int = 128, step: int = 1) -> Access:
    return Access(X, (start + Affine.of(0, step), Affine.of(1)), (n, 512))


def test_tiles_of_different_iterations_are_disjoint():
    a = rows(Affine.of(ROW, 128))
    assert may_overlap(a, a, shared=[ROW])
    assert may_overlap(a, a)
    assert not may_overlap(a, a, distance=(ROW, ROW, 1, 7))
    assert not may_overlap(a, a, distance=(ROW, ROW, -7, -1))


def test_windows_that_reach_into_the_next_iteration_overlap():
    a = rows(Affine.of(ROW, 100))
    assert may_overlap(a, a, distance=(ROW, ROW, 1, 7))
    assert not may_overlap(a, a, distance=(ROW, ROW, 2, 7))


def test_two_levels_of_tiling_are_told_apart():
    outer = LoopVar("i_block", 2)
    a = rows(Affine.of(outer, 512) + Affine.of(COLUMN, 128))
    assert not may_overlap(a, a, distance=(outer, outer, 1, 1))
    assert not may_overlap(a, a, shared=[outer], distance=(COLUMN, COLUMN, 1, 3))
    assert may_overlap(a, a, shared=[outer])


def test_an_outer_loop_with_the_smaller_step_is_told_apart_too():
    outer = LoopVar("piece", 2)
    a = rows(Affine.of(outer, 128) + Affine.of(COLUMN, 256))
    assert not may_overlap(a, a, distance=(outer, outer, 1, 1))
    b = rows(Affine.of(outer, 128) + Affine.of(COLUMN, 200))
    assert may_overlap(b, b, distance=(outer, outer, 1, 1))


def test_interleaved_rows_are_disjoint_by_their_common_divisor():
    even, odd = rows(Affine(0), 64, 2), rows(Affine(1), 64, 2)
    assert may_overlap(even, even)
    assert not may_overlap(even, odd)


def test_other_tensors_never_overlap_and_reshaped_views_always_may():
    other = Tensor("y", (1024, 512), np.dtype(np.float32), Buffer.HBM)
    assert not may_overlap(rows(Affine(0)), other.whole())
    view = Tensor("flat", (2048, 256), np.dtype(np.float32), Buffer.HBM, view_of=X)
    assert may_overlap(rows(Affine(0)), view.whole())


def loop_of(kernel, depth: int = 0) -> tuple[Loop, tuple[Loop, ...]]:
    nodes, outer = kernel.body, ()
    for level in range(depth + 1):
        loop = next(n for n in nodes if isinstance(n, Loop))
        if level < depth:
            nodes, outer = loop.body, (*outer, loop)
    return loop, outer


def test_python_ranges_are_parallel_only_when_nothing_is_carried(case):
    source = """
        def kernel(x):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            state = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            for i in range(2):
                tile = nl.load(x[i * 128 : (i + 1) * 128, 0:512])
                LINE
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=tile)
            return out
    """
    free, _ = loop_of(case(source.replace("LINE", ""), (256, 512)).kernel)
    assert free.kind is LoopKind.RANGE and is_parallel(free, ())
    bound, _ = loop_of(
        case(source.replace("LINE", "state[0:128, 0:512] = nl.subtract(tile, state)"), (256, 512)).kernel
    )
    assert not is_parallel(bound, ())


def test_sums_count_as_dependences_only_on_request(case):
    source = """
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            for i in nl.sequential_range(2):
                total[0:128, 0:512] += nl.load(x[i * 128 : (i + 1) * 128, 0:512])
            nl.store(out, value=total)
            return out
    """
    loop, outer = loop_of(case(source, (256, 512)).kernel)
    assert carries(loop, outer) is None
    assert carries(loop, outer, reductions=True) is not None


def test_capacity_counts_what_is_live_at_once(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            resident = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            own = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            for i in nl.affine_range(4):
                resident[i, 0:128, 0:1024] = nl.load(x[i * 128 : (i + 1) * 128, 0:1024])
            for i in nl.affine_range(4):
                own[i, 0:128, 0:1024] = nl.exp(resident[i, 0:128, 0:1024])
                nl.store(out[i * 128 : (i + 1) * 128, 0:1024], value=own[i, 0:128, 0:1024])
            return out
        """,
        (512, 1024),
    )
    # Four resident blocks of 4 KiB, and one of the array that each iteration uses for itself.
    assert sbuf_bytes_per_partition(kernel.kernel) == 5 * 4096


def test_psum_is_counted_in_banks(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(x)
            a = nisa.nc_matmul(tile, tile)
            b = nisa.nc_matmul(tile, tile)
            nl.store(out, value=nl.add(nl.copy(a), b))
            return out
        """,
        (128, 128),
    )
    assert psum_banks(kernel.kernel, machine_for("trn1")) == 2
