"""One load, two stores.

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
        y = nl.silu(nl.load(x[i * 128 : (i + 1) * 128, 0:columns]))
        nl.store(out[i * 128 : (i + 1) * 128, 0 : columns // 2], value=y[0:128, 0 : columns // 2])
        nl.store(out[i * 128 : (i + 1) * 128, columns // 2 : columns], value=y[0:128, columns // 2 : columns])
    return out
