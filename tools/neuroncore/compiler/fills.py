"""Fills of whole arrays happen tile by tile, where each tile is first used.

A kernel declares an accumulator for all its blocks at once (``nl.zeros((12, 2, 4, par_dim(128), 512))``); the compiler
never holds them all. Evidence: lora's VectorE time contains 768 memsets of [128, 512] (0.55 us each) although the
array of 1.5 MiB per partition exists at no time; mamba's accumulators likewise.
"""

from __future__ import annotations

import dataclasses
import math

from ..ir import LoopVar
from .liveness import Use, lifetimes, touched_bytes
from .program import Kind, Nest, Node, Program


def distribute_fills(program: Program) -> None:
    """Move every fill that covers more than its first use to just before that use, one tile at a time."""
    for life in lifetimes(program).values():
        fills = [u for u in life.uses if u.write and u.op.kind is Kind.MEMSET]
        others = [u for u in life.uses if u.op.kind is not Kind.MEMSET]
        if len(fills) != 1 or not others or fills[0].position > others[0].position:
            continue
        fill, first = fills[0], others[0]
        if first.loops[: len(fill.loops)] != fill.loops or len(first.loops) == len(fill.loops):
            continue
        if touched_bytes(fill.access, ()) <= touched_bytes(first.access, ()):
            continue
        _move(program, fill, first)


def _move(program: Program, fill: Use, first: Use) -> None:
    inner = first.loops[len(fill.loops) :]
    used = set(first.access.loops())
    fill_body = fill.loops[-1].body if fill.loops else program.body
    fill_body.remove(fill.op)
    target: list[Node] = first.loops[-1].body
    moved = dataclasses.replace(
        fill.op,
        writes=(first.access,),
        elements=math.prod(first.access.shape[1:]),
        once=fill.op.once | _unused(inner, used),
        mask=first.op.mask,
        mask_shape=first.op.mask_shape,
    )
    target.insert(target.index(first.op), moved)


def _unused(loops: tuple[Nest, ...], used: set[LoopVar]) -> frozenset[LoopVar]:
    return frozenset(nest.var for nest in loops if nest.var not in used)
