"""The sequence in four pieces, the state carried from one to the next.

Problem: mamba
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    states = a.shape[1]
    pieces = 4
    width = length // pieces
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(channels // 128):
        a_tile = nl.load(a[i * 128 : (i + 1) * 128, 0:states])
        total = nl.zeros((128, length), dtype=nl.float32, buffer=nl.sbuf)
        for s in nl.affine_range(states):
            carry = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            for piece in nl.sequential_range(pieces):
                start = piece * width
                delta_tile = nl.load(delta[i * 128 : (i + 1) * 128, start : start + width])
                u_tile = nl.load(u[i * 128 : (i + 1) * 128, start : start + width])
                b_row = nl.load(b[s : s + 1, start : start + width]).broadcast_to((128, width))
                c_row = nl.load(c[s : s + 1, start : start + width]).broadcast_to((128, width))
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile[0:128, s : s + 1])
                update = nl.multiply(nl.multiply(delta_tile, u_tile), b_row)
                state = nisa.tensor_tensor_scan(decay, update, initial=carry, op0=nl.multiply, op1=nl.add)
                carry[0:128, 0:1] = state[0:128, width - 1 : width]
                total[0:128, start : start + width] += nl.multiply(state, c_row)
        nl.store(out[i * 128 : (i + 1) * 128, 0:length], value=total)
    return out
