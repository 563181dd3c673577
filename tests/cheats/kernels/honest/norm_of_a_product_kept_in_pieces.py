"""The product of a row block in a list of tiles, its squares summed tile by tile.

Problem: matmul_add_rmsnorm
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    g_row = nl.load(g.reshape((1, n_size))[0:1, 0:n_size])
    for m in nl.affine_range(m_size // 128):
        tile = nl.load(x[m * 128 : (m + 1) * 128, 0:k_size])
        pieces = nl.ndarray((n_size // 512, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        sums = nl.ndarray((nl.par_dim(128), n_size // 512), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(n_size // 512):
            product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                product += nl.matmul(tile[0:128, k * 128 : (k + 1) * 128], w_tile)
            z_tile = nl.load(z[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512])
            pieces[n, 0:128, 0:512] = nl.add(z_tile, product)
            sums[0:128, n : n + 1] = nl.sum(nl.square(pieces[n, 0:128, 0:512]), axis=[1])
        inverse = nl.rsqrt(nl.add(nl.multiply(nl.sum(sums, axis=[1]), 1.0 / n_size), eps))
        for n in nl.affine_range(n_size // 512):
            weights = g_row[0:1, n * 512 : (n + 1) * 512].broadcast_to((128, 512))
            y = nl.multiply(nl.multiply(pieces[n, 0:128, 0:512], inverse), weights)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=y)
    return out
