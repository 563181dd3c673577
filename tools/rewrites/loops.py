"""Splitting, exchanging and fusing loops, in place."""

from __future__ import annotations

from ..neuroncore.ir import Affine, Kernel, Loop, LoopKind, LoopVar, Node
from .dependence import carries, conflicts, is_parallel, may_overlap
from .extraction import extract
from .refusal import RewriteError
from .structure import find, instrs_in, locate, rescope, substitute, uses


def split_loop(kernel: Kernel, loop: Loop, factor: int) -> tuple[Loop, Loop]:
    """Make a loop of ``n`` iterations one of ``n / factor`` around one of `factor`.

    Returns:
        the outer and the inner loop; the inner one has the body and the loop's own tensors.

    Raises:
        RewriteError: if `factor` does not divide the trip count properly.
    """
    if factor < 2 or factor >= loop.trips or loop.trips % factor:
        raise RewriteError(
            "option", f"{factor} does not split the {loop.trips} iterations of {loop.var.name}"
        )
    body, position, _ = locate(kernel, find(kernel, loop))
    outer_var = LoopVar(f"{loop.var.name}_block", loop.trips // factor)
    inner_var = LoopVar(loop.var.name, factor)
    inner = Loop(inner_var, loop.kind, loop.body, loop.line)
    outer = Loop(outer_var, loop.kind, [inner], loop.line)
    substitute(inner.body, {loop.var: Affine.of(outer_var, factor) + Affine.of(inner_var)})
    rescope(inner.body, loop, inner)
    body[position] = outer
    return outer, inner


def exchange(kernel: Kernel, outer: Loop) -> tuple[Loop, Loop]:
    """Exchange a loop with the only node in its body, a loop.

    Returns:
        the loop now outside and the loop now inside.

    Raises:
        RewriteError: if the nest is not perfect, or iterations of the outer loop depend on one another.
    """
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        raise RewriteError("shape", f"the loop over {outer.var.name} holds more than one loop")
    inner = outer.body[0]
    body, position, around = locate(kernel, find(kernel, outer))
    if not is_parallel(outer, around):
        raise RewriteError("dependence", f"iterations of {outer.var.name} depend on one another")
    for tensor, found in uses(inner.body).items():
        if tensor.scope is outer and len({use.instr for use in found}) > 0:
            raise RewriteError("scope", f"`{tensor.name}` lives through the loop over {inner.var.name}")
    outer.body = inner.body
    rescope(outer.body, inner, outer)
    inner.body = [outer]
    body[position] = inner
    return inner, outer


def push_inside(kernel: Kernel, loop: Loop, child: Loop) -> tuple[Loop, Loop]:
    """Move a loop inside one of the loops in its body; what surrounds the child gets loops of its own.

    ``for i: A; for j: B; C`` becomes ``for i: A``, ``for j: for i: B``, ``for i: C``, with values that cross over kept in
    block tensors.

    Returns:
        the loops around B: the child outside, the loop inside.

    Raises:
        RewriteError: if that would change results.
    """
    if child not in loop.body:
        raise RewriteError("option", f"the loop over {child.var.name} is not directly inside {loop.var.name}")
    _, _, around = locate(kernel, find(kernel, loop))
    if not is_parallel(loop, around):
        raise RewriteError("dependence", f"iterations of {loop.var.name} depend on one another")
    position = loop.body.index(child)
    before = [instr for instr, _ in instrs_in(loop.body[:position])]
    after = [instr for instr, _ in instrs_in(loop.body[position + 1 :])]
    if before:
        extract(kernel, loop, before, keep_loop=True)
    if after:
        # Taking the first part out has copied the instructions that stayed.
        position = loop.body.index(child)
        extract(
            kernel, loop, [i for i, _ in instrs_in(loop.body[position + 1 :])], keep_loop=True, after=True
        )
    _shrink_scopes(loop, child)
    return exchange(kernel, loop)


def _shrink_scopes(loop: Loop, child: Loop) -> None:
    """A tensor of `loop` that each iteration of `child` writes anew for itself belongs to `child`."""
    for tensor, found in uses(child.body, (child,)).items():
        if tensor.scope is not loop:
            continue
        first = min(found, key=lambda use: (use.order, not use.writes))
        whole = (
            first.writes and first.access.shape == tensor.shape[tensor.par_dim :] and first.loops == (child,)
        )
        if whole and not tensor.block_shape and not first.instr.attrs.get("accumulate"):
            tensor.scope = child


def fuse(kernel: Kernel, first: Loop, second: Loop) -> Loop:
    """Run the bodies of two neighbouring loops of equal trip counts in one loop.

    If the second looks back to what earlier iterations of the first did, the new loop is a sequential one.

    Raises:
        RewriteError: if an iteration of the second needs a later iteration of the first, or they are not neighbours.
    """
    body, position, around = locate(kernel, find(kernel, first))
    if position + 1 >= len(body) or body[position + 1] is not second:
        raise RewriteError("option", "the loops are not neighbours")
    if first.trips != second.trips:
        raise RewriteError("shape", f"the loops have {first.trips} and {second.trips} iterations")
    shared = [each.var for each in around]
    n = first.trips - 1
    before, after = uses(first.body, (*around, first)), uses(second.body, (*around, second))
    for storage, found in before.items():
        for a in found:
            for b in after.get(storage, ()):
                if not conflicts(a, b) or n < 1:
                    continue
                if may_overlap(a.access, b.access, shared, (first.var, second.var, 1, n)):
                    raise RewriteError("dependence", f"`{storage.name}` is needed before its iteration")
    kind = first.kind if first.kind is second.kind else LoopKind.SEQUENTIAL
    fused = Loop(LoopVar(first.var.name, first.trips), kind, [], first.line)
    nodes: list[Node] = []
    for loop in (first, second):
        substitute(loop.body, {loop.var: Affine.of(fused.var)})
        rescope(loop.body, loop, fused)
        nodes.extend(loop.body)
    fused.body = nodes
    if kind.parallel and carries(fused, around) is not None:
        fused.kind = LoopKind.SEQUENTIAL
    body[position : position + 2] = [fused]
    return fused


def make_neighbours(kernel: Kernel, first: Loop, second: Loop) -> None:
    """Move what lies between two loops of one body before the first or after the second.

    Raises:
        RewriteError: if it depends on the one and the other needs it.
    """
    body, position, around = locate(kernel, find(kernel, first))
    other = body.index(second) if second in body else -1
    if other < position:
        raise RewriteError("option", "the loops are not in one body, in that order")
    between = body[position + 1 : other]
    early: list[Node] = []
    late: list[Node] = []
    for node in between:
        if _independent(node, [first, *late], around):
            early.append(node)
        else:
            late.append(node)
    for node in late:
        if not _independent(second, [node], around):
            raise RewriteError(
                "dependence", "what lies between the loops needs the first and feeds the second"
            )
    body[position : other + 1] = [*early, first, second, *late]


def _independent(node: Node, earlier: list[Node], around: tuple[Loop, ...]) -> bool:
    """Whether a node may run before some nodes that precede it."""
    shared = [each.var for each in around]
    mine, theirs = uses([node], around), uses(earlier, around)
    for storage, found in mine.items():
        for a in found:
            for b in theirs.get(storage, ()):
                if conflicts(a, b) and may_overlap(a.access, b.access, shared):
                    return False
    return True
