"""Each operand as the sum of two bfloat16, three fast products instead of one exact.

Problem: bmm
Verdict: incorrect
Reason: precision
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
            left = nl.load(lhs[b, m * 128 : (m + 1) * 128, 0:k_size])
            left_high = nl.copy(left, dtype=nl.bfloat16)
            left_low = nl.copy(nl.subtract(left, left_high), dtype=nl.bfloat16)
            for n in nl.affine_range(n_size // 512):
                right = nl.load(rhs[b, 0:k_size, n * 512 : (n + 1) * 512])
                right_high = nl.copy(right, dtype=nl.bfloat16)
                right_low = nl.copy(nl.subtract(right, right_high), dtype=nl.bfloat16)
                total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                total += nl.matmul(left_high, right_high)
                total += nl.matmul(left_high, right_low)
                total += nl.matmul(left_low, right_high)
                nl.store(out[b, m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total))
    return out
