"""Source text of numbers, types, tuples and long statements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...neuroncore.dtypes import BY_NAME
from ...neuroncore.ir import Buffer
from ..refusal import RewriteError

LINE_LENGTH = 110


def wrapped(line: str, indent: str) -> list[str]:
    """A statement on one line or, if it is long and ends in a call, with one argument to a line."""
    if len(line) <= LINE_LENGTH or not line.endswith(")"):
        return [line]
    depth, opening = 0, -1
    for position in range(len(line) - 1, -1, -1):
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(line[position], 0)
        if depth == 0:
            opening = position
            break
    arguments, start, depth = [], opening + 1, 0
    for position in range(opening + 1, len(line) - 1):
        depth += {")": -1, "]": -1, "(": 1, "[": 1}.get(line[position], 0)
        if line[position] == "," and depth == 0:
            arguments.append(line[start:position].strip())
            start = position + 1
    arguments.append(line[start:-1].strip())
    return [line[: opening + 1], *(f"{indent}    {argument}," for argument in arguments), f"{indent})"]


def tuple_of(parts: Any) -> str:
    """A tuple's source; one element keeps its comma."""
    items = list(parts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def arange(rank: int, axis: int, extent: int) -> str:
    """``nl.arange`` along one axis of tiles of a rank."""
    if rank == 1:
        return f"nl.arange({extent})"
    keys = ", ".join(":" if k == axis else "None" for k in range(rank))
    return f"nl.arange({extent})[{keys}]"


def number(value: Any) -> str:
    """A Python number so that it reads back as the same one."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return 'float("nan")'
        if math.isinf(number):
            return 'float("inf")' if number > 0 else '-float("inf")'
        return repr(number)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, str):
        return repr(value)
    raise RewriteError("value", f"{value!r} has no source form")


def nested(value: Any) -> str:
    """Nested lists of numbers."""
    return f"[{', '.join(map(nested, value))}]" if isinstance(value, list) else number(value)


def buffer_name(buffer: Buffer) -> str:
    """A buffer's name in `nl`."""
    return buffer.value


def dtype_name(dtype: np.dtype[Any]) -> str:
    """An element type's name in `nl`.

    Raises:
        RewriteError: if NKI has no such type.
    """
    for name, candidate in BY_NAME.items():
        if candidate == dtype and name not in ("tfloat32", "float32r", "bool_"):
            return f"nl.{name}"
    raise RewriteError("dtype", f"{dtype} is not an element type of NKI")


def conjunction(conditions: list[str]) -> str:
    """Mask conditions joined by ``&``."""
    return f"({conditions[0]})" if len(conditions) == 1 else " & ".join(f"({c})" for c in conditions)
