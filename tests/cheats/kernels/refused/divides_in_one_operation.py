"""Divides within an instruction that does something else, which spares the reciprocal; no engine can divide.

Problem: silu
Verdict: compile_error
Reason: unsupported_op
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), 0:columns])
        raised = nisa.activation(op=nl.exp, data=tile, scale=-1.0)
        result = nisa.scalar_tensor_tensor(
            data=raised, op0=nl.add, operand0=1.0, op1=nl.divide, operand1=tile, reverse1=True
        )
        nl.store(out[nl.ds(i * 128, 128), 0:columns], result)
    return out
