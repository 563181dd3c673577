"""Computes the transposed product and turns its tiles on the way out.

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
        for n in nl.affine_range(n_size // 128):
            total = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 128 : (n + 1) * 128])
                total += nisa.nc_matmul(right, nl.copy(nisa.nc_transpose(left)))
            turned = nisa.nc_transpose(nl.copy(total))
            nl.store(out[m * 128 : (m + 1) * 128, n * 128 : (n + 1) * 128], value=nl.copy(turned))
    return out
