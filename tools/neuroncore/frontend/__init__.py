"""The front end: runs a kernel's Python on symbolic tensors and records what it asks of the hardware.

Read `tracer` (driver), `session` (state of one attempt), `tile` and `index` (what kernels hold in their hands),
`emit` (instructions), `language` and `isa` (NKI's API), `loops`.
"""

from . import isa, language
from .registry import ApiEntry, entries, lookup
from .session import Limits
from .tracer import ArraySpec, detect_dialect, trace

__all__ = [
    "ApiEntry",
    "ArraySpec",
    "Limits",
    "detect_dialect",
    "entries",
    "isa",
    "language",
    "lookup",
    "trace",
]
