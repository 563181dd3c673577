"""A hundred million statements.

Problem: silu
Verdict: timeout
Reason: timeout
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.static_range(100000000):
        tile = nl.load(x[0:128, 0:512])
        nl.store(out[0:128, 0:512], value=nl.silu(tile))
    return out
