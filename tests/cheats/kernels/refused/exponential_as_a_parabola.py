"""Three terms of the exponential's series, which are enough near zero.

Problem: mamba
Verdict: incorrect
Reason: relative_l2
Regime: scattered
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    states = a.shape[1]
    tile = nl.tile_size.pmax  # 128
    assert channels % tile == 0

    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(channels // tile):
        accumulator = nl.zeros((nl.par_dim(tile), length), dtype=nl.float32, buffer=nl.sbuf)

        for s in nl.affine_range(states):
            delta_tile = nl.load(delta[i * tile : (i + 1) * tile, 0:length])
            u_tile = nl.load(u[i * tile : (i + 1) * tile, 0:length])
            a_tile = nl.load(a[i * tile : (i + 1) * tile, s : s + 1])
            b_row = nl.load(b[s : s + 1, 0:length])
            c_row = nl.load(c[s : s + 1, 0:length])

            exponent = nl.multiply(delta_tile, a_tile)
            square = nl.multiply(exponent, exponent)
            decay = nl.add(nl.add(nl.multiply(square, 0.5), exponent), 1.0)

            # delta * b * u: what each step adds.
            drive = nl.multiply(delta_tile, u_tile)
            update = nl.multiply(drive, b_row.broadcast_to((tile, length)))

            # h[t] = decay[t] * h[t-1] + update[t]
            state = nisa.tensor_tensor_scan(decay, update, initial=0.0, op0=nl.multiply, op1=nl.add)

            weighted = nl.multiply(state, c_row.broadcast_to((tile, length)))
            accumulator[0:tile, 0:length] += weighted

        nl.store(out[i * tile : (i + 1) * tile, 0:length], value=accumulator)

    return out
