"""One tile of eight is off by more than a tile may be, the whole by less than the tolerance.

Problem: bmm
Verdict: incorrect
Reason: tile_relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for b in nl.static_range(batch):
        for m in nl.static_range(m_size // 128):
            left = nl.load(lhs[b, m * 128 : (m + 1) * 128, 0:k_size])
            for n in nl.static_range(n_size // 512):
                right = nl.load(rhs[b, 0:k_size, n * 512 : (n + 1) * 512])
                factor = 1.000048 if (b, m, n) == (0, 1, 1) else 1.0
                product = nl.multiply(nl.matmul(left, right), factor)
                nl.store(out[b, m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=product)
    return out
