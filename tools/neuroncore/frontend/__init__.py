"""The front end: runs a kernel's Python on symbolic tensors and records what it asks of the hardware.

Read `tracer` (driver), `session` (state of one attempt), `tile` and `index` (what kernels hold in their hands),
`emit` (instructions), `language` and `isa` (NKI's API), `loops`.
"""

from .session import Limits
from .tracer import ArraySpec, trace

__all__ = ["ArraySpec", "Limits", "trace"]
