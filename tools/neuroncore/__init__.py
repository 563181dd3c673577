"""A NeuronCore in software: NKI kernels traced to IR, run for their results, and timed by a machine model."""

from .errors import NKIError
from .estimate import Estimate, estimate
from .frontend import ApiEntry, ArraySpec, Limits, entries, lookup, trace
from .interpreter import compile_plan, interpret

__all__ = [
    "ApiEntry",
    "ArraySpec",
    "Estimate",
    "Limits",
    "NKIError",
    "compile_plan",
    "entries",
    "estimate",
    "interpret",
    "lookup",
    "trace",
]
