"""Works on one partition after the other, which no engine can address: all but every 32nd.

Problem: silu
Verdict: compile_error
Reason: invalid_partition_access
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        for p in nl.affine_range(128):
            nl.store(out[nl.ds(i * 128 + p, 1), 0:columns], nl.silu(tile[nl.ds(p, 1), 0:columns]))
    return out
