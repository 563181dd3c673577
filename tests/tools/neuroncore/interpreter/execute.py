"""Running kernel sources in tests: traced, executed in every way, compared with plain execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.neuroncore.frontend import trace
from tools.neuroncore.interpreter import compile_plan
from tools.neuroncore.interpreter.schedule import Budgets
from tools.neuroncore.ir import Kernel

from .plain import interpret_plainly

HEADER = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
"""

ONE_BY_ONE = Budgets(1, 1, 1, 0)
"""Every free loop in pieces of one iteration, nothing kept for several."""

IN_PIECES = Budgets(1 << 14, 1 << 14, 1 << 14, 1 << 20)
"""Free loops in pieces of a few iterations of small tiles."""


def traced(source: str, args: Sequence[Any], target: str = "trn1") -> Kernel:
    """The kernel that a function definition stands for."""
    return trace(HEADER + source.lstrip("\n"), list(args), target=target)


def run_kernel(kernel: Kernel, args: Sequence[Any], *, rtol: float = 1e-6) -> list[np.ndarray[Any, Any]]:
    """Execute in large and small pieces and plainly; all must agree."""
    expected = interpret_plainly(kernel, args)
    for budgets in (Budgets(), ONE_BY_ONE, IN_PIECES):
        found = compile_plan(kernel, budgets).run(args)
        for f, e in zip(found, expected, strict=True):
            assert f.dtype == e.dtype
            np.testing.assert_allclose(
                f.astype(np.float64), e.astype(np.float64), rtol=rtol, atol=1e-6, err_msg=str(budgets)
            )
    return expected


def run(source: str, *args: Any, target: str = "trn1", rtol: float = 1e-6) -> np.ndarray[Any, Any]:
    """The only result of a kernel, after checking that all ways to execute it agree."""
    (result,) = run_kernel(traced(source, args, target), args, rtol=rtol)
    return result


def run_all(source: str, *args: Any, target: str = "trn1", rtol: float = 1e-6) -> list[np.ndarray[Any, Any]]:
    """All results of a kernel."""
    return run_kernel(traced(source, args, target), args, rtol=rtol)
