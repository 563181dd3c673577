"""When a matmul overwrites its PSUM tile and when it adds to it.

In the `nki` package ``nc_matmul(dst=psum, ...)`` infers it: the first write since the tile's allocation overwrites, later
ones accumulate. So does the compiler of Beta 1 for ``psum[...] += nisa.nc_matmul(...)`` into a tile that nothing has
filled. In IR that is a tile that starts at zero and matmuls that accumulate; the zero costs nothing in PSUM. A tile
written by a single matmul in the scope that allocates it needs neither.
"""

from __future__ import annotations

from ..ir import Access, Buffer, Instr, Loop, Node, Tensor
from .session import Session


def start_group(session: Session, tensor: Tensor) -> None:
    """Note where a PSUM tensor is allocated, with a zero that `settle` keeps only if it is needed."""
    if tensor.buffer is not Buffer.PSUM:
        return
    zero = Instr("nl.zeros", (tensor.whole(),), {}, {"value": 0.0}, line=tensor.line)
    session.emit(zero)
    session.groups[tensor] = zero


def accumulates(session: Session, dst: Access, accumulate: bool | None) -> bool:
    """Whether a matmul into `dst` adds; infers it where the kernel does not say."""
    if accumulate is not None:
        return accumulate
    return dst.tensor in session.groups


def settle(session: Session) -> None:
    """Drop the zeros of tensors that no matmul accumulates into, and turn lone matmuls into plain ones.

    A kernel of Beta 1 that fills its tile itself needs none either.
    """
    if not session.groups:
        return
    writers: dict[Tensor, list[tuple[Instr, Loop | None]]] = {t: [] for t in session.groups}

    def collect(body: list[Node], loop: Loop | None) -> None:
        for node in body:
            if isinstance(node, Loop):
                collect(node.body, node)
                continue
            for dst in node.dsts:
                if dst.tensor in writers and node is not session.groups[dst.tensor]:
                    writers[dst.tensor].append((node, loop))

    collect(session.top, None)
    unneeded: set[int] = set()
    for tensor, zero in session.groups.items():
        added = [(i, loop) for i, loop in writers[tensor] if i.attrs.get("accumulate")]
        if (
            len(writers[tensor]) == 1
            and len(added) == 1
            and added[0][1] is tensor.scope
            and not added[0][0].mask
        ):
            added[0][0].attrs.pop("accumulate")
            added = []
        filled = not session.unrolls_freely and added and writers[tensor][0] != added[0]
        if filled or not added:
            unneeded.add(id(zero))

    def prune(body: list[Node]) -> None:
        body[:] = [n for n in body if id(n) not in unneeded]
        for node in body:
            if isinstance(node, Loop):
                prune(node.body)

    prune(session.top)
