"""Two accumulation groups of half the contraction each, added at the end.

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
    half = k_size // 256
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 512):
            first = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            second = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(half):
                left = nl.load(lhs[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                first += nl.matmul(left, right)
                other = half + k
                left_two = nl.load(lhs[m * 128 : (m + 1) * 128, other * 128 : (other + 1) * 128])
                right_two = nl.load(rhs[other * 128 : (other + 1) * 128, n * 512 : (n + 1) * 512])
                second += nl.matmul(left_two, right_two)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.add(nl.copy(first), second))
    return out
