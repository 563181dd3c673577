"""An epsilon so small that it does nothing but keep zeros from being divided by zero.

Problem: matmul_add_rmsnorm
Verdict: incorrect
Reason: relative_l2
Regime: small
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    tile_m = nl.tile_size.pmax  # 128
    tile_k = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    assert m_size % tile_m == 0
    assert k_size % tile_k == 0
    assert n_size % tile_n == 0

    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    g_row = nl.load(g.reshape((1, n_size))[0:1, 0:n_size])

    for m in nl.affine_range(m_size // tile_m):
        product = nl.ndarray((nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)

        for n in nl.affine_range(n_size // tile_n):
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                x_tile = nl.load(x[m * tile_m : (m + 1) * tile_m, k * tile_k : (k + 1) * tile_k])
                w_tile = nl.load(w[k * tile_k : (k + 1) * tile_k, n * tile_n : (n + 1) * tile_n])
                accumulator += nl.matmul(x_tile, w_tile)
            product[0:tile_m, n * tile_n : (n + 1) * tile_n] = nl.copy(accumulator)

        z_tile = nl.load(z[m * tile_m : (m + 1) * tile_m, 0:n_size])
        y = nl.add(product, z_tile)

        # The root mean square of each row; a row lies in one partition.
        squares = nl.square(y)
        total = nl.sum(squares, axis=[1])
        mean = nl.multiply(total, 1.0 / n_size)
        root_mean_square = nl.sqrt(nl.add(mean, 1e-12))
        inverse = nl.reciprocal(root_mean_square)
        normalized = nl.multiply(y, inverse)

        weighted = nl.multiply(normalized, g_row.broadcast_to((tile_m, n_size)))
        nl.store(out[m * tile_m : (m + 1) * tile_m, 0:n_size], value=weighted)

    return out
