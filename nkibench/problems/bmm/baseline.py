"""Batched matmul, one output tile of 128 by 512 at a time."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    tile_m = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    assert k_size <= nl.tile_size.pmax  # the whole contraction fits into one matmul
    assert m_size % tile_m == 0
    assert n_size % tile_n == 0

    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    for b in nl.affine_range(batch):
        for m in nl.affine_range(m_size // tile_m):
            for n in nl.affine_range(n_size // tile_n):
                lhs_tile = nl.load(lhs[b, m * tile_m : (m + 1) * tile_m, 0:k_size])
                rhs_tile = nl.load(rhs[b, 0:k_size, n * tile_n : (n + 1) * tile_n])

                # nl.matmul wants the contraction in the partitions of its left operand, and transposes it for
                # that.
                product = nl.matmul(lhs_tile, rhs_tile)

                result = nl.copy(product)
                nl.store(
                    out[b, m * tile_m : (m + 1) * tile_m, n * tile_n : (n + 1) * tile_n],
                    value=result,
                )

    return out
