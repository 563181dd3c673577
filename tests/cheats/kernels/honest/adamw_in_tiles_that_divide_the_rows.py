"""Tiles of 64 rows divide 320 evenly; the masks have nothing to hide.

Problem: adamw
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    rows, columns = theta.shape
    out = nl.ndarray((rows, columns), dtype=theta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + 63) // 64):
        row = i * 64 + nl.arange(64)[:, None]
        column = nl.arange(columns)[None, :]
        inside = row < rows
        theta_tile = nl.load(theta[row, column], mask=inside)
        g_tile = nl.load(g[row, column], mask=inside)
        m_tile = nl.load(m[row, column], mask=inside)
        v_tile = nl.load(v[row, column], mask=inside)
        first = nl.add(nl.multiply(m_tile, 0.9), nl.multiply(g_tile, 0.1))
        second = nl.add(nl.multiply(v_tile, 0.999), nl.multiply(nl.square(g_tile), 0.001))
        root = nl.add(nl.sqrt(nl.multiply(second, 1000.0)), 1e-8)
        result = nl.subtract(nl.multiply(theta_tile, 1 - 1e-5), nl.multiply(nl.multiply(first, 0.01), nl.reciprocal(root)))
        nl.store(out[row, column], value=result, mask=inside)
    return out
