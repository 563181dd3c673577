"""Selective scan in pieces of 512 steps, the state carried from piece to piece: the third step of the tutorial."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for tile in nl.affine_range(channels // 128):
        first = 128 * tile
        total = nl.zeros((nl.par_dim(128), length), dtype=delta.dtype)
        delta_tile = nl.load(delta[first : first + 128, 0:length])
        u_tile = nl.load(u[first : first + 128, 0:length])
        for state in nl.affine_range(a.shape[1]):
            rate = nl.load(a[first : first + 128, state])
            carried = nl.zeros((128, 1), dtype=delta.dtype)
            for piece in nl.static_range(length // 512):
                at = 512 * piece
                raised = nisa.activation(op=nl.exp, data=delta_tile[0:128, at : at + 512], scale=rate)
                b_row = nl.load(b[state : state + 1, at : at + 512])
                product = nisa.tensor_tensor(
                    delta_tile[0:128, at : at + 512], u_tile[0:128, at : at + 512], op=nl.multiply
                )
                driven = nisa.tensor_tensor(product, b_row.broadcast_to((128, 512)), op=nl.multiply)
                scanned = nisa.tensor_tensor_scan(
                    raised, driven, initial=carried, op0=np.multiply, op1=np.add
                )
                carried[...] = scanned[0:128, 511]
                c_row = nl.load(c[state : state + 1, at : at + 512])
                seen = nisa.tensor_tensor(scanned, c_row.broadcast_to((128, 512)), op=nl.multiply)
                total[0:128, at : at + 512] += seen
        nl.store(out[first : first + 128, 0:length], total[0:128, 0:length])
    return out
