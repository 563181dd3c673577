"""A list that grows until the machine has none left.

Problem: silu
Verdict: compile_error
Reason: out_of_memory
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    hoard = []
    while True:
        hoard.append([0] * 1000000)
