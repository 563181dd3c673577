"""Sums over partitions by a matmul with ones that the kernel makes by a comparison, and says so: the data bear it out.

Problem: rmsnorm_matmul
Verdict: correct
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    m_size, k_size = x.shape
    n_size = w.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        squares = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(k_size // 128):
            turned = nl.load_transpose2d(x[nl.ds(m * 128, 128), nl.ds(k * 128, 128)])
            ones = nl.equal(nl.multiply(turned[:, 0:1], 0.0), 0.0, dtype=nl.float32)
            squares[...] += nisa.nc_matmul(nl.square(turned), ones, is_moving_onezero=True)
        scale = nl.rsqrt(nl.multiply(squares, 1.0 / k_size))
        for n in nl.affine_range(n_size // 512):
            total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load_transpose2d(x[nl.ds(m * 128, 128), nl.ds(k * 128, 128)])
                total[...] += nisa.nc_matmul(left, nl.load(w[nl.ds(k * 128, 128), nl.ds(n * 512, 512)]))
            nl.store(out[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], nl.multiply(total, scale))
    return out
