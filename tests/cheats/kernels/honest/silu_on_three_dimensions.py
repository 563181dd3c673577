"""The free dimension of a tile in two.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    view = x.reshape((rows // 128, 128, columns))
    for i in nl.affine_range(rows // 128):
        tile = nl.load(view[i, 0:128, 0:columns])
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.silu(tile))
    return out
