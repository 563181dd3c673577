"""Right values with the halves of the output exchanged.

Problem: rope_single_freq_apply
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    depth, length = x.shape
    half = depth // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(length // 512):
        x0 = nl.load(x[0:half, i * 512 : (i + 1) * 512])
        x1 = nl.load(x[half:depth, i * 512 : (i + 1) * 512])
        c = nl.load(cos[0:half, i * 512 : (i + 1) * 512])
        s = nl.load(sin[0:half, i * 512 : (i + 1) * 512])
        nl.store(out[0:half, i * 512 : (i + 1) * 512], value=nl.add(nl.multiply(x0, s), nl.multiply(x1, c)))
        nl.store(out[half:depth, i * 512 : (i + 1) * 512], value=nl.subtract(nl.multiply(x0, c), nl.multiply(x1, s)))
    return out
