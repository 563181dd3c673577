"""The first matmul into a PSUM tile overwrites it, later ones add.

Problem: transpose_matmul
Verdict: correct
"""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    k_size, m_size = lhs.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 352):
            total = nl.ndarray((128, 352), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                right = nl.ndarray((128, 352), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhs[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                nisa.dma_copy(dst=right, src=rhs[k * 128 : (k + 1) * 128, n * 352 : (n + 1) * 352])
                nisa.nc_matmul(dst=total, stationary=left, moving=right)
            result = nl.ndarray((128, 352), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=out[m * 128 : (m + 1) * 128, n * 352 : (n + 1) * 352], src=result)
    return out
