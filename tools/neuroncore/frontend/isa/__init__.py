"""`neuronxcc.nki.isa` (Beta 1): one function per instruction, each returning a new tile; a module per engine.

Costs are those documented up to SDK 2.26, in cycles of the engine for N elements per partition.
"""

from __future__ import annotations

from typing import Any

from ..registry import CATALOGUE
from . import dma, enums, gpsimd, scalar, statistics, tensor, vector

__all__ = ["contents", "dma", "enums", "gpsimd", "scalar", "statistics", "tensor", "vector"]


class Fp32:
    """``nisa.fp32`` and ``nl.fp32``: limits of float32."""

    min = vector.FLOAT32_MIN
    max = -vector.FLOAT32_MIN


def enumerations() -> dict[str, Any]:
    """Enumerations and engine names, the same in both dialects."""
    kinds = {
        e.__name__: e
        for e in (enums.engine, enums.nc_version, enums.reduce_cmd, enums.dge_mode, enums.oob_mode)
    }
    return {**kinds, **{f"{e.name}_engine": e for e in enums.engine}}


def contents() -> dict[str, Any]:
    """The attributes of the module `neuronxcc.nki.isa`."""
    instructions = {
        name.removeprefix("nisa."): entry.function
        for (dialect, name), entry in CATALOGUE.items()
        if dialect == "neuronxcc.nki" and name.startswith("nisa.")
    }
    return {**enumerations(), "dma_engine": "dma", "fp32": Fp32, **instructions}
