"""Changing every access of a program at once: what several passes need to rename tensors and loop variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir import Access, Affine, LoopVar
from .program import Nest, Node, Op


def map_accesses(op: Op, function: Callable[[Access], Access]) -> None:
    """Replace every access of an op, in place."""
    op.writes = tuple(function(a) for a in op.writes)
    op.reads = tuple(function(a) for a in op.reads)
    op.side_reads = tuple(function(a) for a in op.side_reads)


def ops_of(body: list[Node]) -> list[Op]:
    """All ops under a body, in program order."""
    found: list[Op] = []
    for node in body:
        if isinstance(node, Nest):
            found.extend(ops_of(node.body))
        else:
            found.append(node)
    return found


def substitute(
    body: list[Node], bindings: Mapping[LoopVar | int, Affine | int], names: Mapping[LoopVar, LoopVar]
) -> None:
    """Replace loop variables in every access, expression and guard under a body, in place."""
    for op in ops_of(body):
        map_accesses(op, lambda a: a.substitute(bindings))
        op.mask = tuple(m.substitute(bindings) for m in op.mask)
        op.once = frozenset(names.get(v, v) for v in op.once)
        op.after_first = tuple(names.get(v, v) for v in op.after_first)
        op.last_of = tuple(names.get(v, v) for v in op.last_of)
        op.varies = frozenset(names.get(v, v) for v in op.varies)
