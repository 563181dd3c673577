"""Matmul, one output tile of 128 by 512 at a time, its operand tiles loaded where they are needed."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    m_size, k_size = lhs.shape
    n_size = rhs.shape[1]
    tile_m = nl.tile_size.pmax  # 128
    tile_k = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    assert m_size % tile_m == 0
    assert k_size % tile_k == 0
    assert n_size % tile_n == 0

    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(m_size // tile_m):
        for n in nl.affine_range(n_size // tile_n):
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)

            for k in nl.affine_range(k_size // tile_k):
                lhs_tile = nl.load(lhs[m * tile_m : (m + 1) * tile_m, k * tile_k : (k + 1) * tile_k])
                rhs_tile = nl.load(rhs[k * tile_k : (k + 1) * tile_k, n * tile_n : (n + 1) * tile_n])
                accumulator += nl.matmul(lhs_tile, rhs_tile)

            result = nl.copy(accumulator)
            nl.store(out[m * tile_m : (m + 1) * tile_m, n * tile_n : (n + 1) * tile_n], value=result)

    return out
