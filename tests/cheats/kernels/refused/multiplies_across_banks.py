"""A matmul whose result begins in one bank of PSUM and ends in the next, which the hardware cannot write.

Problem: bmm
Verdict: compile_error
Reason: psum_bank_crossed
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    batch, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    out = nl.ndarray((batch, m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batch):
        for m in nl.affine_range(m_size // 128):
            left = nl.load_transpose2d(lhs[b, nl.ds(m * 128, 128), 0:k_size])
            for n in nl.affine_range(n_size // 512):
                total = nl.zeros((nl.par_dim(128), 768), dtype=nl.float32, buffer=nl.psum)
                total[:, 256:768] += nisa.nc_matmul(left, nl.load(rhs[b, 0:k_size, nl.ds(n * 512, 512)]))
                nl.store(out[b, nl.ds(m * 128, 128), nl.ds(n * 512, 512)], nl.copy(total[:, 256:768]))
    return out
