"""Exponential, sum and reciprocal, each into a tile made before.

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
        for j in nl.affine_range(columns // 512):
            tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            work = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            nisa.activation(dst=work, op=nl.exp, data=tile, scale=-1.0)
            nisa.tensor_scalar(dst=work, data=work, op0=nl.add, operand0=1.0)
            nisa.reciprocal(dst=work, data=work)
            nisa.tensor_tensor(dst=work, data1=work, data2=tile, op=nl.multiply)
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], src=work)
    return out
