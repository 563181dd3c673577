"""Signature cards of NKI's APIs, read off the simulator's own front end so that they cannot drift from it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tools.neuroncore.frontend.registry import ApiEntry, entries

_ATTRIBUTE = re.compile(r"\.(\w+)\b")
_IMPORTED = re.compile(r"^\s*from\s+(?:neuronxcc\.)?nki[\w.]*\s+import\s+(.+)$", re.MULTILINE)
_ENUM = re.compile(r"<(\w+\.\w+): [^>]*>")
_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>|dtype\('(\w+)'\)")


USUAL = frozenset(
    f"nisa.{name}"
    for name in (
        "activation activation_reduce tensor_scalar tensor_scalar_reduce scalar_tensor_tensor tensor_tensor "
        "tensor_tensor_scan tensor_reduce reciprocal nc_matmul nc_transpose tensor_copy memset dma_copy bn_stats "
        "bn_aggr"
    ).split()
) | {"nl.load_transpose2d", "nl.copy", "nl.broadcast_to", "nl.matmul", "nl.transpose", "nl.zeros"}
"""What the usual rewrites are made of: fused and wider instructions, other engines, matmuls without transposes."""

OF_NO_USE = frozenset(
    "nl.all_reduce nl.device_print nl.dropout nisa.dropout nl.rand nl.random_seed nl.no_reorder nisa.get_nc_version "
    "nl.program_ndim nl.num_programs nl.program_id nl.fori_loop".split()
)
"""What no faster kernel needs: printing, chance, other cores."""


@dataclass(frozen=True)
class Cards:
    """What a prompt says of the API: in full what a kernel uses and what rewrites often need, the rest briefly."""

    used: tuple[str, ...]
    further: tuple[str, ...]
    usual: tuple[str, ...] = ()


def cards(source: str, dialect: str) -> Cards:
    """The APIs of a dialect for a kernel's text."""
    imported = re.findall(r"\w+", " ".join(_IMPORTED.findall(source)))
    return _cards(frozenset([*_ATTRIBUTE.findall(source), *imported]), dialect)


@functools.lru_cache(maxsize=256)
def _cards(named: frozenset[str], dialect: str) -> Cards:
    used: list[str] = []
    usual: list[str] = []
    briefly: list[str] = []
    further: dict[str, list[ApiEntry]] = {}
    for entry in entries(dialect):
        if entry.name.rsplit(".", 1)[-1] in named:
            used.append(_readable(entry.card()))
        elif entry.name in USUAL:
            usual.append(_readable(entry.card()))
        elif entry.name in OF_NO_USE:
            continue
        elif entry.name.startswith("nisa."):
            briefly.append(f"{_readable(entry.signature)}: {_purpose(entry)}")
        else:
            further.setdefault(_parameters(entry), []).append(entry)
    for parameters, alike in further.items():
        names = ", ".join(entry.name for entry in alike)
        # Elementwise functions share their parameters; one line for all of them says as much as fifty.
        briefly.append(
            f"{names}: {parameters}" if len(alike) > 1 else f"{names}{parameters}: {_purpose(alike[0])}"
        )
    return Cards(tuple(used), tuple(briefly), tuple(usual))


def _purpose(entry: ApiEntry) -> str:
    """The first line of what an API says of itself, and where it runs."""
    return f"{entry.description.splitlines()[0].rstrip('.')} [{entry.engine}]"


def _parameters(entry: ApiEntry) -> str:
    return _readable(entry.signature.removeprefix(entry.name))


def _readable(text: str) -> str:
    """Without what only the implementation needs."""
    text = _CLASS.sub(lambda match: match.group(1) or match.group(2), _ENUM.sub(r"\1", text))
    return text.replace(", **kwargs", "").replace("\n    \n", "\n")
