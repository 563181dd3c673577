"""Each half of the sequence starts from zero.

Problem: mamba
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    states = a.shape[1]
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(channels // 128):
        for part in nl.affine_range(2):
            start = part * (length // 2)
            delta_tile = nl.load(delta[i * 128 : (i + 1) * 128, start : start + length // 2])
            u_tile = nl.load(u[i * 128 : (i + 1) * 128, start : start + length // 2])
            a_tile = nl.load(a[i * 128 : (i + 1) * 128, 0:states])
            total = nl.zeros((128, length // 2), dtype=nl.float32, buffer=nl.sbuf)
            for s in nl.affine_range(states):
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile[0:128, s : s + 1])
                b_row = nl.load(b[s : s + 1, start : start + length // 2]).broadcast_to((128, length // 2))
                c_row = nl.load(c[s : s + 1, start : start + length // 2]).broadcast_to((128, length // 2))
                update = nl.multiply(nl.multiply(delta_tile, u_tile), b_row)
                state = nisa.tensor_tensor_scan(decay, update, initial=0.0, op0=nl.multiply, op1=nl.add)
                total[0:128, 0 : length // 2] += nl.multiply(state, c_row)
            nl.store(out[i * 128 : (i + 1) * 128, start : start + length // 2], value=total)
    return out
