"""No output at all.

Problem: silu
Verdict: compile_error
Reason: invalid_return
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.load(x[0:128, 0:512])
