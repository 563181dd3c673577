"""A helper that calls itself for ever.

Problem: silu
Verdict: compile_error
Reason: recursion_limit
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def deeper(x):
    return deeper(x)


@nki.jit
def kernel(x):
    return deeper(x)
