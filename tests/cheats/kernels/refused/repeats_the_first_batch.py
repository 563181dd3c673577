"""Computes one element of the batch and stores it for all.

Problem: bmm
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        left = nl.load(lhs[0, m * 128 : (m + 1) * 128, 0:k_size])
        for n in nl.affine_range(n_size // 512):
            right = nl.load(rhs[0, 0:k_size, n * 512 : (n + 1) * 512])
            product = nl.copy(nl.matmul(left, right))
            for b in nl.affine_range(batch):
                nl.store(out[b, m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=product)
    return out
