"""Tiles of 32 rows by 64 columns: slow, and right.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 32):
        for j in nl.affine_range(columns // 64):
            tile = nl.load(x[i * 32 : (i + 1) * 32, j * 64 : (j + 1) * 64])
            nl.store(out[i * 32 : (i + 1) * 32, j * 64 : (j + 1) * 64], value=nl.silu(tile))
    return out
