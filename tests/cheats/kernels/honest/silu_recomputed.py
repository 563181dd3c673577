"""Computes the exponential twice instead of keeping it.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        first = nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), 1.0))
        second = nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), 1.0))
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.multiply(tile, nl.multiply(nl.add(first, second), 0.5)))
    return out
