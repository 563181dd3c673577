"""Parsing Python where several threads do."""

from __future__ import annotations

import ast
from typing import Literal, overload

_TRIES = 100


@overload
def parse(source: str, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(source: str, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(source: str, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """As `ast.parse`, in any thread.

    CPython 3.11 and 3.12 count the depth of the tree that they build once for the whole process. When a garbage
    collection lets a second thread parse meanwhile, the first one ends in a SystemError about it, with nothing wrong
    in its text (https://github.com/python/cpython/issues/106905).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """
    for _ in range(_TRIES):
        try:
            tree: ast.AST = ast.parse(source, filename, mode)
        except SystemError:
            continue
        return tree
    return ast.parse(source, filename, mode)
