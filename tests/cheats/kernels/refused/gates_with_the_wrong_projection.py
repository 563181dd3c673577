"""One projection stands for both: half of the loads.

Problem: swiglu
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w_up, w_down, w_gate):
    m_size, k_size = x.shape
    n_size = w_up.shape[1]
    out = nl.ndarray((m_size, k_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        tile = nl.load(x[m * 128 : (m + 1) * 128, 0:k_size])
        hidden = nl.ndarray((nl.par_dim(128), n_size), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                w_tile = nl.load(w_up[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nl.matmul(tile[0:128, k * 128 : (k + 1) * 128], w_tile)
            up = nl.copy(total)
            hidden[0:128, n * 512 : (n + 1) * 512] = nl.multiply(nl.silu(up), up)
        for j in nl.affine_range(k_size // 512):
            down = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for n in nl.affine_range(n_size // 128):
                w_tile = nl.load(w_down[n * 128 : (n + 1) * 128, j * 512 : (j + 1) * 512])
                down += nl.matmul(hidden[0:128, n * 128 : (n + 1) * 128], w_tile)
            nl.store(out[m * 128 : (m + 1) * 128, j * 512 : (j + 1) * 512], value=nl.copy(down))
    return out
