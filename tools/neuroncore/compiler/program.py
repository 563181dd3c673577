"""The hardware program: what the compiler model turns a kernel into, and what the execution model runs.

The same loops as the kernel's, kept symbolic, with hardware instructions (`Op`) in place of API calls: one per engine
instruction or DMA. Compiler passes move and rewrite these nodes; the numbers that a profile counts (bytes, FLOPs) and
that an engine takes (elements, cycles) follow from an op's fields and are computed in one place each, `counters.py`
and `timing/costs.py`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from ..ir import Access, Affine, Kernel, LoopKind, LoopVar, Tensor


class Engine(enum.StrEnum):
    """The five engines of a NeuronCore, and the DMA queues taken together."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    DMA = "dma"


class Kind(enum.StrEnum):
    """Hardware instructions, as far as their cost or their counters differ."""

    MATMUL = "MATMUL"
    TRANSPOSE = "TRANSPOSE"
    BROADCAST = "BROADCAST"
    ACTIVATE = "ACTIVATE"
    COPY = "COPY"
    TENSOR_SCALAR = "TENSOR_SCALAR"
    TENSOR_TENSOR = "TENSOR_TENSOR"
    SELECT = "SELECT"
    SCAN = "SCAN"
    REDUCE = "REDUCE"
    RECIPROCAL = "RECIPROCAL"
    MEMSET = "MEMSET"
    VECTOR_MISC = "VECTOR_MISC"
    GPSIMD_MISC = "GPSIMD_MISC"
    DMA = "DMA"


UNCOUNTED = frozenset({Kind.TENSOR_TENSOR, Kind.SCAN, Kind.MEMSET, Kind.SELECT})
"""Instructions whose engine traffic neuron-profile leaves out of the SBUF and PSUM byte counters (exact on silu,
adamw and mamba)."""


class Role(enum.StrEnum):
    """Why a DMA exists."""

    LOAD = "load"
    STORE = "store"
    COPY = "copy"
    SAVE = "spill save"
    RELOAD = "spill reload"


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """The shape of a DMA.

    Attributes:
        role: load, store, copy, save or reload.
        rows: partitions (or HBM rows) it touches.
        pieces_per_row: contiguous pieces in each row.
        piece_bytes: bytes of one contiguous piece.
        elementwise: pieces are single elements (a transposing or strided transfer).
        hbm_read: reads HBM.
        hbm_write: writes HBM.
        scratch: the HBM side is the kernel's own scratch tensor or the compiler's spill area: counted as spill.
        indirect: every piece lies at a position that is read at run time, so that each has a descriptor of its own.
    """

    role: Role
    rows: int
    pieces_per_row: int
    piece_bytes: int
    elementwise: bool = False
    hbm_read: bool = False
    hbm_write: bool = False
    scratch: bool = False
    indirect: bool = False

    @property
    def nbytes(self) -> int:
        """All bytes moved."""
        return self.rows * self.pieces_per_row * self.piece_bytes


@dataclasses.dataclass(eq=False, slots=True)
class Op:
    """One hardware instruction inside its loops.

    Attributes:
        kind: instruction.
        engine: where it runs.
        label: name shown in timelines, from the API call.
        line: line in the kernel's source.
        writes: tiles written; `writes[0]` is the main result.
        reads: tiles read whose traffic counts.
        side_reads: [P, 1] scale, bias and scalar operands: dependences whose traffic is not counted.
        elements: elements per partition that the engine walks through.
        per_element: cycles per element where the instruction fixes them (None: by kind and operands).
        extra_cycles: cycles added once.
        passes: LoadStationary and MultiplyMoving pairs of a matmul.
        rows_contracted: partitions of a matmul's operands (K).
        stationary_columns: free size of the stationary operand (M).
        stationary_resident: the stationary operand is the same for every execution, so it is loaded once.
        accumulates: adds to what PSUM holds.
        transfer: of a DMA.
        mask: conditions over loop variables and the axes of `mask_shape`.
        mask_shape: extents of the masked axes; the first is the partition axis.
        once: executed only in the first iteration of these loops (hoisted out of them).
        after_first: skipped in the joint first iteration of these loops.
        last_of: executed only in the joint last iteration of these loops.
        share: fraction of the executions that really happen (spills of what does not fit).
        hidden: part of an API call that the compiler expands late (nl.matmul's transposes): never hoisted.
        source: the API call.
        home: number of the loop body that the source wrote it in; fused bodies hold ops of several.
        operations: of a tensor_scalar: ALU operations that it does.
        varies: loops in whose iterations it does something else even to the same tiles: an iota, a predicate or addresses
            of their indices, random numbers.
    """

    kind: Kind
    engine: Engine
    label: str
    line: int
    writes: tuple[Access, ...] = ()
    reads: tuple[Access, ...] = ()
    side_reads: tuple[Access, ...] = ()
    elements: int = 1
    per_element: float | None = None
    extra_cycles: float = 0.0
    passes: int = 1
    rows_contracted: int = 128
    stationary_columns: int = 128
    stationary_resident: bool = False
    accumulates: bool = False
    transfer: Transfer | None = None
    mask: tuple[Affine, ...] = ()
    mask_shape: tuple[int, ...] = ()
    once: frozenset[LoopVar] = frozenset()
    after_first: tuple[LoopVar, ...] = ()
    last_of: tuple[LoopVar, ...] = ()
    share: float = 1.0
    hidden: bool = False
    source: str = ""
    home: int = 0
    operations: int = 1
    varies: frozenset[LoopVar] = frozenset()

    def tiles_read(self) -> tuple[Access, ...]:
        """Every tile the op depends on, what it accumulates onto included."""
        own = self.writes[:1] if self.accumulates else ()
        return (*self.reads, *self.side_reads, *own)


@dataclasses.dataclass(eq=False, slots=True)
class Nest:
    """A counted loop around nodes."""

    var: LoopVar
    kind: LoopKind
    body: list[Node]
    line: int = 0

    @property
    def trips(self) -> int:
        """Iteration count."""
        return self.var.trips


Node = Op | Nest


@dataclasses.dataclass(eq=False, slots=True)
class Program:
    """A compiled kernel.

    Attributes:
        kernel: where it came from.
        body: top-level nodes.
        notes: what the passes decided, one line each, for people.
        kept: bytes per partition that stay in SBUF of tensors that leave it in part.
        merged: loops that became one with an earlier one, by their variables.
    """

    kernel: Kernel
    body: list[Node]
    notes: list[str] = dataclasses.field(default_factory=list)
    kept: dict[Tensor, float] = dataclasses.field(default_factory=dict)
    merged: dict[LoopVar, LoopVar] = dataclasses.field(default_factory=dict)

    def walk(self) -> Iterator[tuple[Op, tuple[Nest, ...]]]:
        """Every op in program order with the loops around it, outermost first."""
        yield from walk(self.body)


def walk(body: list[Node], loops: tuple[Nest, ...] = ()) -> Iterator[tuple[Op, tuple[Nest, ...]]]:
    """Every op under `body` in program order with the loops around it."""
    for node in body:
        if isinstance(node, Nest):
            yield from walk(node.body, (*loops, node))
        else:
            yield node, loops


def executions(op: Op, loops: tuple[Nest, ...]) -> float:
    """How often an op runs, spill shares included, masks not."""
    count = 1
    for nest in loops:
        if nest.var not in op.once and nest.var not in op.last_of:
            count *= nest.trips
    if op.after_first:
        inside = {nest.var for nest in loops}
        skipped = 1
        for nest in loops:
            if nest.var not in op.after_first and nest.var not in op.once:
                skipped *= nest.trips
        if all(var in inside for var in op.after_first):
            count -= skipped
    return count * op.share


def unique_free(access: Access) -> int:
    """Elements per partition that an access really touches: axes that only repeat count once."""
    repeated = set(access.broadcast_axes())
    size = 1
    for axis, extent in enumerate(access.shape):
        if axis > 0 and axis not in repeated:
            size *= extent
    return size
