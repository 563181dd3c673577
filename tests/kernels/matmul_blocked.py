"""A 4096 x 5120 x 12288 matmul, columns of weights outside, rows inside: the shape of the measured matmul baseline.

One block of weights takes 160 of 176 KiB, which does not fit beside a row block: it is read again for every row block.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(x, w):
    out = nl.ndarray((32, 128, 12288), dtype=np.float32, buffer=nl.shared_hbm)
    p, f128, f512, f1024 = nl.arange(128)[:, None], *(nl.arange(n)[None, :] for n in (128, 512, 1024))
    identity = nl.load(nl.shared_constant(np.identity(128, dtype=np.float32)))
    for n in nl.affine_range(12):
        weights = nl.ndarray((5, 8, nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
        for k0 in nl.affine_range(5):
            for k1 in nl.affine_range(8):
                weights[k0, k1, p, f1024] = nl.load(w[8 * k0 + k1, p, 1024 * n + f1024])
        for m in nl.affine_range(32):
            turned = nl.ndarray((5, nl.par_dim(128), 8, 128), dtype=np.float32, buffer=nl.sbuf)
            for k0 in nl.affine_range(5):
                rows = nl.load(x[m, p, 1024 * k0 + f1024])
                for k1 in nl.affine_range(8):
                    flipped = nisa.nc_matmul(
                        rows[p, 128 * k1 + f128], identity[p, f128], is_moving_onezero=True, is_transpose=True
                    )
                    turned[k0, p, k1, f128] = nl.copy(flipped)
            result = nl.ndarray((nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
            for half in nl.affine_range(2):
                total = nl.zeros((nl.par_dim(128), 512), dtype=np.float32, buffer=nl.psum)
                for k0 in nl.affine_range(5):
                    for k1 in nl.affine_range(8):
                        total += nisa.nc_matmul(
                            turned[k0, p, k1, f128], weights[k0, k1, p, 512 * half + f512]
                        )
                result[p, 512 * half + f512] = nl.copy(total)
            nl.store(out[m, p, 1024 * n + f1024], value=result)
    return out
