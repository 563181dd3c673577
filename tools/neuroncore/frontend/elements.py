"""Element types as kernels hold them: ``nl.float32`` is a type of elements, and called it makes a scalar of that type."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import BY_NAME, Dtype


class ElementType:
    """One of `nki.language`'s types. Equal to the NumPy dtype that it stands for, and usable wherever one is.

    Attributes:
        dtype: what NumPy makes of it.
    """

    __slots__ = ("dtype", "__name__")

    def __init__(self, name: str, dtype: Dtype) -> None:
        """`name`: as in `nki.language`."""
        self.__name__ = name
        self.dtype = dtype

    def __call__(self, value: Any = 0) -> Any:
        """A scalar of this type."""
        return self.dtype.type(value)

    def __eq__(self, other: object) -> bool:
        """Whether the other names the same type."""
        if isinstance(other, ElementType):
            return self.dtype == other.dtype
        try:
            return bool(self.dtype == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return False

    def __hash__(self) -> int:
        """That of the dtype, so that either finds the other in a dict."""
        return hash(self.dtype)

    def __repr__(self) -> str:
        """``float32``."""
        return self.__name__

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def name(self) -> str:
        """NumPy's name of the type."""
        return self.dtype.name


TYPES = {name: ElementType(name, dtype) for name, dtype in BY_NAME.items()}
"""The types of `nki.language`, by name."""
