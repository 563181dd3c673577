"""Matmul with a left operand that is stored transposed, as the tensor engine wants it.

The columns need not fill their last tile: loads and stores are masked there.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    k_size, m_size = lhs.shape
    n_size = rhs.shape[1]
    tile_m = nl.tile_size.gemm_stationary_fmax  # 128
    tile_k = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    n_tiles = (n_size + tile_n - 1) // tile_n
    assert m_size % tile_m == 0
    assert k_size % tile_k == 0

    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(m_size // tile_m):
        for n in nl.affine_range(n_tiles):
            i_m = m * tile_m + nl.arange(tile_m)[:, None]
            i_n = n * tile_n + nl.arange(tile_n)[None, :]
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)

            for k in nl.affine_range(k_size // tile_k):
                i_k = k * tile_k + nl.arange(tile_k)[:, None]
                i_lhs = m * tile_m + nl.arange(tile_m)[None, :]
                lhs_tile = nl.load(lhs[i_k, i_lhs])
                rhs_tile = nl.load(rhs[i_k, i_n], mask=(i_n < n_size))
                accumulator += nl.matmul(lhs_tile, rhs_tile, transpose_x=True)

            result = nl.copy(accumulator)
            nl.store(out[i_m, i_n], value=result, mask=(i_n < n_size))

    return out
