"""The maximum of the last 512 columns stands for that of the row.

Problem: bmm_softmax
Verdict: incorrect
Reason: output_written
Regime: scattered
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    tile_m = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    m_tiles = m_size // tile_m
    assert k_size <= nl.tile_size.pmax  # the whole contraction fits into one matmul
    assert m_size % tile_m == 0
    assert n_size % tile_n == 0

    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    for b in nl.affine_range(batch):
        scores = nl.ndarray((m_tiles, nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)

        for m in nl.affine_range(m_tiles):
            lhs_tile = nl.load(lhs[b, m * tile_m : (m + 1) * tile_m, 0:k_size])
            for n in nl.affine_range(n_size // tile_n):
                rhs_tile = nl.load(rhs[b, 0:k_size, n * tile_n : (n + 1) * tile_n])
                product = nl.matmul(lhs_tile, rhs_tile)
                scores[m, 0:tile_m, n * tile_n : (n + 1) * tile_n] = nl.copy(product)

        for m in nl.affine_range(m_tiles):
            row_maximum = nl.max(scores[m, 0:tile_m, n_size - tile_n : n_size], axis=[1])
            shifted = nl.subtract(scores[m, 0:tile_m, 0:n_size], row_maximum)
            exponential = nl.exp(shifted)
            total = nl.sum(exponential, axis=[1])
            inverse = nl.reciprocal(total)
            result = nl.multiply(exponential, inverse)
            nl.store(out[b, m * tile_m : (m + 1) * tile_m, 0:n_size], value=result)

    return out
