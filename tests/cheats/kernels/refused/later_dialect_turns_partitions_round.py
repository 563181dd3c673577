"""Reverses the order of partitions in an access pattern, which engines take one after the other only.

Problem: silu
Verdict: compile_error
Reason: invalid_partition_access
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:columns])
        turned = tile.ap(pattern=[[-columns, 128], [1, columns]], offset=127 * columns)
        nisa.activation(dst=result, op=nl.silu, data=turned)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, 0:columns], src=result)
    return out
