"""The later `nki` package (0.3 and on): instructions write into a ``dst``, tiles have no block dimensions, no masks.

It traces to the same IR as Beta 1: each destination-passing instruction is Beta 1's, written straight into ``dst``.
`isa` has the instructions, `language` the rest of the API, `views` the methods of its tensors.
"""

from __future__ import annotations

import types
from typing import Any

from ..registry import ApiModule
from . import isa, language


def modules() -> dict[str, types.ModuleType]:
    """Stand-ins for the importable modules of the package, by full name."""
    from ..modules import not_here, typing_contents
    from ..tracer import jit

    def module(name: str, contents: dict[str, Any]) -> ApiModule:
        return ApiModule(name, "nki", contents)

    nl = module("nki.language", language.contents())
    nisa = module("nki.isa", isa.contents())
    typing = module("nki.typing", typing_contents())
    collectives = module("nki.collectives", {})
    nki = module(
        "nki",
        {
            "jit": jit,
            "trace": jit,
            "simulate": not_here,
            "language": nl,
            "isa": nisa,
            "typing": typing,
            "collectives": collectives,
        },
    )
    return {
        "nki": nki,
        "nki.language": nl,
        "nki.isa": nisa,
        "nki.typing": typing,
        "nki.collectives": collectives,
    }
