"""An integer power that takes for ever.

Problem: silu
Verdict: timeout
Reason: timeout
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    return 10 ** (10**10)
