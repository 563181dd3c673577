"""A symbolic loop of ten to the twelve trips: quick to trace, endless to run.

Problem: silu
Verdict: timeout
Reason: timeout
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.sequential_range(1000000000000):
        for i in nl.affine_range(x.shape[0] // 128):
            tile = nl.load(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]])
            nl.store(out[i * 128 : (i + 1) * 128, 0 : x.shape[1]], value=nl.silu(tile))
    return out
