"""The sign of odd tiles is wrong, their norm is right.

Problem: silu
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            sign = nl.multiply(nisa.iota(j + 0 * nl.arange(1)[None, :] + 0 * nl.arange(128)[:, None], dtype=nl.float32), -2.0)
            nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=nl.multiply(nl.silu(tile), nl.add(sign, 1.0)))
    return out
