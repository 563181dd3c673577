"""The input itself as the output.

Problem: silu
Verdict: compile_error
Reason: err_tensor_output_not_written_to
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    return x
