"""Views by functions: the same as the methods of tensors."""

from __future__ import annotations

from typing import Any

from ..registry import api
from ..tile import Tile


@api("nl.broadcast_to", engine="none (a matmul along the partition axis)")
def broadcast_to(src: Any, *, shape: Any) -> Tile:
    """A view that repeats axes of extent 1."""
    return src.broadcast_to(shape)


@api("nl.expand_dims", engine="none")
def expand_dims(data: Any, axis: Any) -> Any:
    """A view with axes of extent 1 inserted."""
    return data.expand_dims(axis)
