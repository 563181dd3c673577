"""Four products and their combinations, written into halves of one tile.

Problem: rope_single_freq_apply
Verdict: correct
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    depth, length = x.shape
    half = depth // 2
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(length // 512):
        first = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        second = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        c = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        s = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=first, src=x[0:half, i * 512 : (i + 1) * 512])
        nisa.dma_copy(dst=second, src=x[half:depth, i * 512 : (i + 1) * 512])
        nisa.dma_copy(dst=c, src=cos[0:half, i * 512 : (i + 1) * 512])
        nisa.dma_copy(dst=s, src=sin[0:half, i * 512 : (i + 1) * 512])
        one = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        two = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=one, data1=first, data2=c, op=nl.multiply)
        nisa.tensor_tensor(dst=two, data1=second, data2=s, op=nl.multiply)
        nisa.tensor_tensor(dst=one, data1=one, data2=two, op=nl.subtract)
        nisa.dma_copy(dst=out[0:half, i * 512 : (i + 1) * 512], src=one)
        three = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        four = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=three, data1=first, data2=s, op=nl.multiply)
        nisa.tensor_tensor(dst=four, data1=second, data2=c, op=nl.multiply)
        nisa.tensor_tensor(dst=three, data1=three, data2=four, op=nl.add)
        nisa.dma_copy(dst=out[half:depth, i * 512 : (i + 1) * 512], src=three)
    return out
