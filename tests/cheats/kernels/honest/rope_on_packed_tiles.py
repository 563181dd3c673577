"""Both halves in one tile, moved between partitions by copies.

Problem: rope_single_freq_apply
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(x, cos, sin):
    depth, length = x.shape
    half = depth // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    upper = nl.arange(half)[:, None]
    column = nl.arange(512)[None, :]
    for offset in range(0, length, 512):
        tile = nl.load(x[0:depth, offset : offset + 512])
        c = nl.load(cos[upper, column + offset])
        s = nl.load(sin[upper, column + offset])
        first = tile[upper, column]
        second = nl.copy(tile[upper + half, column])
        y = nl.ndarray((nl.par_dim(depth), 512), dtype=x.dtype, buffer=nl.sbuf)
        y[upper, column] = nisa.tensor_tensor(nl.multiply(first, c), nl.multiply(second, s), nl.subtract)
        y[upper + half, column] = nisa.tensor_tensor(nl.multiply(first, s), nl.multiply(second, c), nl.add)
        nl.store(out[0:depth, offset : offset + 512], value=y)
    return out
