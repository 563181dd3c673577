"""Spills an intermediate to HBM by hand and reads it back.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        nl.store(scratch[i * 128 : (i + 1) * 128, 0:columns], value=nl.sigmoid(tile))
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        weight = nl.load(scratch[i * 128 : (i + 1) * 128, 0:columns])
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.multiply(tile, weight))
    return out
