"""Two branches and a select: the stable form for either sign.

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
        decay = nl.exp(nl.negative(nl.abs(tile)))
        inverse = nl.reciprocal(nl.add(decay, 1.0))
        positive = nl.multiply(tile, inverse)
        negative = nl.multiply(positive, decay)
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.where(nl.greater_equal(tile, 0.0), positive, negative))
    return out
