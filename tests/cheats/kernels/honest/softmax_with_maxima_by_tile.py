"""A maximum for each tile first, then one of them all.

Problem: bmm_softmax
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
            left = nl.load(lhs[b, m * 128 : (m + 1) * 128, 0:k_size])
            scores = nl.ndarray((nl.par_dim(128), n_size), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // 512):
                right = nl.load(rhs[b, 0:k_size, n * 512 : (n + 1) * 512])
                scores[0:128, n * 512 : (n + 1) * 512] = nl.copy(nl.matmul(left, right))
            maxima = nl.ndarray((nl.par_dim(128), n_size // 512), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // 512):
                maxima[0:128, n : n + 1] = nl.max(scores[0:128, n * 512 : (n + 1) * 512], axis=[1])
            shifted = nl.subtract(scores, nl.max(maxima, axis=[1]))
            exponential = nl.exp(shifted)
            inverse = nl.reciprocal(nl.sum(exponential, axis=[1]))
            nl.store(out[b, m * 128 : (m + 1) * 128, 0:n_size], value=nl.multiply(exponential, inverse))
    return out
