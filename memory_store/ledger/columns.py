"""Column types: times that sort as text, long texts and JSON documents kept compressed.

A paper-sized run writes 2304 kernels, as many evaluations and half as many again of prompts. Packed with
zlib they take about a quarter of their length, which is what keeps such a run below 50 MB.
"""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import LargeBinary, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class UtcTime(TypeDecorator[datetime]):
    """An aware time as ISO 8601 text in UTC, the same in SQLite and PostgreSQL."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Time to text."""
        if value is None:
            return None
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        """Text to time."""
        return None if value is None else datetime.fromisoformat(value)


class SafeText(TypeDecorator[str]):
    """Text of any origin: NUL, which PostgreSQL refuses, and lone surrogates, which UTF-8 does, are not kept."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace what cannot be stored."""
        if value is None:
            return None
        return value.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\N{REPLACEMENT CHARACTER}")


class PackedText(TypeDecorator[str]):
    """Text, compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compress. Lone surrogates, which a model can emit through JSON escapes, survive."""
        return None if value is None else zlib.compress(value.encode("utf-8", "surrogatepass"), 6)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompress."""
        return None if value is None else zlib.decompress(value).decode("utf-8", "surrogatepass")


class PackedJson(TypeDecorator[Any]):
    """A JSON document, compressed. Infinities and NaN are written as Python writes them."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """Serialize and compress."""
        if value is None:
            return None
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        return zlib.compress(text.encode("ascii"), 6)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        """Decompress and parse."""
        return None if value is None else json.loads(zlib.decompress(value))
