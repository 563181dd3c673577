"""Names a type of fewer bits in a way that no search of the text finds.

Problem: matmul
Verdict: compile_error
Reason: unsupported_dtype
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    short = "tfloat" + "32"
    out = nl.ndarray((lhs.shape[0], rhs.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(lhs.shape[0] // 128):
        for n in nl.affine_range(rhs.shape[1] // 512):
            total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(lhs.shape[1] // 128):
                left = nl.load(lhs[nl.ds(m * 128, 128), nl.ds(k * 128, 128)], dtype=short)
                right = nl.load(rhs[nl.ds(k * 128, 128), nl.ds(n * 512, 512)], dtype=short)
                total += nl.matmul(left, right)
            nl.store(out[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], nl.copy(total))
    return out
