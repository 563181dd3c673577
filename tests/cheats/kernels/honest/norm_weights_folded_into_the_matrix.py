"""The norm's weights multiplied into the rows of w, the row scale after the matmul.

Problem: add_rmsnorm_matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    column = g.reshape((k_size, 1))
    folded = nl.ndarray((k_size // 128, nl.par_dim(128), n_size), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(k_size // 128):
        weights = nl.load(column[k * 128 : (k + 1) * 128, 0:1])
        folded[k, 0:128, 0:n_size] = nl.multiply(nl.load(w[k * 128 : (k + 1) * 128, 0:n_size]), weights)
    for m in nl.affine_range(m_size // 128):
        y = nl.add(nl.load(x[m * 128 : (m + 1) * 128, 0:k_size]), nl.load(z[m * 128 : (m + 1) * 128, 0:k_size]))
        inverse = nl.rsqrt(nl.add(nl.multiply(nl.sum(nl.square(y), axis=[1]), 1.0 / k_size), eps))
        for n in nl.affine_range(n_size // 512):
            product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                product += nl.matmul(y[0:128, k * 128 : (k + 1) * 128], folded[k, 0:128, n * 512 : (n + 1) * 512])
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.multiply(product, inverse))
    return out
