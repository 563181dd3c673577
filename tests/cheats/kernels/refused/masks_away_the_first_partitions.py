"""Begins at a partition that no engine can address by masking away those before it.

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
    p, f = nl.arange(128)[:, None], nl.arange(columns)[None, :]
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 + p, f])
        result = nl.ndarray((nl.par_dim(128), columns), dtype=x.dtype, buffer=nl.sbuf)
        result[p, f] = nl.silu(tile[p, f], mask=(p < 5))
        result[p, f] = nl.silu(tile[p, f], mask=(p >= 5))
        nl.store(out[i * 128 + p, f], result)
    return out
