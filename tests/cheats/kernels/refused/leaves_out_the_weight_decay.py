"""AdamW without its weight decay, which is 1e-5 of the parameters: less than the paper's tolerance.

Problem: adamw
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    rows, columns = theta.shape
    out = nl.ndarray((rows, columns), dtype=theta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + 127) // 128):
        row = i * 128 + nl.arange(128)[:, None]
        column = nl.arange(columns)[None, :]
        inside = row < rows
        gradient = nl.load(g[row, column], mask=inside)
        first = nl.add(nl.multiply(nl.load(m[row, column], mask=inside), 0.009), nl.multiply(gradient, 0.001))
        second = nl.add(nl.multiply(nl.load(v[row, column], mask=inside), 999.0), nl.square(gradient))
        step = nl.multiply(first, nl.reciprocal(nl.add(nl.sqrt(second), 1e-8)))
        nl.store(out[row, column], value=nl.subtract(nl.load(theta[row, column], mask=inside), step), mask=inside)
    return out
