"""One AdamW step in [128, 1024] tiles with a masked last block: the shape of the measured adamw baseline."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((10944, 2048), dtype=np.float32, buffer=nl.shared_hbm)
    p, wide, half = nl.arange(128)[:, None], nl.arange(1024)[None, :], nl.arange(512)[None, :]

    def scaled(tile, factor, mask):
        return nisa.tensor_scalar(tile, op0=np.multiply, operand0=np.float32(factor), mask=mask)

    for block in nl.affine_range(86):
        mask = 128 * block + p < 10944
        for side in nl.affine_range(2):
            rows, columns = 128 * block + p, 1024 * side + wide
            theta_tile = nl.load(theta[rows, columns], mask=mask)
            m_tile = nl.load(m[rows, columns], mask=mask)
            v_tile = nl.load(v[rows, columns], mask=mask)
            g_tile = nl.load(g[rows, columns], mask=mask)
            result = nl.ndarray((nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
            for chunk in nl.affine_range(2):
                at = 512 * chunk + half
                decayed = nl.subtract(theta_tile[p, at], scaled(theta_tile[p, at], 1e-5, mask), mask=mask)
                mean = nl.add(scaled(m_tile[p, at], 0.9, mask), scaled(g_tile[p, at], 0.1, mask), mask=mask)
                step = scaled(mean, 0.01, mask)
                old = scaled(v_tile[p, at], 0.999, mask)
                square = nl.multiply(scaled(g_tile[p, at], 0.001, mask), g_tile[p, at], mask=mask)
                spread = nl.add(old, square, mask=mask)
                root = nisa.activation(op=nl.sqrt, data=spread, scale=1000.0, mask=mask)
                safe = nisa.tensor_scalar(root, op0=np.add, operand0=np.float32(1e-8), mask=mask)
                inverse = nisa.reciprocal(safe, mask=mask)
                update = nl.multiply(step, inverse, mask=mask)
                result[p, at] = nl.subtract(decayed, update, mask=mask)
            nl.store(out[rows, columns], value=result, mask=mask)
    return out
