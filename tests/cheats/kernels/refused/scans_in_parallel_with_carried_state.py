"""A scan in pieces whose states go from one iteration to the next, in a loop that promises independent ones.

Problem: mamba
Verdict: compile_error
Reason: err_unexpected_output_dependencies
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    channels, length = delta.shape
    states, piece = a.shape[1], 512
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(channels // 128):
        rows = nl.ds(i * 128, 128)
        total = nl.zeros((nl.par_dim(128), length), dtype=nl.float32, buffer=nl.sbuf)
        for s in nl.affine_range(states):
            rate = nl.load(a[rows, s : s + 1])
            state = nl.zeros((length // piece + 1, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
            for j in nl.affine_range(length // piece):
                place = nl.ds(j * piece, piece)
                step = nl.load(delta[rows, place])
                decay = nl.exp(nl.multiply(step, rate))
                drive = nl.multiply(step, nl.load(u[rows, place]))
                update = nl.multiply(drive, nl.load(b[s : s + 1, place]).broadcast_to((128, piece)))
                scan = nisa.tensor_tensor_scan(decay, update, initial=state[j], op0=nl.multiply, op1=nl.add)
                state[j + 1] = nl.copy(scan[:, piece - 1 : piece])
                total[:, place] += nl.multiply(scan, nl.load(c[s : s + 1, place]).broadcast_to((128, piece)))
        nl.store(out[rows, 0:length], value=total)
    return out
