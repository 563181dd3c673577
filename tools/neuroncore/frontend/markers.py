"""``nt.tensor[128, 512]`` and ``nt.mutable_tensor``: what kernels write in annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import NKIError
from .session import current
from .tile import Tile


class TensorMarker:
    """``nt.tensor`` or ``nt.mutable_tensor``, with or without a shape.

    Attributes:
        name: how the tracer recognises it in a parameter's annotation.
        shape: extents, if it is subscripted.
    """

    def __init__(self, name: str, shape: tuple[Any, ...] | None = None) -> None:
        """See the class attributes."""
        self.name = name
        self.shape = shape

    def __getitem__(self, shape: Any) -> TensorMarker:
        """The same with a shape."""
        return TensorMarker(self.name, shape if isinstance(shape, tuple) else (shape,))

    def __repr__(self) -> str:
        """The name."""
        return self.name


def annotated(value: Any, annotation: Callable[[], Any]) -> Any:
    """A value assigned to an annotated variable, held to the shape that the annotation says.

    Args:
        value: what is assigned.
        annotation: evaluates the annotation; one that cannot be evaluated is documentation.

    Raises:
        NKIError: `err_annotation_shape_mismatch`.
    """
    if not isinstance(value, Tile):
        return value
    try:
        marker = annotation()
        shape = marker.shape if isinstance(marker, TensorMarker) else None
        expected = tuple(int(n.__index__()) for n in shape) if shape is not None else None
    except Exception:  # noqa: BLE001 - annotations may name what does not exist
        return value
    if expected is not None and expected != value.shape:
        raise NKIError(
            "err_annotation_shape_mismatch",
            f"shape of `{value!r}` does not match the expected shape of {list(expected)}",
            line=current().line(),
        )
    return value
