"""NKI's element types as NumPy dtypes, and how operations combine them.

Sources: `nki.api.shared` of SDK 2.26 (type list and promotion); hardware casts are round-to-nearest-even and
saturating to integers (release notes of NKI 0.6.0).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .errors import NKIError

Dtype = np.dtype[Any]

BY_NAME: dict[str, Dtype] = {
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "uint16": np.dtype(np.uint16),
    "int16": np.dtype(np.int16),
    "uint32": np.dtype(np.uint32),
    "int32": np.dtype(np.int32),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "tfloat32": np.dtype(np.float32),
    "float32": np.dtype(np.float32),
    "float32r": np.dtype(np.float32),
    "bool_": np.dtype(np.uint8),
}
"""Every element type of `nki.language`. tfloat32 and float32r are stored as float32; bool as uint8."""

FLOAT32 = BY_NAME["float32"]

KEPT_AS_FLOAT32 = ("tfloat32", "float32r")
"""Types that the array multiplies with fewer bits, and of which a trace shows nothing. Whether a kernel uses them is read
off its text, so they go by their names in `nki.language` only: a string can be put together where nobody sees it."""

_WIDTH_ORDER = ("float8_e5m2", "float8_e4m3", "float8_e4m3fn", "float16", "bfloat16", "float32")


def is_float(dtype: Dtype) -> bool:
    """Whether it is a floating type, ml_dtypes included."""
    return dtype.kind == "f" or dtype.name in _WIDTH_ORDER


def is_integer(dtype: Dtype) -> bool:
    """Whether it is an integer type."""
    return dtype.kind in "iu"


def as_dtype(value: Any, line: int = 0) -> Dtype:
    """The dtype that a kernel names: an `nl` type, a NumPy type or dtype, or a name.

    Raises:
        NKIError: for a type that the hardware does not have (64-bit ones among them).
    """
    if isinstance(value, str) and value in BY_NAME:
        if value in KEPT_AS_FLOAT32:
            raise NKIError(
                "unsupported_dtype",
                f"{value!r} is not named by a string",
                line=line,
                remedy=f"write nl.{value}",
            )
        return BY_NAME[value]
    if value is bool or value is np.bool_:
        return BY_NAME["bool_"]
    try:
        dtype = np.dtype(value)
    except TypeError:
        shown = getattr(value, "__name__", None) or repr(value)
        raise NKIError("unsupported_dtype", f"{shown} is not an element type of NKI", line=line) from None
    if dtype.kind == "b":
        return BY_NAME["bool_"]
    if dtype.kind in "iu" and dtype.itemsize <= 4 or is_float(dtype) and dtype.itemsize <= 4:
        return dtype
    raise NKIError(
        "unsupported_dtype",
        f"NKI has no element type {dtype}",
        line=line,
        remedy="use float32, bfloat16 or int32",
    )


def promote(a: Dtype, b: Dtype) -> Dtype:
    """The result type of a binary operation on tiles of types `a` and `b`, by NKI's rules."""
    if a == b:
        return a
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if is_float(a):
        names = {a.name, b.name}
        if names == {"float16", "bfloat16"}:
            return FLOAT32
        if a.itemsize == 1 and b.itemsize == 1:
            return BY_NAME["bfloat16"]
        return a if a.itemsize > b.itemsize else b
    result = np.promote_types(a, b)
    return FLOAT32 if result.itemsize > 4 or result.kind == "f" else result


def of_scalar(value: Any) -> Dtype:
    """The type that a Python or NumPy scalar takes part with: bool uint8, int int32, float float32."""
    if isinstance(value, bool | np.bool_):
        return BY_NAME["bool_"]
    if isinstance(value, np.generic):
        return FLOAT32 if value.dtype.itemsize > 4 and value.dtype.kind == "f" else value.dtype
    return BY_NAME["int32"] if isinstance(value, int) else FLOAT32
