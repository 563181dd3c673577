"""Numbers of the target and of element types: `nl.tile_size`, `nl.finfo`."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from ...dtypes import as_dtype
from ..session import current


class TileSize:
    """``nl.tile_size``: limits of the target."""

    @property
    def pmax(self) -> int:
        """Partitions."""
        return current().machine.partitions

    @property
    def psum_fmax(self) -> int:
        """fp32 elements of a PSUM bank per partition."""
        return current().machine.psum_bank_bytes // 4

    @property
    def gemm_stationary_fmax(self) -> int:
        """Largest free size of a matmul's stationary operand."""
        return current().machine.gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Largest free size of a matmul's moving operand."""
        return current().machine.gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Largest free size of bn_stats."""
        return 512

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses in bytes."""
        return 4

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses in bytes."""
        return 1

    @property
    def total_available_sbuf_size(self) -> int:
        """SBUF bytes per partition that kernels may use."""
        return current().machine.sbuf_usable_bytes_per_partition


class FloatInfo:
    """``nl.finfo(dtype)``."""

    def __init__(self, dtype: Any) -> None:
        """The limits of a floating type, as Python numbers."""
        info = ml_dtypes.finfo(as_dtype(dtype))
        self.max, self.min, self.eps, self.tiny = (
            float(info.max),
            float(info.min),
            float(info.eps),
            float(info.tiny),
        )


class Bf16:
    """``nl.bfp16``: limits of bfloat16."""

    min = -3.3895313892515355e38
    max = 3.3895313892515355e38
