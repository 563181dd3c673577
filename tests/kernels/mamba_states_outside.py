"""Selective scan, states outside and channel tiles inside: the first step of the tutorial, and the measured baseline."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((channels // 128, nl.par_dim(128), length), dtype=delta.dtype)
    for state in nl.affine_range(a.shape[1]):
        for tile in nl.affine_range(channels // 128):
            first = 128 * tile
            delta_tile = nl.load(delta[first : first + 128, 0:length])
            raised = nisa.activation(op=nl.exp, data=delta_tile, scale=nl.load(a[first : first + 128, state]))
            u_tile = nl.load(u[first : first + 128, 0:length])
            b_row = nl.load(b[state : state + 1, 0:length])
            product = nisa.tensor_tensor(delta_tile, u_tile, op=nl.multiply)
            driven = nisa.tensor_tensor(product, b_row.broadcast_to((128, length)), op=nl.multiply)
            scanned = nisa.tensor_tensor_scan(raised, driven, initial=0, op0=np.multiply, op1=np.add)
            c_row = nl.load(c[state : state + 1, 0:length])
            seen = nisa.tensor_tensor(scanned, c_row.broadcast_to((128, length)), op=nl.multiply)
            total[tile, 0:128, 0:length] += seen
    for tile in nl.affine_range(channels // 128):
        nl.store(out[128 * tile : 128 * tile + 128, 0:length], total[tile, 0:128, 0:length])
    return out
