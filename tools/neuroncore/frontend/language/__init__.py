"""`neuronxcc.nki.language` (Beta 1): tensors, loads and stores, NumPy-like tile functions, loops, the grid."""

from __future__ import annotations

from typing import Any

from ...ir import Buffer
from .. import index, loops
from ..elements import TYPES
from ..isa import Fp32
from ..registry import CATALOGUE
from . import creation, elementwise, gather, grid, limits, matrices, memory, reductions, shape

__all__ = [
    "contents",
    "creation",
    "elementwise",
    "gather",
    "grid",
    "limits",
    "matrices",
    "memory",
    "reductions",
    "shape",
]


def contents() -> dict[str, Any]:
    """The attributes of the module `neuronxcc.nki.language`."""
    functions = {
        name.removeprefix("nl."): entry.function
        for (dialect, name), entry in CATALOGUE.items()
        if dialect == "neuronxcc.nki" and name.startswith("nl.")
    }
    return {
        **functions,
        **TYPES,
        "sbuf": Buffer.SBUF,
        "psum": Buffer.PSUM,
        "hbm": Buffer.HBM,
        "private_hbm": Buffer.HBM,
        "shared_hbm": Buffer.SHARED_HBM,
        "par_dim": creation.ParDim,
        "arange": index.arange,
        "mgrid": index.mgrid,
        "ds": index.DynamicSlice,
        "affine_range": loops.affine_range,
        "sequential_range": loops.sequential_range,
        "static_range": loops.static_range,
        "nc": grid.nc,
        "spmd_dim": grid.spmd_dim,
        "tile_size": limits.TileSize(),
        "finfo": limits.FloatInfo,
        "fp32": Fp32,
        "bfp16": limits.Bf16,
        "bitwise_not": elementwise.UNARY["invert"],
    }
