"""Taking some instructions of a loop out of it: to run once before it, or in a loop of their own before or after it.

The three uses have one mechanism. A *skeleton*, the loop's body pruned to the chosen instructions, goes before or after
the loop. Tensors that carry values from the skeleton to what stays behind get a block dimension for every loop that
both share, so that each iteration finds its own.
"""

from __future__ import annotations

import dataclasses

from ..neuroncore.ir import Access, Affine, Instr, Kernel, Loop, LoopVar, Node, Tensor
from .dependence import conflicts, depends_on_loop, may_overlap
from .refusal import RewriteError
from .structure import Use, find, instrs_in, is_local, locate, map_instr, read_accesses, replace_instrs, uses


@dataclasses.dataclass
class _Skeleton:
    """The pruned copy of a loop nest: its nodes, and which new loop stands for which old one (None: dropped)."""

    nodes: list[Node]
    loops: dict[Loop, Loop | None]


def writers_closure(loop: Loop, seeds: list[Instr]) -> list[Instr]:
    """The seeds and everything in the loop that they need: writers of what they read, co-writers of what they write.

    Returns:
        instructions of the loop in program order.
    """
    everything = [instr for instr, _ in instrs_in(loop.body)]
    writers: dict[Tensor, list[Instr]] = {}
    for instr in everything:
        for dst in instr.dsts:
            writers.setdefault(dst.tensor.storage, []).append(instr)
    chosen: dict[int, Instr] = {}
    stack = list(seeds)
    while stack:
        instr = stack.pop()
        if id(instr) in chosen:
            continue
        chosen[id(instr)] = instr
        for access in (*read_accesses(instr), *instr.dsts):
            stack.extend(writers.get(access.tensor.storage, ()))
    return [instr for instr in everything if id(instr) in chosen]


def extract(
    kernel: Kernel, loop: Loop, chosen: list[Instr], *, keep_loop: bool, after: bool = False
) -> list[Node]:
    """Move instructions out of a loop, in place.

    Args:
        kernel: changed in place.
        loop: the loop that holds them, at any depth.
        chosen: the instructions to move.
        keep_loop: True to run them in a loop of their own with the same iterations; False to run them once, for
            instructions that do not depend on the loop.
        after: whether they go after the loop instead of before it (only with `keep_loop`).

    Returns:
        the nodes put before or after the loop.

    Raises:
        RewriteError: if that would change results.
    """
    body, position, outer = locate(kernel, find(kernel, loop))
    ids = {id(i) for i in chosen}
    if not ids:
        raise RewriteError("option", "nothing to move")
    inside = _loops_inside(loop)
    _check_order(loop, outer, ids, keep_loop, after)
    if not keep_loop:
        _check_invariant(loop, chosen, inside)
    skeleton = _skeleton(loop, ids, keep_loop)
    _expand(kernel, loop, outer, ids, skeleton, inside)
    replace_instrs(loop.body, lambda instr: None if id(instr) in ids else instr)
    _drop_empty_loops(loop.body)
    at = position + 1 if after else position
    body[at:at] = skeleton.nodes
    return skeleton.nodes


def _loops_inside(loop: Loop) -> dict[Loop, tuple[Loop, ...]]:
    """The loop and every loop within, each with the chain of loops from `loop` down to it (itself included)."""
    out: dict[Loop, tuple[Loop, ...]] = {loop: (loop,)}

    def visit(body: list[Node], chain: tuple[Loop, ...]) -> None:
        for node in body:
            if isinstance(node, Loop):
                out[node] = (*chain, node)
                visit(node.body, (*chain, node))

    visit(loop.body, (loop,))
    return out


# -- legality -----------------------------------------------------------------------------------------------------------
def _check_order(loop: Loop, outer: tuple[Loop, ...], ids: set[int], keep_loop: bool, after: bool) -> None:
    """Refuse if a chosen and a remaining instruction would change their order where it matters."""
    inside = set(_loops_inside(loop))
    shared_outer = [each.var for each in outer]
    for storage, found in uses(loop.body, (*outer, loop)).items():
        private = storage.scope in inside
        for a in (u for u in found if id(u.instr) in ids):
            for b in (u for u in found if id(u.instr) not in ids):
                if not conflicts(a, b):
                    continue
                _check_pair(loop, shared_outer, a, b, private, storage, keep_loop, after)


def _check_pair(
    loop: Loop,
    shared_outer: list[LoopVar],
    a: Use,
    b: Use,
    private: bool,
    storage: Tensor,
    keep_loop: bool,
    after: bool,
) -> None:
    """`a` is chosen, `b` stays; one of them writes."""
    name = storage.name
    depth = len(shared_outer) + 1
    common = _common(a.loops, b.loops)
    shared = [each.var for each in common]
    # Within one iteration of the loop: with `after` the chosen run last, otherwise first.
    wrong_way = a.order < b.order if after else b.order < a.order
    if wrong_way and may_overlap(a.access, b.access, shared):
        raise RewriteError("dependence", f"`{name}` orders instructions that would change places")
    for level in range(depth, len(common)):
        if storage.scope is not None and storage.scope in common[level:]:
            break  # fresh in each iteration of this inner loop: nothing is carried by it
        n = common[level].trips - 1
        distance = (common[level].var, common[level].var, 1, n)
        backwards = (common[level].var, common[level].var, -n, -1)
        before = [each.var for each in common[:level]]
        # The remaining instruction's earlier iterations ran before the chosen one's later ones, and the other way round.
        if n and may_overlap(a.access, b.access, before, backwards if after else distance):
            raise RewriteError(
                "dependence", f"`{name}` is carried by the inner loop over {common[level].var.name}"
            )
    if private or loop.trips == 1:
        return
    if not keep_loop:
        if b.writes:
            raise RewriteError("dependence", f"`{name}` changes within the loop over {loop.var.name}")
        return
    n = loop.trips - 1
    distance = (loop.var, loop.var, -n, -1) if after else (loop.var, loop.var, 1, n)
    if may_overlap(a.access, b.access, shared_outer, distance):
        raise RewriteError(
            "dependence", f"`{name}` is carried from one iteration of {loop.var.name} to another"
        )


def _check_invariant(loop: Loop, chosen: list[Instr], inside: dict[Loop, tuple[Loop, ...]]) -> None:
    """Refuse to run once what depends on the loop or accumulates over it."""
    for instr in chosen:
        if depends_on_loop(instr, loop.var):
            raise RewriteError("dependence", f"{instr.op} depends on the loop over {loop.var.name}")
        for dst in instr.dsts:
            if not dst.tensor.buffer.on_chip:
                raise RewriteError("dependence", f"{instr.op} writes `{dst.tensor.name}` in HBM")
            private = dst.tensor.scope in inside
            if not private and any(r.tensor.storage is dst.tensor.storage for r in read_accesses(instr)):
                raise RewriteError(
                    "dependence", f"`{dst.tensor.name}` accumulates over the loop over {loop.var.name}"
                )


def _common(a: tuple[Loop, ...], b: tuple[Loop, ...]) -> list[Loop]:
    out = []
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        out.append(x)
    return out


# -- the skeleton ---------------------------------------------------------------------------------------------------------
def _skeleton(loop: Loop, ids: set[int], keep_loop: bool) -> _Skeleton:
    loops: dict[Loop, Loop | None] = {}

    def prune(body: list[Node]) -> list[Node]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, Instr):
                if id(node) in ids:
                    out.append(node)
                continue
            inner = prune(node.body)
            if not inner:
                continue
            if _repeats_itself(node.var, inner):
                loops[node] = None
                out.extend(inner)
            else:
                loops[node] = Loop(LoopVar(node.var.name, node.trips), node.kind, inner, node.line)
                out.append(loops[node])  # type: ignore[arg-type]
        return out

    nodes = prune(loop.body)
    if keep_loop:
        copy = Loop(LoopVar(loop.var.name, loop.trips), loop.kind, nodes, loop.line)
        loops[loop] = copy
        nodes = [copy]
    else:
        loops[loop] = None
    return _Skeleton(nodes, loops)


def _repeats_itself(var: LoopVar, body: list[Node]) -> bool:
    """Whether running the nodes once is the same as running them for every value of a loop variable."""
    for instr, _ in instrs_in(body):
        if depends_on_loop(instr, var):
            return False
        if any(r.tensor.storage is d.tensor.storage for r in read_accesses(instr) for d in instr.dsts):
            return False
    return True


def _expand(
    kernel: Kernel,
    loop: Loop,
    outer: tuple[Loop, ...],
    ids: set[int],
    skeleton: _Skeleton,
    inside: dict[Loop, tuple[Loop, ...]],
) -> None:
    """Give tensors that cross over a block dimension for each shared loop; rename loop variables in the skeleton."""
    scope = outer[-1] if outer else None
    bindings: dict[LoopVar | int, Affine | int] = {
        old.var: Affine.of(new.var) if new is not None else 0 for old, new in skeleton.loops.items()
    }
    touched_inside: dict[Tensor, None] = {}
    touched_outside: set[Tensor] = set()
    changed_outside: set[Tensor] = set()
    for instr, _ in instrs_in(loop.body):
        for access in (*read_accesses(instr), *instr.dsts):
            if id(instr) in ids:
                touched_inside[access.tensor] = None
            else:
                touched_outside.add(access.tensor)
        if id(instr) not in ids:
            changed_outside.update(dst.tensor for dst in instr.dsts)
    prefixes: dict[Tensor, tuple[list[Loop], list[Loop]]] = {}
    for tensor in touched_inside:
        if tensor.scope not in inside or not is_local(tensor):
            continue
        assert tensor.scope is not None
        chain = inside[tensor.scope]
        if tensor in touched_outside:
            kept = [old for old in chain if skeleton.loops.get(old) is not None]
            if tensor in changed_outside and len(kept) < len(chain):
                raise RewriteError(
                    "dependence", f"`{tensor.name}` is changed again by what stays in the loop"
                )
            prefixes[tensor] = (kept, [skeleton.loops[old] for old in kept])  # type: ignore[misc]
            tensor.shape = (*(each.trips for each in kept), *tensor.shape)
            tensor.par_dim += len(kept)
            tensor.scope = scope
        else:
            survivors = [skeleton.loops[old] for old in chain if skeleton.loops.get(old) is not None]
            tensor.scope = survivors[-1] if survivors else scope

    def prefix(access: Access, side: int) -> Access:
        if access.tensor not in prefixes:
            return access
        vars_ = prefixes[access.tensor][side]
        return Access(access.tensor, (*(Affine.of(each.var) for each in vars_), *access.index), access.shape)

    def in_skeleton(instr: Instr) -> Instr:
        moved = map_instr(
            instr, lambda a: prefix(a.substitute(bindings), 1), lambda e: e.substitute(bindings)
        )
        listed = moved.attrs.get("loops")
        if listed:
            new = [skeleton.loops.get(old) for old in skeleton.loops if old.var in listed]
            kept = [v for v in listed if all(old.var is not v for old in skeleton.loops)]
            moved = moved.replace(
                attrs={**moved.attrs, "loops": (*kept, *(each.var for each in new if each is not None))}
            )
        return moved

    replace_instrs(skeleton.nodes, in_skeleton)
    replace_instrs(
        loop.body, lambda instr: instr if id(instr) in ids else map_instr(instr, lambda a: prefix(a, 0))
    )


def _drop_empty_loops(body: list[Node]) -> None:
    for k in range(len(body) - 1, -1, -1):
        node = body[k]
        if isinstance(node, Loop):
            _drop_empty_loops(node.body)
            if not node.body:
                del body[k]
