"""One instruction over more bytes than all of SBUF.

Problem: silu
Verdict: compile_error
Reason: sbuf_capacity_exceeded
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    table = nl.ndarray((128, 40000), dtype=nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((128, 40000), dtype=nl.float32, buffer=nl.sbuf)
    table[...] = nl.zeros((128, 40000), dtype=nl.float32)
    other[...] = nl.add(table, 1.0)
    table[...] = nl.multiply(table, other)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        nl.store(out[nl.ds(i * 128, 128), :], nl.add(nl.silu(tile), table[0:128, 0:1]))
    return out
