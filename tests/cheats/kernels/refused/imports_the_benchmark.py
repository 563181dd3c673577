"""Looks the reference up in the benchmark itself.

Problem: silu
Verdict: rejected
Reason: import_not_allowed
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from nkibench import load_problem


@nki.jit
def kernel(x):
    reference = load_problem("silu").reference()
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]])
        nl.store(out[i * 128 : (i + 1) * 128, 0 : x.shape[1]], value=nl.silu(tile))
    return out
