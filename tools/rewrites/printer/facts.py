"""What printing has to know of a kernel before it starts."""

from __future__ import annotations

from typing import Any

from ...neuroncore.ir import Access, Affine, Instr, Kernel, Loop, Node, Tensor


def mentioned(node: Node) -> list[Tensor]:
    """Every tensor that a node touches, in order."""
    seen: dict[Tensor, None] = {}
    nodes = [node]
    while nodes:
        current = nodes.pop(0)
        if isinstance(current, Loop):
            nodes[:0] = current.body
            continue
        accesses = [
            *current.reads(),
            *current.dsts,
            *(v for v in current.attrs.values() if isinstance(v, Access)),
        ]
        for access in accesses:
            seen[access.tensor] = None
    return list(seen)


def first_writes(body: list[Node]) -> dict[Tensor, Instr]:
    """For each tensor, the instruction that touches it first, if that instruction writes it."""
    first: dict[Tensor, Instr | None] = {}
    stack: list[Node] = list(body)
    while stack:
        node = stack.pop(0)
        if isinstance(node, Loop):
            stack[:0] = node.body
            continue
        for access in node.reads():
            first.setdefault(access.tensor, None)
        for access in node.dsts:
            first.setdefault(access.tensor, node)
    return {t: i for t, i in first.items() if i is not None}


def extents_in_use(kernel: Kernel) -> set[tuple[int, int, int]]:
    """Rank, axis and extent of every index tile that could be needed, so that names can tell extents apart."""
    out: set[tuple[int, int, int]] = set()
    for instr, _ in kernel.walk():
        shapes = [a.shape for a in (*instr.dsts, *instr.reads()) if not is_box(a)]
        if instr.mask or instr.op in ("nisa.iota", "nisa.affine_select"):
            shapes.append(instr.mask_space)
        for shape in shapes:
            out.update((len(shape), axis, n) for axis, n in enumerate(shape) if n > 1)
    return out


def is_box(access: Access) -> bool:
    """Whether an access is a box of its tensor, axis by axis in order."""
    if access.is_indirect:
        return False
    position = 0
    for e in access.affine:
        axes = e.axes()
        if not axes:
            continue
        if len(axes) != 1 or axes[0] < position or e.coefficient(axes[0]) != 1:
            return False
        position = axes[0] + 1
    return True


def is_whole(access: Access) -> bool:
    """Whether it covers its tensor, dimension by dimension; an axis of extent 1 may be written as 0."""
    if access.is_indirect or access.shape != access.tensor.shape:
        return False
    return all(
        e == Affine.of(k) or (n == 1 and e == Affine(0))
        for k, (e, n) in enumerate(zip(access.affine, access.shape, strict=True))
    )


def unique_scalars(scalars: dict[str, Any]) -> dict[float, str]:
    """Parameters that carry a float no other parameter carries, by value: printed by name where that value is used."""
    values = [v for v in scalars.values() if isinstance(v, float)]
    return {
        v: name
        for name, v in scalars.items()
        if isinstance(v, float) and values.count(v) == 1 and not v.is_integer()
    }
