"""From a generator to its frame and to the globals of the caller.

Problem: silu
Verdict: rejected
Reason: reflection_not_allowed
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    walker = (i for i in range(1))
    frame = walker.gi_frame.f_back
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]])
        nl.store(out[i * 128 : (i + 1) * 128, 0 : x.shape[1]], value=nl.silu(tile))
    return out
