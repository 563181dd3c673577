"""Where tensors live: each is moved into the innermost loop whose iterations do not share it.

Compiler-printed kernels declare every temporary at the top with one block dimension for each loop around its use,
``t = nl.ndarray((32, 7, nl.par_dim(128), 1024))``, used as ``t[i, j, ...]`` in the loops over i and j. Nothing of it
survives an iteration, so it becomes a (128, 1024) tensor of the loop over j, and memory follows the live part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Access, Affine, Buffer, Indirect, Instr, Loop, LoopVar, Node, Tensor
from .coverage import swept
from .overlap import linear, meet, row_major
from .program import Program, Site, common_loops, inside, reads, sites


def scope_tensors(program: Program) -> None:
    """Give every private tensor its narrowest scope. In place."""
    uses = _uses(program)
    removed: set[int] = set()
    moved: dict[Tensor, tuple[Tensor, tuple[int, ...]]] = {}
    for tensor, sites_ in uses.items():
        sites_ = _take_initial_fill(program, tensor, sites_, removed)
        if sites_:
            _narrow(program, tensor, sites_, moved)
    _rewrite(program.body, moved, removed)


def _uses(program: Program) -> dict[Tensor, list[tuple[Site, Access]]]:
    uses: dict[Tensor, list[tuple[Site, Access]]] = {}
    for site in sites(program.body):
        for access in (*site.instr.dsts, *reads(site.instr)):
            if program.is_private(access.tensor):
                uses.setdefault(access.tensor, []).append((site, access))
    return uses


def is_whole(access: Access) -> bool:
    """Whether an access covers its tensor, one axis per dimension."""
    seen: set[int] = set()
    for e, n in zip(access.index, access.tensor.shape, strict=True):
        if isinstance(e, Indirect) or e.const:
            return False
        if n == 1 and not e.loops():
            continue
        if len(e.terms) != 1:
            return False
        ((symbol, c),) = e.terms.items()
        if not isinstance(symbol, int) or c != 1 or access.shape[symbol] != n or symbol in seen:
            return False
        seen.add(symbol)
    return True


def _take_initial_fill(
    program: Program, tensor: Tensor, sites_: list[tuple[Site, Access]], removed: set[int]
) -> list[tuple[Site, Access]]:
    """Turn a fill of the whole tensor, right where it comes into being, into its initial value."""
    site, access = sites_[0]
    instr = site.instr
    scope_now = site.loops[-1] if site.loops else None
    if instr.op != "fill" or instr.mask or "combine" in instr.attrs or scope_now is not tensor.scope:
        return sites_
    if len(instr.dsts) != 1 or not is_whole(access):
        return sites_
    program.inits[tensor] = instr.attrs["value"]
    removed.add(id(instr))
    return sites_[1:]


def _narrow(
    program: Program,
    tensor: Tensor,
    sites_: list[tuple[Site, Access]],
    moved: dict[Tensor, tuple[Tensor, tuple[int, ...]]],
) -> None:
    path = sites_[0][0].loops
    for site, _ in sites_[1:]:
        path = common_loops(path, site.loops)
    inner = inside(path, tensor.scope)
    first = sites_[0][1]
    fixed: dict[int, Affine] = {}
    for d, e in enumerate(first.index):
        if isinstance(e, Affine) and not e.axes() and all(a.index[d] == e for _, a in sites_[1:]):
            fixed[d] = e
    outer = len(path) - len(inner)
    depth, dims = _separating_prefix(fixed, [loop.var for loop in path], outer)
    depth = _overwritten_prefix(sites_, path, outer, depth, dims)
    if not depth:
        return
    scope = inner[depth - 1]
    shape = tuple(n for d, n in enumerate(tensor.shape) if d not in dims)
    narrow = Tensor(
        tensor.name, shape, tensor.dtype, tensor.buffer, kind=tensor.kind, scope=scope, declared=tensor.declared,
        line=tensor.line,
    )  # fmt: skip
    if tensor in program.inits:
        program.inits[narrow] = program.inits.pop(tensor)
    moved[tensor] = narrow, dims


def _separating_prefix(
    fixed: dict[int, Affine], path: Sequence[LoopVar], outer: int
) -> tuple[int, tuple[int, ...]]:
    """How many loops below the scope tell a tensor's slices apart, and the dimensions they use up.

    Args:
        fixed: dimensions whose index is the same everywhere and has no tile axis.
        path: loops around all uses, outermost first.
        outer: how many of them are outside the tensor's scope.
    """
    for depth in range(len(path) - outer, 0, -1):
        allowed = set(path[: outer + depth])
        wanted = set(path[outer : outer + depth])
        dims = tuple(d for d, e in fixed.items() if all(v in allowed for v in e.loops()))
        determined: set[LoopVar] = set()
        for d in dims:
            determined |= _determined(fixed[d], wanted)
        if determined == wanted:
            return depth, dims
    return 0, ()


def _overwritten_prefix(
    sites_: list[tuple[Site, Access]], path: Sequence[Loop], outer: int, depth: int, dims: tuple[int, ...]
) -> int:
    """How many loops below the scope begin every iteration by overwriting the whole tensor: `depth`, or all.

    Args:
        sites_: the uses in program order.
        path: loops around all uses.
        outer: how many of them are outside the scope.
        depth: how many below the scope are known to have a tensor of their own.
        dims: the dimensions that tell those apart.
    """
    site, access = sites_[0]
    instr = site.instr
    if access not in instr.dsts or instr.mask or access in reads(instr):
        return depth
    fixed = {loop.var for loop in path}
    if any(v in fixed for v in instr.attrs.get("reset", ())):
        return depth
    if any(len(common_loops(site.loops, s.loops)) > len(path) for s, _ in sites_ if s.instr is not instr):
        return depth
    sweep = swept(access, fixed)
    if sweep is None or not sweep.dense:
        return depth
    for d, ((low, high), anchor) in enumerate(zip(sweep.box, sweep.anchor, strict=True)):
        if d not in dims and (anchor or low > 0 or high < access.tensor.shape[d]):
            return depth
    return len(path) - outer


def _determined(e: Affine, wanted: set[LoopVar]) -> set[LoopVar]:
    """The loops whose values can be told from the value of an expression (mixed radix)."""
    terms = sorted(((abs(e.coefficient(v)), v) for v in e.loops() if v in wanted), key=lambda t: t[0])
    reach = 0
    for c, v in terms:
        if c <= reach:
            return set()
        reach += c * (v.trips - 1)
    return {v for _, v in terms}


def _rewrite(
    nodes: list[Node], moved: dict[Tensor, tuple[Tensor, tuple[int, ...]]], removed: set[int]
) -> None:
    def access(a: Access) -> Access:
        index: Sequence[Affine | Indirect] = a.index
        if a.is_indirect:
            index = [
                Indirect(access(e.tile), e.offset, e.scale) if isinstance(e, Indirect) else e for e in index
            ]
        target = moved.get(a.tensor)
        if target is None:
            return a if index is a.index else Access(a.tensor, tuple(index), a.shape)
        narrow, dims = target
        return Access(narrow, tuple(e for d, e in enumerate(index) if d not in dims), a.shape)

    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            _rewrite(node.body, moved, removed)
            if node.body:
                kept.append(node)
        elif id(node) not in removed:
            node.dsts = tuple(access(d) for d in node.dsts)
            node.args = {k: access(v) if isinstance(v, Access) else v for k, v in node.args.items()}
            kept.append(node)
    nodes[:] = kept


def find_first_iterations(program: Program) -> None:
    """Let an accumulation into a tensor of zeros start by overwriting, where that is the same. In place.

    PSUM that nothing has written accumulates from zero.
    """
    writers: dict[Tensor, list[Site]] = {}
    for site in sites(program.body):
        for dst in site.instr.dsts:
            writers.setdefault(dst.tensor, []).append(site)
    for tensor, sites_ in writers.items():
        adding = [
            s for s in sites_ if s.instr.attrs.get("combine") == "add" and s.instr.attrs["reset"] is None
        ]
        if not adding or not program.is_private(tensor):
            continue
        if tensor.buffer is Buffer.PSUM:
            program.inits.setdefault(tensor, 0.0)
        if len(adding) == len(sites_) and program.inits.get(tensor) == 0 and tensor.dtype == np.float32:
            for number, reset in _openers(tensor, adding).items():
                _set_reset(adding[number].instr, reset)


MAX_ADDENDS = 64
"""Accumulations into one tensor looked at before it is simply filled with zeros."""


def _openers(tensor: Tensor, adding: list[Site]) -> dict[int, tuple[LoopVar, ...]]:
    """Which accumulations can overwrite, in the first iteration of which loops; none unless that leaves no gap."""
    if len(adding) > MAX_ADDENDS or any(s.instr.mask or s.instr.dst.is_indirect for s in adding):
        return {}
    if any(s.loops != adding[0].loops for s in adding):
        return {}
    strides = row_major(tensor.shape)
    first: list[int] = []
    for k, site in enumerate(adding):
        same = [f for f in first if adding[f].instr.dst == site.instr.dst]
        if same:
            continue
        here = linear(site.instr.dst, strides)
        if any(meet(here, linear(adding[f].instr.dst, strides), ()) for f in first):
            return {}
        first.append(k)
    found: dict[int, tuple[LoopVar, ...]] = {}
    for k in first:
        reset = _reduction_loops(tensor, adding[k])
        if reset is None:
            return {}
        found[k] = reset
    return found


def _set_reset(instr: Instr, reset: tuple[LoopVar, ...]) -> None:
    if reset:
        instr.attrs["reset"] = reset
    else:
        del instr.attrs["reset"], instr.attrs["combine"]


def _reduction_loops(tensor: Tensor, site: Site) -> tuple[LoopVar, ...] | None:
    """The loops that visit every element again, or None if some loop revisits only a part."""
    path = [loop.var for loop in site.loops]
    below = [loop.var for loop in inside(site.loops, tensor.scope)]
    where = linear(site.instr.dst, row_major(tensor.shape))
    again: list[LoopVar] = []
    for v in below:
        if v not in where.loops:
            again.append(v)
        elif meet(where, where, path[: path.index(v)], v, 1):
            return None
    return tuple(again)


def loops_of(instr: Instr) -> set[LoopVar]:
    """Every loop variable an instruction mentions."""
    seen: set[LoopVar] = set()
    for a in (*instr.dsts, *(v for v in instr.args.values() if isinstance(v, Access))):
        seen.update(a.loops())
    for value in (*instr.mask, *instr.attrs.values()):
        for e in value if isinstance(value, tuple) else (value,):
            if isinstance(e, Affine):
                seen.update(e.loops())
            elif isinstance(e, LoopVar):
                seen.add(e)
    return seen
