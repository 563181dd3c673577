"""The contraction outermost, sums kept in SBUF.

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
    sums = nl.zeros((m_size // 128, nl.par_dim(128), n_size), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.sequential_range(k_size // 128):
        right = nl.load(rhs[k * 128 : (k + 1) * 128, 0:n_size])
        for m in nl.affine_range(m_size // 128):
            left = nl.load(lhs[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
            for n in nl.affine_range(n_size // 512):
                product = nl.matmul(left, right[0:128, n * 512 : (n + 1) * 512])
                sums[m, 0:128, n * 512 : (n + 1) * 512] = nl.add(sums[m, 0:128, n * 512 : (n + 1) * 512], product)
    for m in nl.affine_range(m_size // 128):
        nl.store(out[m * 128 : (m + 1) * 128, 0:n_size], value=sums[m, 0:128, 0:n_size])
    return out
