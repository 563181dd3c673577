"""Loads and stores fp32, computes in between with half of it.

Problem: silu
Verdict: incorrect
Reason: precision
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]])
        weight = nl.sigmoid(tile, dtype=nl.float16)
        nl.store(out[i * 128 : (i + 1) * 128, 0 : x.shape[1]], value=nl.multiply(tile, weight, dtype=nl.float32))
    return out
