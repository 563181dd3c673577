"""Rotary embedding on 2048-wide tiles, halves loaded straight to where they are used."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    head, length = x.shape
    half = head // 2
    out = nl.ndarray((head, length), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(half)[:, None], nl.arange(2048)[None, :]
    for block in nl.affine_range(length // 2048):
        at = 2048 * block + f
        even, odd = nl.load(x[p, at]), nl.load(x[p + half, at])
        cos_tile, sin_tile = nl.load(cos[p, at]), nl.load(sin[p, at])
        even_cos = nisa.tensor_tensor(even, cos_tile, nl.multiply)
        odd_cos = nisa.tensor_tensor(odd, cos_tile, nl.multiply)
        even_sin = nisa.tensor_tensor(even, sin_tile, nl.multiply)
        odd_sin = nisa.tensor_tensor(odd, sin_tile, nl.multiply)
        nl.store(out[p, at], nisa.tensor_tensor(even_cos, odd_sin, nl.subtract))
        nl.store(out[p + half, at], nisa.tensor_tensor(odd_cos, even_sin, nl.add))
    return out
