"""Plain Python loops over offsets, as hand-written kernels have them.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        for column in range(0, columns, 256):
            tile = nl.load(x[row : row + 128, column : column + 256])
            nl.store(out[row : row + 128, column : column + 256], value=nl.silu(tile))
    return out
