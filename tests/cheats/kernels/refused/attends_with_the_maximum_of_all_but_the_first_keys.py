"""One tile of keys has no part in the maximum.

Problem: gqa_full
Verdict: incorrect
Reason: output_written
Regime: scattered
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, v):
    batch, length, query_heads, depth = q.shape
    group = query_heads // k.shape[2]
    tile = nl.tile_size.pmax  # 128
    tile_keys = nl.tile_size.gemm_moving_fmax  # 512
    scale = 1.0 / depth**0.5
    assert depth <= nl.tile_size.pmax
    assert length % tile_keys == 0

    out = nl.ndarray((batch, query_heads, length, depth), dtype=q.dtype, buffer=nl.shared_hbm)

    for b in nl.affine_range(batch):
        for head_group in nl.affine_range(query_heads // group):
            for member in nl.affine_range(group):
                head = head_group * group + member

                # The first matmul contracts over the depth: it needs the keys with their depth in the
                # partitions.
                keys = nl.ndarray((nl.par_dim(depth), length), dtype=nl.float32, buffer=nl.sbuf)
                values = nl.ndarray((length // tile, nl.par_dim(tile), depth), nl.float32, buffer=nl.sbuf)
                for j in nl.affine_range(length // tile):
                    k_tile = nl.load(k[b, j * tile : (j + 1) * tile, head_group, 0:depth])
                    keys[0:depth, j * tile : (j + 1) * tile] = nl.transpose(k_tile)
                    values[j, 0:tile, 0:depth] = nl.load(v[b, j * tile : (j + 1) * tile, head_group, 0:depth])

                for i in nl.affine_range(length // tile):
                    q_tile = nl.load(q[b, i * tile : (i + 1) * tile, head, 0:depth])

                    # The scores of 128 queries against all keys.
                    scores = nl.ndarray((nl.par_dim(tile), length), dtype=nl.float32, buffer=nl.sbuf)
                    for j in nl.affine_range(length // tile_keys):
                        product = nl.matmul(q_tile, keys[0:depth, j * tile_keys : (j + 1) * tile_keys])
                        scores[0:tile, j * tile_keys : (j + 1) * tile_keys] = nl.multiply(product, scale)

                    row_maximum = nl.max(scores[0:tile, tile_keys:length], axis=[1])
                    shifted = nl.subtract(scores, row_maximum)
                    exponential = nl.exp(shifted)
                    total = nl.sum(exponential, axis=[1])
                    inverse = nl.reciprocal(total)
                    weights = nl.multiply(exponential, inverse)

                    # The mean of the values under those weights.
                    accumulator = nl.zeros((tile, depth), dtype=nl.float32, buffer=nl.psum)
                    for j in nl.affine_range(length // tile):
                        accumulator += nl.matmul(
                            weights[0:tile, j * tile : (j + 1) * tile], values[j, 0:tile, 0:depth]
                        )

                    result = nl.copy(accumulator)
                    nl.store(out[b, head, i * tile : (i + 1) * tile, 0:depth], value=result)

    return out
