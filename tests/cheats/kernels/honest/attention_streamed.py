"""Keys in blocks with a running maximum and sum, as flash attention has it.

Problem: gqa_full
Verdict: correct
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
        for head in nl.static_range(query_heads):
            for i in nl.affine_range(length // 128):
                q_tile = nl.load(q[b, i * 128 : (i + 1) * 128, head, 0:depth])
                running_max = nl.full((128, 1), -3e38, dtype=nl.float32, buffer=nl.sbuf)
                running_sum = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                running_out = nl.zeros((128, depth), dtype=nl.float32, buffer=nl.sbuf)
                for j in nl.sequential_range(length // 128):
                    k_tile = nl.load(k[b, j * 128 : (j + 1) * 128, head // group, 0:depth])
                    v_tile = nl.load(v[b, j * 128 : (j + 1) * 128, head // group, 0:depth])
                    scores = nl.multiply(nl.matmul(q_tile, nl.copy(nl.transpose(k_tile))), scale)
                    maximum = nl.maximum(running_max, nl.max(scores, axis=[1]))
                    shrink = nl.exp(nl.subtract(running_max, maximum))
                    exponential = nl.exp(nl.subtract(scores, maximum))
                    running_sum[0:128, 0:1] = nl.add(nl.multiply(running_sum, shrink), nl.sum(exponential, axis=[1]))
                    product = nl.matmul(exponential, v_tile)
                    running_out[0:128, 0:depth] = nl.add(nl.multiply(running_out, shrink), product)
                    running_max[0:128, 0:1] = nl.copy(maximum)
                result = nl.multiply(running_out, nl.reciprocal(running_sum))
                nl.store(out[b, head, i * 128 : (i + 1) * 128, 0:depth], value=result)
    return out
