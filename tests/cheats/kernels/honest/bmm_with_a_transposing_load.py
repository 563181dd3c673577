"""The left operand turned by the DMA.

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
        for m in nl.affine_range(m_size // 128):
            left = nl.load_transpose2d(lhs[b, m * 128 : (m + 1) * 128, 0:k_size])
            for n in nl.affine_range(n_size // 512):
                right = nl.load(rhs[b, 0:k_size, n * 512 : (n + 1) * 512])
                product = nl.matmul(left, right, transpose_x=True)
                nl.store(out[b, m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(product))
    return out
