"""Decides by the values which way to compute.

Problem: silu
Verdict: compile_error
Reason: err_dynamic_control_flow_not_supported
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            if tile[0, 0] > 0:
                nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=nl.silu(tile))
    return out
