"""Keeps its whole input on a single partition, which has no more room than any other.

Problem: silu
Verdict: compile_error
Reason: sbuf_capacity_exceeded
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((rows, nl.par_dim(1), columns), dtype=x.dtype, buffer=nl.sbuf)
    for r in nl.affine_range(rows):
        kept[r] = nl.load(x[nl.ds(r, 1), 0:columns])
    for r in nl.affine_range(rows):
        nl.store(out[nl.ds(r, 1), 0:columns], nl.silu(kept[r]))
    return out
