"""Kernels as a compiler prints them: every tensor declared at the top, with a block for each iteration of each loop."""

from __future__ import annotations

import random

import pytest

from tools.neuroncore.ir import Kernel
from tools.rewrites import REWRITES, RewriteError, rewrite_named
from tools.rewrites.layout import localize

SOFTMAX_LIKE = """
    def kernel(v1, v2):
        p, c, f = nl.arange(128)[:, None], nl.arange(256)[None, :], nl.arange(512)[None, :]
        v3 = nl.ndarray((2, 128, 1024), dtype=np.float32, buffer=nl.shared_hbm)
        v4 = nl.ndarray((nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf)
        v5 = nl.ndarray((2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
        v6 = nl.ndarray((2, 2, 2, nl.par_dim(128), 256), dtype=np.float32, buffer=nl.sbuf)
        v7 = nl.ndarray((2, 2, 2, nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf)
        v8 = nl.ndarray((2, nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf)
        v9 = nl.ndarray((2, nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf)
        v10 = nl.ndarray((2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
        v11 = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
        v12 = nl.zeros((2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
        v13 = nl.ndarray((2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
        v4[p, 0] = nisa.memset(shape=(128, 1), value=np.dtype(np.uint16).type(0), dtype=np.float32)
        for k in nl.affine_range(4):
            for n in nl.affine_range(2):
                v11[k, n, p, f] = nl.load(v2[128 * k + p, 512 * n + f], dtype=np.float32, mask=None)
        for i0 in nl.affine_range(2):
            for i1 in nl.affine_range(2):
                v5[i0, i1, p, f] = nl.load(v1[i0, p, 512 * i1 + f], dtype=np.float32, mask=None)
                for i2 in nl.affine_range(2):
                    v6[i0, i1, i2, p, c] = nisa.activation(
                        op=nl.exp, data=v5[i0, i1, p, 256 * i2 + c], bias=v4[p, 0], scale=-1.0, dtype=np.float32
                    )
                    v10[i0, i1, p, 256 * i2 + c] = nisa.tensor_scalar(
                        data=v6[i0, i1, i2, p, c], op0=nl.add, operand0=np.float32(1), reverse0=True, dtype=np.float32
                    )
                    v7[i0, i1, i2, p, 0] = nisa.tensor_reduce(
                        nl.add, data=v6[i0, i1, i2, p, c], axis=[1], dtype=np.float32, negate=False
                    )
                    v8[i0, p, 0] = nl.loop_reduce(
                        v7[i0, i1, i2, p, 0], op=np.add, loop_indices=[i1, i2], dtype=np.float32
                    )
            v9[i0, p, 0] = nisa.reciprocal(data=v8[i0, p, 0], dtype=np.float32)
            for n in nl.affine_range(2):
                for k in nl.affine_range(4):
                    v12[i0, n, p, f] += nisa.nc_matmul(v11[k, 0, p, nl.arange(128)[None, :]], v11[k, n, p, f])
                v13[i0, n, p, f] = nl.multiply(v12[i0, n, p, f], v9[i0, p, 0], dtype=np.float32)
                v13[i0, n, p, f] = nl.add(v13[i0, n, p, f], v10[i0, n, p, f], dtype=np.float32)
                nl.store(v3[i0, p, 512 * n + f], value=v13[i0, n, p, f], mask=None)
        return v3
"""

SHAPES = ((2, 128, 1024), (512, 1024))


def test_printing_keeps_block_tensors_reductions_over_loops_and_lazy_zeros(case):
    kernel = case(SOFTMAX_LIKE, *SHAPES)
    kernel.assert_equals(kernel)
    assert "nl.loop_reduce(" in kernel.source and "loop_indices=[i1, i2]" in kernel.source


def test_each_tensor_moves_to_the_loop_whose_iterations_own_it(case):
    kernel = case(SOFTMAX_LIKE, *SHAPES)
    after = case(SOFTMAX_LIKE, *SHAPES)
    localize(after.kernel)
    after.assert_equals(kernel)
    home = {t.name: (t.shape, t.scope.var.name if t.scope else None) for t in after.kernel.tensors()}
    assert home["v6"] == ((128, 256), "i2")
    assert home["v5"] == ((128, 512), "i1")
    assert home["v8"] == ((128, 1), "i0")
    assert home["v11"] == ((4, 2, 128, 512), None)
    assert home["v12"][0] == (128, 512)


def test_reductions_over_loops_merge_with_their_tiles(case):
    kernel = case(SOFTMAX_LIKE, *SHAPES)
    after = kernel.apply(rewrite_named("widen-tile"), "all 2 iterations of the loop over i2")
    assert "loop_indices=[i1]" in after.source


def some_rewrite(kernel: Kernel, rng: random.Random) -> Kernel | None:
    for rewrite in rng.sample(REWRITES, len(REWRITES)):
        options = list(rewrite.candidates(kernel))
        for option in rng.sample(options, len(options)):
            try:
                return rewrite.apply(kernel, option)
            except RewriteError:
                continue
    return None


@pytest.mark.parametrize("seed", range(4))
def test_random_sequences_keep_results(case, seed):
    first = case(SOFTMAX_LIKE, *SHAPES)
    rng = random.Random(seed)
    now = case(SOFTMAX_LIKE, *SHAPES)
    for _ in range(5):
        after = some_rewrite(now.kernel, rng)
        if after is None:
            break
        now.kernel = after
    now.assert_equals(first)
