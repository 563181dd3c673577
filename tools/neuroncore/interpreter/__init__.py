"""Executes kernels: right results at NumPy's speed.

`interpret` runs a traced kernel on arrays. It first makes a `Plan`: temporaries move into the loops that they belong to,
masks split loops, copies become views or disappear, loops whose iterations are independent are taken many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Kernel
from .plan import Plan, compile_plan

__all__ = ["Plan", "compile_plan", "interpret"]


def interpret(kernel: Kernel, args: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Execute a kernel once.

    Args:
        kernel: a traced kernel.
        args: one array for each tensor parameter, or one value for each name of the signature.

    Returns:
        its results, in order.

    Raises:
        NKIError: for arguments that do not fit, a run-time index out of bounds (`RuntimeAccessError`), or data that are
            not what the kernel says of them (`BrokenClaimError`).
    """
    return compile_plan(kernel).run(args)
