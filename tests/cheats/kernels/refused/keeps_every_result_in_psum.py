"""Takes PSUM for a memory without end, where the vector engine reads at twice the speed.

Problem: silu
Verdict: compile_error
Reason: psum_capacity_exceeded
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape[0] // 128, x.shape[1] // 512
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    raised = nl.ndarray((rows, columns, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    below = nl.ndarray((rows, columns, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    inverse = nl.ndarray((rows, columns, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(rows):
        for j in nl.affine_range(columns):
            raised[i, j] = nl.exp(nl.negative(nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 512, 512)])))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(columns):
            below[i, j] = nl.add(raised[i, j], 1.0)
    for j in nl.affine_range(columns):
        for i in nl.affine_range(rows):
            inverse[i, j] = nl.reciprocal(below[i, j])
    for i in nl.affine_range(rows):
        for j in nl.affine_range(columns):
            tile = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 512, 512)])
            # Everything is needed to the end.
            product = nl.multiply(tile, inverse[i, j])
            kept = nl.multiply(nl.subtract(below[i, j], raised[i, j]), product)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], kept)
    return out
