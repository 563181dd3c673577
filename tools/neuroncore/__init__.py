"""A NeuronCore in software: NKI kernels traced to IR, run for their results, and timed by a machine model."""

from .errors import NKIError
from .frontend import ArraySpec, Limits, trace

__all__ = ["ArraySpec", "Limits", "NKIError", "trace"]
