"""Enumerations of `nki.isa`, by NKI's names and numbers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from ...errors import UnknownApiError
from ..unsimulated import kernel_line


class _Kinds(enum.EnumType):
    """Of enumerations that say what they have when asked for what they have not."""

    def __getattr__(cls, name: str) -> Any:
        """Only reached for names that do not exist."""
        if name.startswith("_"):
            raise AttributeError(name)
        members: Mapping[str, enum.Enum] = cls.__members__
        if name in members:
            return members[name]
        raise UnknownApiError(
            "unknown_api",
            f"nisa.{cls.__name__} has no `{name}`",
            line=kernel_line(),
            remedy=f"it has {', '.join(members)}",
        )


class engine(enum.IntEnum, metaclass=_Kinds):  # noqa: N801 - NKI's name
    """Engines, by NKI's numbers."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    sync = 6
    unknown = 0


class nc_version(enum.IntEnum, metaclass=_Kinds):  # noqa: N801 - NKI's name
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class reduce_cmd(enum.IntEnum, metaclass=_Kinds):  # noqa: N801 - NKI's name
    """What an instruction does with the reduction registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3


class dge_mode(enum.IntEnum, metaclass=_Kinds):  # noqa: N801 - NKI's name
    """Who generates DMA descriptors."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class oob_mode(enum.IntEnum, metaclass=_Kinds):  # noqa: N801 - NKI's name
    """What an indirect DMA does with indices out of range."""

    error = 0
    skip = 1


tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
