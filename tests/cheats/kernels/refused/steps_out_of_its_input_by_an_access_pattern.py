"""A raw access pattern that starts behind the end of the input.

Problem: silu
Verdict: compile_error
Reason: unsupported_view
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[columns, 128], [1, columns]], offset=(i + 5000) * 128 * columns))
        result = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=result, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=result)
    return out
