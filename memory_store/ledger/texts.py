"""Prompts in pieces: each distinct piece of text is stored once, a prompt is a list of pieces."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

_HEADING = re.compile(r"(?m)^(?=#{1,6} )")
_SHORTEST = 400
"""Characters; below this a row of its own costs more than it saves."""


def split_blocks(text: str) -> list[str]:
    """Cut before headings, where prompts that share sections begin to differ; joined, they are the text."""
    blocks: list[str] = []
    pending = ""
    for part in _HEADING.split(text):
        pending += part
        if len(pending) >= _SHORTEST:
            blocks.append(pending)
            pending = ""
    if pending:
        blocks.append(pending)
    return blocks


def block_id(block: str) -> str:
    """First 32 hex digits of the SHA-256 of a piece."""
    return hashlib.sha256(block.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def pack_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Messages with text content replaced by piece ids, and the pieces by id."""
    packed: list[dict[str, Any]] = []
    blocks: dict[str, str] = {}
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            packed.append(dict(message))
            continue
        pieces = {block_id(piece): piece for piece in split_blocks(content)}
        rest = {key: value for key, value in message.items() if key != "content"}
        packed.append({**rest, "blocks": [block_id(piece) for piece in split_blocks(content)]})
        blocks.update(pieces)
    return packed, blocks


def unpack_messages(packed: Iterable[Mapping[str, Any]], blocks: Mapping[str, str]) -> list[dict[str, Any]]:
    """The messages that `pack_messages` took."""
    messages: list[dict[str, Any]] = []
    for message in packed:
        if "blocks" not in message:
            messages.append(dict(message))
            continue
        rest = {key: value for key, value in message.items() if key != "blocks"}
        messages.append({**rest, "content": "".join(blocks[piece] for piece in message["blocks"])})
    return messages


def blocks_of(packed: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ids of the pieces that packed messages need."""
    return {piece for message in packed for piece in message.get("blocks", ())}
