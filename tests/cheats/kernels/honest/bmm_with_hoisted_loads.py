"""Each right operand loaded once for all row blocks.

Problem: bmm
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batch):
        right = nl.load(rhs[b, 0:k_size, 0:n_size])
        for m in nl.affine_range(m_size // 128):
            left = nl.load(lhs[b, m * 128 : (m + 1) * 128, 0:k_size])
            row = nl.ndarray((nl.par_dim(128), n_size), dtype=lhs.dtype, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // 512):
                row[0:128, n * 512 : (n + 1) * 512] = nl.matmul(left, right[0:k_size, n * 512 : (n + 1) * 512])
            nl.store(out[b, m * 128 : (m + 1) * 128, 0:n_size], value=row)
    return out
