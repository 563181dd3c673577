"""The mean square from one activation with accumulation.

Problem: add_rmsnorm_matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
import numpy as np


@nki.jit
def kernel(x, w, eps, z, g):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    g_row = nl.load(g.reshape((1, k_size))[0:1, 0:k_size])
    for m in nl.affine_range(m_size // 128):
        y = nl.add(nl.load(x[m * 128 : (m + 1) * 128, 0:k_size]), nl.load(z[m * 128 : (m + 1) * 128, 0:k_size]))
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(op=nl.square, data=y, reduce_op=np.add, reduce_res=total[0:128, 0:1])
        inverse = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / k_size), eps))
        weighted = nl.multiply(nl.multiply(y, inverse), g_row.broadcast_to((128, k_size)))
        for n in nl.affine_range(n_size // 512):
            product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                product += nl.matmul(weighted[0:128, k * 128 : (k + 1) * 128], w_tile)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(product))
    return out
