"""Two loads into one tile, one store.

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
        tile = nl.ndarray((nl.par_dim(128), columns), dtype=x.dtype, buffer=nl.sbuf)
        tile[0:128, 0 : columns // 2] = nl.load(x[i * 128 : (i + 1) * 128, 0 : columns // 2])
        tile[0:128, columns // 2 : columns] = nl.load(x[i * 128 : (i + 1) * 128, columns // 2 : columns])
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.silu(tile))
    return out
