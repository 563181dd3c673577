"""Functions of its own, one of them a lambda, and constants of the module.

Problem: silu
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


HEIGHT = 128
ONE = 1.0


def logistic(tile, one=ONE):
    return nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), one))



@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weigh = lambda tile: nl.multiply(tile, logistic(tile))
    for i in nl.affine_range(rows // HEIGHT):
        tile = nl.load(x[i * HEIGHT : (i + 1) * HEIGHT, 0:columns])
        nl.store(out[i * HEIGHT : (i + 1) * HEIGHT, 0:columns], value=weigh(tile))
    return out
