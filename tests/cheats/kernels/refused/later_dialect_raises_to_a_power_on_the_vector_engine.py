"""A power as part of an instruction of the vector engine, which has none.

Problem: silu
Verdict: compile_error
Reason: unsupported_op
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
        below = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:columns])
        nisa.activation(dst=below, op=nl.exp, data=tile, scale=-1.0)
        nisa.tensor_scalar(dst=below, data=below, op0=nl.add, operand0=1.0)
        nisa.scalar_tensor_tensor(
            dst=below, data=below, op0=nl.power, operand0=-1.0, op1=nl.multiply, operand1=tile
        )
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, 0:columns], src=below)
    return out
