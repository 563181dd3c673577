"""Some of the work on GpSimd and ScalarE by name.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            weight = nl.sigmoid(tile)
            y = nisa.tensor_tensor(tile, weight, op=nl.multiply, engine=nisa.gpsimd_engine)
            nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=nisa.tensor_copy(y, engine=nisa.vector_engine))
    return out
