"""Matmul with a low-rank adapter: both products of a tile are computed, then added."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, a, b):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    rank = a.shape[1]
    tile_m = nl.tile_size.pmax  # 128
    tile_k = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    assert m_size % tile_m == 0
    assert k_size % tile_k == 0
    assert n_size % tile_n == 0
    assert rank <= nl.tile_size.pmax  # the adapter's contraction fits into one matmul

    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(m_size // tile_m):
        x_tile = nl.load(x[m * tile_m : (m + 1) * tile_m, 0:k_size])

        # x @ a: narrow enough for one tile.
        projection = nl.zeros((tile_m, rank), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(k_size // tile_k):
            a_tile = nl.load(a[k * tile_k : (k + 1) * tile_k, 0:rank])
            projection += nl.matmul(x_tile[0:tile_m, k * tile_k : (k + 1) * tile_k], a_tile)
        projected = nl.copy(projection)

        for n in nl.affine_range(n_size // tile_n):
            # x @ w
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                w_tile = nl.load(w[k * tile_k : (k + 1) * tile_k, n * tile_n : (n + 1) * tile_n])
                accumulator += nl.matmul(x_tile[0:tile_m, k * tile_k : (k + 1) * tile_k], w_tile)
            base = nl.copy(accumulator)

            # (x @ a) @ b
            b_tile = nl.load(b[0:rank, n * tile_n : (n + 1) * tile_n])
            correction = nl.copy(nl.matmul(projected, b_tile))

            result = nl.add(base, correction)
            nl.store(out[m * tile_m : (m + 1) * tile_m, n * tile_n : (n + 1) * tile_n], value=result)

    return out
