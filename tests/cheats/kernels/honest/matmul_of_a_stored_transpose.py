"""Narrow tiles of 64 that divide a ragged width evenly: no masks.

Problem: transpose_matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(lhs, rhs):
    k_size, m_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 64):
            total = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 64 : (n + 1) * 64])
                total += nisa.nc_matmul(left, right)
            nl.store(out[m * 128 : (m + 1) * 128, n * 64 : (n + 1) * 64], value=nl.copy(total))
    return out
