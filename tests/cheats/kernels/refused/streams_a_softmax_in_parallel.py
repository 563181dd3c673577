"""Maxima and sums that are corrected from tile to tile, in a loop whose iterations may run in any order.

Problem: bmm_softmax
Verdict: compile_error
Reason: err_unexpected_output_dependencies
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batch):
        for m in nl.affine_range(m_size // 128):
            left = nl.load(lhs[i, nl.ds(m * 128, 128), 0:k_size])
            scores = nl.ndarray((nl.par_dim(128), n_size), dtype=nl.float32, buffer=nl.sbuf)
            peak = nl.full((nl.par_dim(128), 1), -1e30, dtype=nl.float32, buffer=nl.sbuf)
            total = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // 512):
                right = nl.load(rhs[i, 0:k_size, nl.ds(n * 512, 512)])
                tile = nl.copy(nl.matmul(left, right))
                scores[:, nl.ds(n * 512, 512)] = tile
                old = nl.copy(peak)
                peak[...] = nl.maximum(peak, nl.max(tile, axis=1))
                total[...] = nl.multiply(total, nl.exp(nl.subtract(old, peak)))
                total[...] = nl.add(total, nl.sum(nl.exp(nl.subtract(tile, peak)), axis=1))
            raised = nl.exp(nl.subtract(scores, peak))
            nl.store(out[i, nl.ds(m * 128, 128), 0:n_size], nl.multiply(raised, nl.reciprocal(total)))
    return out
