"""Loads the keys and values of the first head only.

Problem: gqa_full
Verdict: incorrect
Reason: relative_l2
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, v):
    batch, length, query_heads, depth = q.shape
    group = query_heads // k.shape[2]
    scale = 1.0 / depth**0.5
    out = nl.ndarray((batch, query_heads, length, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batch):
        for head_group in nl.affine_range(query_heads // group):
            keys = nl.ndarray((nl.par_dim(depth), length), dtype=nl.float32, buffer=nl.sbuf)
            values = nl.ndarray((length // 128, nl.par_dim(128), depth), dtype=nl.float32, buffer=nl.sbuf)
            for j in nl.affine_range(length // 128):
                k_tile = nl.load(k[b, j * 128 : (j + 1) * 128, 0, 0:depth])
                keys[0:depth, j * 128 : (j + 1) * 128] = nl.transpose(k_tile)
                values[j, 0:128, 0:depth] = nl.load(v[b, j * 128 : (j + 1) * 128, 0, 0:depth])
            for member in nl.affine_range(group):
                for i in nl.affine_range(length // 128):
                    q_tile = nl.load(q[b, i * 128 : (i + 1) * 128, head_group * group + member, 0:depth])
                    scores = nl.ndarray((nl.par_dim(128), length), dtype=nl.float32, buffer=nl.sbuf)
                    for j in nl.affine_range(length // 512):
                        product = nl.matmul(q_tile, keys[0:depth, j * 512 : (j + 1) * 512])
                        scores[0:128, j * 512 : (j + 1) * 512] = nl.multiply(product, scale)
                    exponential = nl.exp(nl.subtract(scores, nl.max(scores, axis=[1])))
                    weights = nl.multiply(exponential, nl.reciprocal(nl.sum(exponential, axis=[1])))
                    accumulator = nl.zeros((128, depth), dtype=nl.float32, buffer=nl.psum)
                    for j in nl.affine_range(length // 128):
                        accumulator += nl.matmul(weights[0:128, j * 128 : (j + 1) * 128], values[j, 0:128, 0:depth])
                    result = nl.copy(accumulator)
                    nl.store(out[b, head_group * group + member, i * 128 : (i + 1) * 128, 0:depth], value=result)
    return out
