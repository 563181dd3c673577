"""Words for a kernel's structure, by which experiences of similar kernels are found."""

from __future__ import annotations

import ast

from nkibench.syntax import parse


def features(source: str) -> tuple[str, ...]:
    """The deepest loop nest and the APIs called, sorted; empty for a text that does not parse."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = {f"loop-depth-{_depth(tree)}"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("nl", "nisa"):
                found.add(node.func.attr.replace("_", "-"))
    return tuple(sorted(found))


def _depth(node: ast.AST) -> int:
    below = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return below + isinstance(node, ast.For | ast.While)
