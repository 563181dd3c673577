"""An output of half the size.

Problem: silu
Verdict: incorrect
Reason: output_shape
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((x.shape[0] // 2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, 0 : x.shape[1]])
    nl.store(out[0:128, 0 : x.shape[1]], value=nl.silu(tile))
    return out
