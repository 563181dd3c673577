"""A loop that tracing never leaves.

Problem: silu
Verdict: timeout
Reason: timeout
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    while True:
        pass
