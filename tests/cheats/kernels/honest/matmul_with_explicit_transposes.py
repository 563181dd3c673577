"""nc_transpose and nc_matmul by hand, transposes hoisted out of the column loop.

Problem: matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(lhs, rhs):
    m_size, k_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        left = nl.load(lhs[m * 128 : (m + 1) * 128, 0:k_size])
        flipped = nl.ndarray((k_size // 128, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(k_size // 128):
            flipped[k, 0:128, 0:128] = nisa.nc_transpose(left[0:128, k * 128 : (k + 1) * 128])
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nisa.nc_matmul(flipped[k, 0:128, 0:128], right)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total))
    return out
