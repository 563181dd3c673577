"""Everything loaded into block dimensions first, then computed, then stored.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((rows // 128, nl.par_dim(128), columns), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(rows // 128):
        kept[i, 0:128, 0:columns] = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
    for i in nl.affine_range(rows // 128):
        nl.store(out[i * 128 : (i + 1) * 128, 0:columns], value=nl.silu(kept[i, 0:128, 0:columns]))
    return out
