"""A destination of half the width: the instruction casts on its own.

Problem: silu
Verdict: incorrect
Reason: precision
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
        y = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:columns])
        nisa.activation(dst=y, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, 0:columns], src=y)
    return out
