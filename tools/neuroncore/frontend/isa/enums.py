"""Enumerations of `nki.isa`, by NKI's names and numbers."""

from __future__ import annotations

import enum


class engine(enum.IntEnum):  # noqa: N801 - NKI's name
    """Engines, by NKI's numbers."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    sync = 6
    unknown = 0


class nc_version(enum.IntEnum):  # noqa: N801 - NKI's name
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class reduce_cmd(enum.IntEnum):  # noqa: N801 - NKI's name
    """What an instruction does with the reduction registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3


class dge_mode(enum.IntEnum):  # noqa: N801 - NKI's name
    """Who generates DMA descriptors."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class oob_mode(enum.IntEnum):  # noqa: N801 - NKI's name
    """What an indirect DMA does with indices out of range."""

    error = 0
    skip = 1


tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
