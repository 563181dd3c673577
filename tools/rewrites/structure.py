"""Finding and moving nodes in a kernel's tree of loops.

Everything here edits in place and decides nothing about legality.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..neuroncore.ir import Access, Affine, Indirect, Instr, Kernel, Loop, LoopVar, Node, Tensor, TensorKind
from .refusal import RewriteError

Path = tuple[int, ...]
"""Where a node is: its position in the kernel's body, then in that loop's body, and so on."""


@dataclasses.dataclass(frozen=True)
class Use:
    """One access to a tensor by one instruction.

    Attributes:
        instr: who accesses.
        loops: the loops around it, outermost first.
        access: what is accessed.
        writes: whether it is a destination.
        order: position of the instruction in program order.
    """

    instr: Instr
    loops: tuple[Loop, ...]
    access: Access
    writes: bool
    order: int


def nodes(kernel: Kernel) -> Iterator[tuple[Path, Node, tuple[Loop, ...]]]:
    """Every node with its path and the loops around it, in program order, a loop before its body."""

    def visit(
        body: list[Node], path: Path, loops: tuple[Loop, ...]
    ) -> Iterator[tuple[Path, Node, tuple[Loop, ...]]]:
        for k, node in enumerate(body):
            yield (*path, k), node, loops
            if isinstance(node, Loop):
                yield from visit(node.body, (*path, k), (*loops, node))

    yield from visit(kernel.body, (), ())


def loops_of(kernel: Kernel) -> Iterator[tuple[Path, Loop, tuple[Loop, ...]]]:
    """Every loop with its path and the loops around it."""
    for path, node, outer in nodes(kernel):
        if isinstance(node, Loop):
            yield path, node, outer


def instrs_of(kernel: Kernel) -> Iterator[tuple[Path, Instr, tuple[Loop, ...]]]:
    """Every instruction with its path and the loops around it."""
    for path, node, outer in nodes(kernel):
        if isinstance(node, Instr):
            yield path, node, outer


def locate(kernel: Kernel, path: Path) -> tuple[list[Node], int, tuple[Loop, ...]]:
    """The body that holds a node, the node's position in it, and the loops around it.

    Raises:
        RewriteError: if there is no such node.
    """
    body, loops = kernel.body, []
    for k in path[:-1]:
        node = body[k] if k < len(body) else None
        if not isinstance(node, Loop):
            raise RewriteError("option", f"the kernel has no loop at {path}")
        loops.append(node)
        body = node.body
    if not path or path[-1] >= len(body):
        raise RewriteError("option", f"the kernel has no node at {path}")
    return body, path[-1], tuple(loops)


def loop_at(kernel: Kernel, path: Path) -> tuple[Loop, tuple[Loop, ...]]:
    """The loop at a path, and the loops around it.

    Raises:
        RewriteError: if the node there is not a loop.
    """
    body, k, outer = locate(kernel, path)
    node = body[k]
    if not isinstance(node, Loop):
        raise RewriteError("option", f"the node at {path} is not a loop")
    return node, outer


def instr_at(kernel: Kernel, path: Path) -> tuple[Instr, list[Node], int, tuple[Loop, ...]]:
    """The instruction at a path, the body that holds it, its position, and the loops around it.

    Raises:
        RewriteError: if the node there is not an instruction.
    """
    body, k, outer = locate(kernel, path)
    node = body[k]
    if not isinstance(node, Instr):
        raise RewriteError("option", f"the node at {path} is not an instruction")
    return node, body, k, outer


def instrs_in(body: list[Node], loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Instr, tuple[Loop, ...]]]:
    """Every instruction under a list of nodes in program order, with the loops around it from `loops` on."""
    for node in body:
        if isinstance(node, Loop):
            yield from instrs_in(node.body, (*loops, node))
        else:
            yield node, loops


def read_accesses(instr: Instr) -> list[Access]:
    """Every tile that an instruction reads, those in attributes included."""
    out = instr.reads()
    for value in instr.attrs.values():
        if isinstance(value, Access):
            out.append(value)
    if instr.op == "nl.loop_reduce":
        out.append(instr.dst)
    return out


def uses(body: list[Node], loops: tuple[Loop, ...] = ()) -> dict[Tensor, list[Use]]:
    """Every access under `body` by the storage it touches, in program order, an instruction's reads before its writes."""
    out: dict[Tensor, list[Use]] = {}
    for order, (instr, around) in enumerate(instrs_in(body, loops)):
        for access in read_accesses(instr):
            out.setdefault(access.tensor.storage, []).append(Use(instr, around, access, False, order))
        for access in instr.dsts:
            out.setdefault(access.tensor.storage, []).append(Use(instr, around, access, True, order))
    return out


def tensors_in(body: list[Node]) -> list[Tensor]:
    """Every tensor touched under `body`, in order of first touch."""
    seen: dict[Tensor, None] = {}
    for instr, _ in instrs_in(body):
        for access in (*read_accesses(instr), *instr.dsts):
            seen[access.tensor] = None
    return list(seen)


def is_local(tensor: Tensor) -> bool:
    """Whether it is an on-chip tensor of the kernel's own."""
    return tensor.kind is TensorKind.LOCAL and tensor.buffer.on_chip


# -- substitution -----------------------------------------------------------------------------------------------------
def map_instr(
    instr: Instr, access: Callable[[Access], Access], affine: Callable[[Affine], Affine] | None = None
) -> Instr:
    """A copy with every access and, if given, every affine expression (masks, iota, select) replaced.

    The index tiles of indirect accesses are replaced before the accesses they belong to.
    """

    def on(a: Access) -> Access:
        if a.is_indirect:
            index = tuple(
                Indirect(access(e.tile), e.offset, e.scale) if isinstance(e, Indirect) else e for e in a.index
            )
            a = Access(a.tensor, index, a.shape)
        return access(a)

    attrs: dict[str, Any] = {}
    for key, value in instr.attrs.items():
        if isinstance(value, Access):
            attrs[key] = on(value)
        elif affine is not None and isinstance(value, Affine):
            attrs[key] = affine(value)
        elif affine is not None and isinstance(value, tuple) and value and isinstance(value[0], Affine):
            attrs[key] = tuple(affine(v) for v in value)
        else:
            attrs[key] = value
    mask = tuple(affine(m) for m in instr.mask) if affine is not None else instr.mask
    return instr.map_accesses(on).replace(attrs=attrs, mask=mask)


def substitute(body: list[Node], bindings: Mapping[LoopVar | int, Affine | int]) -> None:
    """Replace loop variables everywhere under `body`, in lists of reduced loops too."""

    def on(instr: Instr) -> Instr:
        new = map_instr(instr, lambda a: a.substitute(bindings), lambda e: e.substitute(bindings))
        listed = new.attrs.get("loops")
        if listed and any(v in bindings for v in listed):
            replaced: list[LoopVar] = []
            for v in listed:
                value = bindings.get(v)
                if value is None:
                    replaced.append(v)
                elif isinstance(value, Affine):
                    replaced.extend(value.loops())
            new = new.replace(attrs={**new.attrs, "loops": tuple(dict.fromkeys(replaced))})
        return new

    replace_instrs(body, on)


def replace_instrs(body: list[Node], function: Callable[[Instr], Instr | list[Instr] | None]) -> None:
    """Replace every instruction under `body` by what the function returns; None or an empty list removes it."""
    for k in range(len(body) - 1, -1, -1):
        node = body[k]
        if isinstance(node, Loop):
            replace_instrs(node.body, function)
            continue
        result = function(node)
        body[k : k + 1] = [] if result is None else [result] if isinstance(result, Instr) else result


def replace_accesses(body: list[Node], tensor: Tensor, function: Callable[[Access], Access]) -> None:
    """Replace every access to one tensor under `body`."""
    replace_instrs(body, lambda instr: map_instr(instr, lambda a: function(a) if a.tensor is tensor else a))


def rescope(body: list[Node], old: Loop | None, new: Loop | None) -> None:
    """Tensors under `body` that were created afresh in each iteration of `old` are now in each of `new`."""
    for tensor in tensors_in(body):
        if tensor.kind is TensorKind.LOCAL and tensor.scope is old and tensor.buffer.on_chip:
            tensor.scope = new


def find(kernel: Kernel, wanted: Node) -> Path:
    """The path of a node.

    Raises:
        RewriteError: if the kernel does not hold it.
    """
    for path, node, _ in nodes(kernel):
        if node is wanted:
            return path
    raise RewriteError("option", "the node is not part of the kernel")
