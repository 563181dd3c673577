"""Rows loaded in pieces that start at any partition, which DMA engines reach; engines work on whole tiles.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((nl.par_dim(128), columns), dtype=x.dtype, buffer=nl.sbuf)
        tile[0:5, 0:columns] = nl.load(x[nl.ds(i * 128 + 123, 5), 0:columns])
        tile[5:128, 0:columns] = nl.load(x[nl.ds(i * 128, 123), 0:columns])
        result = nl.silu(tile)
        nl.store(out[nl.ds(i * 128 + 123, 5), 0:columns], result[0:5, 0:columns])
        nl.store(out[nl.ds(i * 128, 123), 0:columns], result[5:128, 0:columns])
    return out
