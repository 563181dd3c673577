"""A result at the address of an operand that is used up by then, and another tile beside it.

Problem: silu
Verdict: correct
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        weight = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, columns * 4))
        result = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:columns])
        nisa.activation(dst=weight, op=nl.sigmoid, data=tile)
        nisa.tensor_tensor(dst=result, data1=weight, data2=tile, op=nl.multiply)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, 0:columns], src=result)
    return out
