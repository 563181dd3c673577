"""Gathers within partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import as_dtype
from ..emit import result
from ..isa.checks import element_type, same_partitions, tile_operand
from ..registry import api
from ..session import current
from ..tile import Tile


@api("nl.gather_flattened", engine="gpsimd")
def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Per partition, the elements of data's flattened free axes at the given indices."""
    access, idx = (
        tile_operand(data, "data", "gather_flattened"),
        tile_operand(indices, "indices", "gather_flattened"),
    )
    element_type("gather_flattened", "indices", idx.dtype, (np.dtype(np.uint32),))
    same_partitions("gather_flattened", data=access, indices=idx)
    out = as_dtype(dtype, current().line()) if dtype is not None else data.dtype
    return result(
        "nl.gather_flattened",
        shape=idx.shape,
        dtype=out,
        args={"data": access, "indices": idx},
        mask=mask,
        hint="gathered",
    )
