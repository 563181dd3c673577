"""Adjacent loop nests of equal trip count that work on the same data become one, and share identical work.

Evidence: swiglu's gate and up nests run as one over (block of columns, block of rows): its 48 MiB gate tensor is never
spilled though SBUF could not hold it, and the activations are loaded and transposed once for both. Nests with other
trip counts (lora), or with a dependence across iterations (softmax passes, gqa), are not fused. Within one source
nest, loads that the author repeated stay repeated (rmsnorm_matmul reads its rows twice).
"""

from __future__ import annotations

from ..ir import Access, Affine, LoopVar, Tensor
from .liveness import disjoint
from .program import Kind, Nest, Node, Op, Program
from .rewriting import map_accesses, ops_of, substitute


def fuse_nests(program: Program) -> None:
    """Fuse until nothing more can be fused."""
    _fuse_body(program, program.body)


def _fuse_body(program: Program, body: list[Node]) -> None:
    k = 0
    while k < len(body):
        node = body[k]
        if isinstance(node, Nest):
            partner = _partner(body, k)
            if partner is not None:
                program.notes.append(f"fused the loops of lines {node.line} and {body[partner].line}")
                _join(program, body, k, partner)
                continue
            _fuse_body(program, node.body)
        k += 1


def _partner(body: list[Node], k: int) -> int | None:
    """The next loop that can be joined to `body[k]`: what lies between either moves ahead of both or stays behind."""
    first = body[k]
    assert isinstance(first, Nest)
    held: list[Node] = []
    for j in range(k + 1, len(body)):
        node = body[j]
        if isinstance(node, Nest) and node.trips == first.trips and node.kind == first.kind:
            movable = not _depends(held, [node])
            if movable and _related(first, node) and _same_iteration(first, node):
                return j
        if _depends([first, *held], [node]):
            held.append(node)
    return None


def _tensors(body: list[Node]) -> tuple[dict[Tensor, list[Access]], dict[Tensor, list[Access]]]:
    read: dict[Tensor, list[Access]] = {}
    written: dict[Tensor, list[Access]] = {}
    for op in ops_of(body):
        for a in op.tiles_read():
            read.setdefault(a.tensor.storage, []).append(a)
        for a in op.writes:
            written.setdefault(a.tensor.storage, []).append(a)
    return read, written


def _depends(before: list[Node], after: list[Node]) -> bool:
    """Whether `after` must not move before `before`."""
    read_a, written_a = _tensors(before)
    read_b, written_b = _tensors(after)
    return bool(written_a.keys() & (read_b.keys() | written_b.keys()) or read_a.keys() & written_b.keys())


def _related(a: Nest, b: Nest) -> bool:
    """Whether one uses what the other makes, or both load or transpose the same tiles."""
    _, written_a = _tensors(a.body)
    read_b, _ = _tensors(b.body)
    if written_a.keys() & read_b.keys():
        return True
    sources_a, sources_b = _shareable(a.body), _shareable(b.body)
    return any(
        _pattern(x, a.var) == _pattern(y, b.var)
        for t in sources_a.keys() & sources_b.keys()
        for x in sources_a[t]
        for y in sources_b[t]
    )


def _shareable(body: list[Node]) -> dict[Tensor, list[Access]]:
    """What the loads and transposes under a body read."""
    found: dict[Tensor, list[Access]] = {}
    for op in ops_of(body):
        if op.kind is Kind.TRANSPOSE or (op.transfer is not None and op.transfer.hbm_read):
            found.setdefault(op.reads[0].tensor.storage, []).append(op.reads[0])
    return found


def _same_iteration(a: Nest, b: Nest) -> bool:
    """Whether every dependence between the loops stays within equal iterations."""
    read_a, written_a = _tensors(a.body)
    read_b, written_b = _tensors(b.body)
    moving = _loops(a.body) | _loops(b.body)
    pairs = [(written_a, read_b), (written_a, written_b), (read_a, written_b)]
    for left, right in pairs:
        for tensor in left.keys() & right.keys():
            patterns = {_pattern(x, a.var) for x in left[tensor]} | {
                _pattern(y, b.var) for y in right[tensor]
            }
            if len(patterns) != 1 or not any(patterns.pop()):
                return False
            accesses = [*left[tensor], *right[tensor]]
            if len({access.tensor.shape for access in accesses}) > 1:
                return False
            if not disjoint(accesses, {a.var, b.var}, moving):
                return False
    return True


def _loops(body: list[Node]) -> set[LoopVar]:
    """Variables of all loops under a body."""
    found: set[LoopVar] = set()
    for node in body:
        if isinstance(node, Nest):
            found |= {node.var} | _loops(node.body)
    return found


def _pattern(access: Access, var: LoopVar) -> tuple[int, ...]:
    return tuple(e.coefficient(var) if isinstance(e, Affine) else 0 for e in access.index)


def _join(program: Program, body: list[Node], k: int, j: int) -> None:
    first, second = body[k], body[j]
    assert isinstance(first, Nest) and isinstance(second, Nest)
    substitute(second.body, {second.var: Affine.of(first.var)}, {second.var: first.var})
    program.merged[second.var] = first.var
    ahead: list[Node] = []
    held: list[Node] = []
    for node in body[k + 1 : j]:
        (held if _depends([first, *held], [node]) else ahead).append(node)
    joined = list(first.body)
    boundary = len(joined)
    joined.extend(second.body)
    first.body = joined
    _share(program, joined, boundary)
    body[k : j + 1] = [*ahead, first, *held]


def _share(program: Program, body: list[Node], boundary: int) -> None:
    """Drop ops of the second part that do what one of the first part already did."""
    known: dict[tuple[object, ...], Op] = {}
    for node in body[:boundary]:
        if isinstance(node, Op) and (key := _key(node)) is not None:
            known.setdefault(key, node)
        _forget_changed(known, node)
    k = boundary
    while k < len(body):
        node = body[k]
        if isinstance(node, Op) and (key := _key(node)) is not None and key in known:
            twin = known[key]
            old, new = node.writes[0], twin.writes[0]
            if (
                old.index == new.index
                and old.tensor.shape == new.tensor.shape
                and old.tensor.buffer == new.tensor.buffer
            ):
                del body[k]
                _rename(program.body, old.tensor, new.tensor)
                continue
        _forget_changed(known, node)
        k += 1


def _forget_changed(known: dict[tuple[object, ...], Op], node: Node) -> None:
    """Drop what is no longer there to be shared: its source or its result has been written since."""
    ops = ops_of([node])
    written = {access.tensor.storage for op in ops for access in op.writes}
    for key, op in list(known.items()):
        sources = {access.tensor.storage for access in op.tiles_read()}
        if sources & written or op not in ops and op.writes[0].tensor.storage in written:
            del known[key]


def _key(op: Op) -> tuple[object, ...] | None:
    pure = op.kind in (Kind.TRANSPOSE, Kind.COPY) or (op.transfer is not None and op.transfer.hbm_read)
    if not pure or op.accumulates or op.hidden or op.mask:
        return None
    return (op.kind, op.reads, op.side_reads, op.elements, tuple(w.shape for w in op.writes))


def _rename(body: list[Node], old: Tensor, new: Tensor) -> None:
    for op in ops_of(body):
        map_accesses(op, lambda a: Access(new, a.index, a.shape) if a.tensor is old else a)
