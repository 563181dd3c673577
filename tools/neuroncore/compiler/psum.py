"""Results that go to, or are taken from, free PSUM banks.

Two rules, each over-determined by byte counters:

* A result of at most one bank that a single TENSOR_TENSOR consumes in the same loop body is written to PSUM if it does
  not come from a TENSOR_TENSOR itself and its partner is a computed value without other users (an accumulator counts);
  one operand per TENSOR_TENSOR. Exact: adamw 3 of 9, gqa and bmm_softmax 8192 partial reductions, rmsnorm 64, silu,
  swiglu, rope, mamba and lora none. It halves the time of that TENSOR_TENSOR.
* A plain PSUM to SBUF copy followed in the same body by another reader: the reader takes the PSUM original
  (bmm_softmax's maximum, 4055 of 4096; not where the copy computes something, as gqa's scaling does, nor where copy
  and reader come from different source loops, as in swiglu).
"""

from __future__ import annotations

from ..ir import Access, Buffer, Tensor
from ..machine import Machine
from .liveness import Lifetime, Use, lifetimes
from .program import Engine, Kind, Nest, Node, Op, Program
from .rewriting import map_accesses


def place_in_psum(program: Program, machine: Machine) -> None:
    """Apply both rules."""
    _forward_originals(program.body)
    lives = lifetimes(program)
    bank = int(machine.psum_bank_bytes)
    moved: dict[Tensor, Tensor] = {}
    for op, _ in program.walk():
        if op.kind is Kind.TENSOR_TENSOR and op.engine is Engine.VECTOR:
            _consider_pair(op, lives, bank, moved)
        elif (
            op.label == "loop_reduce" and op.kind is Kind.REDUCE and op.reads[0].tensor.buffer is Buffer.SBUF
        ):
            tensor = op.reads[0].tensor
            if tensor in lives and len(lives[tensor].readers) == 1:
                moved[tensor] = _in_psum(tensor)
    for op, _ in program.walk():
        map_accesses(op, lambda a: Access(moved[a.tensor], a.index, a.shape) if a.tensor in moved else a)


def _consider_pair(op: Op, lives: dict[Tensor, Lifetime], bank: int, moved: dict[Tensor, Tensor]) -> None:
    operands = [*op.reads, *((op.writes[0],) if op.accumulates else ())]
    if len(operands) != 2 or any(a.tensor.buffer is not Buffer.SBUF or a.tensor in moved for a in operands):
        return
    if op.accumulates and op.reads and op.reads[0].tensor is op.writes[0].tensor:
        return
    for candidate, partner in ((operands[0], operands[1]), (operands[1], operands[0])):
        if op.accumulates and candidate is operands[1]:
            continue
        made = _single_use(candidate, lives, op)
        if made is None or made.op.kind in (Kind.TENSOR_TENSOR, Kind.MEMSET, Kind.DMA, Kind.SCAN):
            continue
        if candidate.tensor.free_bytes_per_partition > bank:
            continue
        if made.op.engine not in (Engine.SCALAR, Engine.VECTOR):
            continue
        accumulator = op.accumulates and partner is operands[1]
        if accumulator or _computed_once(partner, lives, op):
            moved[candidate.tensor] = _in_psum(candidate.tensor)
            return


def _single_use(access: Access, lives: dict[Tensor, Lifetime], reader: Op) -> Use | None:
    """The one write of a tensor that only `reader` reads, in the reader's own loop body."""
    life = lives.get(access.tensor)
    if life is None or len(life.writers) != 1 or len(life.readers) != 1:
        return None
    made, used = life.writers[0], life.readers[0]
    return made if made.loops == used.loops and not made.op.once and used.op is reader else None


def _computed_once(access: Access, lives: dict[Tensor, Lifetime], reader: Op) -> bool:
    life = lives.get(access.tensor)
    if life is None or any(u.op is not reader for u in life.readers):
        return False
    return all(w.op.kind is not Kind.DMA for w in life.writers) and bool(life.writers)


def _in_psum(tensor: Tensor) -> Tensor:
    return Tensor(
        tensor.name, tensor.shape, tensor.dtype, Buffer.PSUM, par_dim=tensor.par_dim, kind=tensor.kind,
        scope=tensor.scope, declared=tensor.declared, line=tensor.line,
    )  # fmt: skip


def _forward_originals(body: list[Node]) -> None:
    copies: dict[Access, tuple[Access, int]] = {}
    for node in body:
        if isinstance(node, Nest):
            _forward_originals(node.body)
            continue
        if node.engine in (Engine.VECTOR, Engine.SCALAR) and copies:
            node.reads = tuple(
                copies[a][0] if a in copies and copies[a][1] == node.home else a for a in node.reads
            )
        for written in node.writes:
            copies = {k: v for k, v in copies.items() if written.tensor not in (k.tensor, v[0].tensor)}
        plain = node.kind is Kind.COPY and not node.mask and len(node.reads) == 1
        if (
            plain
            and node.reads[0].tensor.buffer is Buffer.PSUM
            and node.writes[0].tensor.buffer is Buffer.SBUF
        ):
            copies[node.writes[0]] = (node.reads[0], node.home)
