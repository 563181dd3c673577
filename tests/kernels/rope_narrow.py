"""Rotary embedding on 512-wide tiles in a Python range loop, both halves in one tile: as the measured rope baseline."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    head, length = x.shape
    half = head // 2
    out = nl.ndarray((head, length), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, upper, f = nl.arange(head)[:, None], nl.arange(half)[:, None], nl.arange(512)[None, :]
    for at in range(0, length, 512):
        tile = nl.load(x[rows, at + f])
        cos_tile = nl.load(cos[upper, at + f])
        sin_tile = nl.load(sin[upper, at + f])
        result = nl.ndarray((head, 512), dtype=x.dtype, buffer=nl.sbuf)
        even = tile[upper, f]
        odd = nl.copy(tile[upper + half, f])
        even_cos = nisa.tensor_tensor(even, cos_tile, nl.multiply)
        odd_cos = nisa.tensor_tensor(odd, cos_tile, nl.multiply)
        even_sin = nisa.tensor_tensor(even, sin_tile, nl.multiply)
        odd_sin = nisa.tensor_tensor(odd, sin_tile, nl.multiply)
        result[upper, f] = nisa.tensor_tensor(even_cos, odd_sin, nl.subtract)
        result[upper + half, f] = nisa.tensor_tensor(odd_cos, even_sin, nl.add)
        nl.store(out[rows, at + f], result)
    return out
