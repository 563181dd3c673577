"""Index helpers of the language instead of slices.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    row, column = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            tile = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 512, 512)])
            nl.store(out[i * 128 + row, j * 512 + column], value=nl.silu(tile))
    return out
