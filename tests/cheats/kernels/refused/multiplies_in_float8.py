"""Loads the operands as fp8.

Problem: matmul
Verdict: incorrect
Reason: precision
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    m_size, k_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128], dtype=nl.float8_e4m3)
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512], dtype=nl.float8_e4m3)
                total += nl.matmul(left, right)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total, dtype=nl.float32))
    return out
