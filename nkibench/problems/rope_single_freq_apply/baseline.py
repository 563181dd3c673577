"""Rotary position embedding, 512 positions at a time."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    depth, length = x.shape
    half = depth // 2
    tile_length = 512
    assert depth <= nl.tile_size.pmax
    assert length % tile_length == 0

    out = nl.ndarray((depth, length), dtype=x.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(length // tile_length):
        # Each half in a tile of its own, so that elements of a pair lie in the same partition.
        first = nl.load(x[0:half, i * tile_length : (i + 1) * tile_length])
        second = nl.load(x[half:depth, i * tile_length : (i + 1) * tile_length])
        cos_tile = nl.load(cos[0:half, i * tile_length : (i + 1) * tile_length])
        sin_tile = nl.load(sin[0:half, i * tile_length : (i + 1) * tile_length])

        first_cos = nl.multiply(first, cos_tile)
        second_sin = nl.multiply(second, sin_tile)
        first_out = nl.subtract(first_cos, second_sin)
        nl.store(out[0:half, i * tile_length : (i + 1) * tile_length], value=first_out)

        first_sin = nl.multiply(first, sin_tile)
        second_cos = nl.multiply(second, cos_tile)
        second_out = nl.add(first_sin, second_cos)
        nl.store(out[half:depth, i * tile_length : (i + 1) * tile_length], value=second_out)

    return out
