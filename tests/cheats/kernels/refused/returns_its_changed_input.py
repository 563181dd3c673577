"""Declares its argument mutable, changes it in place and returns it.

Problem: silu
Verdict: incorrect
Reason: inputs_unchanged
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


@nki.jit
def kernel(x: nt.mutable_tensor):
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]])
        nl.store(x[i * 128 : (i + 1) * 128, 0 : x.shape[1]], value=nl.silu(tile))
    return x
