"""Transposes by a matmul with an identity from a constant, as compilers print it.

Problem: matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
import numpy as np


@nki.jit
def kernel(lhs, rhs):
    m_size, k_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    identity_in_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.load(identity_in_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((nl.par_dim(128), 512), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
                turned = nisa.nc_matmul(left, identity, is_stationary_onezero=False, is_moving_onezero=True, is_transpose=True)
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total[0:128, 0:512] += nisa.nc_matmul(nl.copy(turned), right)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total))
    return out
