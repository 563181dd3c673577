"""The adapter's product goes on top of the main one in PSUM.

Problem: lora
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, a, b):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    rank = a.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        tile = nl.load(x[m * 128 : (m + 1) * 128, 0:k_size])
        narrow = nl.zeros((128, rank), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(k_size // 128):
            a_tile = nl.load(a[k * 128 : (k + 1) * 128, 0:rank])
            narrow += nl.matmul(tile[0:128, k * 128 : (k + 1) * 128], a_tile)
        projected = nl.copy(narrow)
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nl.matmul(tile[0:128, k * 128 : (k + 1) * 128], w_tile)
            b_tile = nl.load(b[0:rank, n * 512 : (n + 1) * 512])
            total += nl.matmul(projected, b_tile)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total))
    return out
