"""A hand-allocated bias at the address of the tile that it is added to.

Problem: silu
Verdict: compile_error
Reason: overlapping_allocation
"""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    bias = nl.ndarray((nl.par_dim(128), 1), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    result = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=2048))
    for i in nl.sequential_range(rows // 128):
        for j in nl.sequential_range(columns // 512):
            tile[...] = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 512, 512)])
            bias[...] = nisa.memset((128, 1), 0.0, dtype=x.dtype)
            result[...] = nisa.activation(op=nl.silu, data=tile, bias=bias)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], result)
    return out
