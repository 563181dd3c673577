"""The gradient's square is small beside its mean, so it is left out.

Problem: adamw
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    rows, columns = theta.shape
    out = nl.ndarray((rows, columns), dtype=theta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + 127) // 128):
        row = i * 128 + nl.arange(128)[:, None]
        column = nl.arange(columns)[None, :]
        inside = row < rows
        theta_tile = nl.load(theta[row, column], mask=inside)
        g_tile = nl.load(g[row, column], mask=inside)
        m_tile = nl.load(m[row, column], mask=inside)
        v_tile = nl.load(v[row, column], mask=inside)
        first = nl.add(nl.multiply(m_tile, 0.9), nl.multiply(g_tile, 0.1))
        root = nl.add(nl.sqrt(nl.multiply(v_tile, 999.0)), 1e-8)
        result = nl.subtract(nl.multiply(theta_tile, 1 - 1e-5), nl.multiply(nl.multiply(first, 0.01), nl.reciprocal(root)))
        nl.store(out[row, column], value=result, mask=inside)
    return out
