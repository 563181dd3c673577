"""The launch grid, and what a kernel may ask or say about it."""

from __future__ import annotations

import math
from typing import Any

from ...errors import NKIError
from ..registry import api
from ..session import current


@api("nl.program_id", engine="none")
def program_id(axis: Any) -> Any:
    """This instance's index along a grid axis."""
    grid = current().grid
    k = int(axis)
    if not 0 <= k < len(grid):
        raise NKIError(
            "invalid_grid_axis",
            f"program_id({k}) in a kernel launched with a {len(grid)}-axis grid",
            line=current().line(),
            remedy="say the grid after the kernel, launched = kernel[n, m], or make it a loop: for i in nl.affine_range(n)",
        )
    return grid[k][0]


@api("nl.num_programs", engine="none")
def num_programs(axes: Any = None) -> Any:
    """Number of instances along one grid axis, several, or all."""
    sizes = [n for _, n in current().grid]
    if axes is None:
        return math.prod(sizes)
    if isinstance(axes, tuple | list):
        return tuple(sizes[int(a)] for a in axes)
    return sizes[int(axes)] if int(axes) < len(sizes) else 1


@api("nl.program_ndim", engine="none")
def program_ndim() -> int:
    """Number of grid axes."""
    return len(current().grid)


@api("nl.device_print", engine="none")
def device_print(prefix: Any, x: Any = None, *, mask: Any = None) -> None:
    """Accepted and ignored."""


def nc(n: Any) -> int:
    """``nl.nc(n)`` in a grid: n physical cores; run one after the other here."""
    return int(n)


def spmd_dim(*dims: Any) -> int:
    """``nl.spmd_dim(nl.nc(2), 2)`` in a grid: an axis split over cores; run one after the other here."""
    return math.prod(int(d) for d in dims)
