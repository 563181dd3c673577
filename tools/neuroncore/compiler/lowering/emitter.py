"""What all lowerings share: where instructions go, and how operands reach the engines.

Engines cannot read a tile that repeats over partitions, nor compute with operands or into results on other partitions
than the first operand's. Both cost instructions of their own, which are made here: a ones-matmul for the one, a copy for
the other. A tensor of at most half the partitions may lie in either half: the compiler puts it where it is first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...contents import Contents
from ...ir import Access, Affine, Buffer, Instr, Kernel, Loop, LoopKind, LoopVar, Tensor, TensorKind
from ...machine import Machine
from ..program import Engine, Kind, Nest, Node, Op, unique_free

ENGINES = {
    "vector": Engine.VECTOR,
    "scalar": Engine.SCALAR,
    "act": Engine.SCALAR,
    "gpsimd": Engine.GPSIMD,
    "pool": Engine.GPSIMD,
    "tensor": Engine.TENSOR,
    "pe": Engine.TENSOR,
}
"""Engines by the names that kernels use."""

_LANE_BOUND = frozenset(
    {
        Kind.TENSOR_TENSOR,
        Kind.TENSOR_SCALAR,
        Kind.SCAN,
        Kind.SELECT,
        Kind.RECIPROCAL,
        Kind.REDUCE,
        Kind.ACTIVATE,
    }
)
"""Instructions that compute, lane by lane; plain copies can move between partitions by themselves."""

_TWO_TILES = frozenset({Kind.TENSOR_TENSOR, Kind.SCAN, Kind.SELECT})
"""Instructions of two tiles, not both in PSUM (`nki.isa.tensor_tensor`)."""

_TENSOR_ENGINE_CALLS = frozenset({"matmul", "nc_matmul", "nc_matmul_mx", "transpose", "nc_transpose"})
"""Calls whose results in PSUM need no zero fill."""

_RANDOM = frozenset({"nl.rand", "nl.dropout", "nisa.dropout", "nisa.rng"})
"""Calls whose result is another one every time."""

_VECTOR_FREE = 512
"""Columns of one ones-matmul: a PSUM bank of fp32 (`nl.tile_size.psum_fmax`)."""


class Emitter:
    """State of one lowering: where ops are emitted, the temporaries made, on which partitions small tensors lie."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        """Look over the kernel: which HBM tensors are scratch, which PSUM tensors matmuls fill."""
        self.kernel = kernel
        self.machine = machine
        self.contents = Contents(kernel)
        self.places: dict[Tensor, Affine] = {}
        self.out: list[Node] = []
        self.instr: Instr | None = None
        self.counter = 0
        self.identity_needed = False
        self.loop: Loop | None = None
        self.loops: tuple[Loop, ...] = ()
        self.home = 0
        self.homes = 0
        outputs = {t.storage for t in kernel.outputs}
        self.scratch = {
            t.storage
            for t in kernel.tensors()
            if not t.buffer.on_chip and t.storage.kind is TensorKind.LOCAL and t.storage not in outputs
        }
        self.matmul_results = {
            i.dst.tensor
            for i, _ in kernel.walk()
            if i.dst.tensor.buffer is Buffer.PSUM and i.op.rpartition(".")[2] in _TENSOR_ENGINE_CALLS
        }

    def emit(self, kind: Kind, engine: Engine, dst: Access, reads: list[Access], **fields: Any) -> Op:
        """Append an op of the current call; masks of the call apply unless `mask=()` is given."""
        assert self.instr is not None
        name = self.instr.op
        fields.setdefault("mask", self.instr.mask)
        fields.setdefault("mask_shape", self.instr.mask_space)
        fields.setdefault("varies", _moving(self.instr, self.loops))
        fields["side_reads"] = tuple(dict.fromkeys((*fields.pop("side_reads", ()), *indices_of(dst, *reads))))
        fields.setdefault("elements", max([free_elements(dst), *(free_elements(r) for r in reads)]))
        if kind in _TWO_TILES:
            reads = self._one_from_psum(dst, reads, bool(fields.get("accumulates")))
        if kind in _LANE_BOUND and dst.tensor.buffer.on_chip:
            lanes = self._lanes(dst, reads)
            reads = [self._beside(r, lanes) if r.shape[0] == dst.shape[0] else r for r in reads]
            if not self._on(dst, lanes):
                # The result lands on the operands' partitions, and one copy moves it (rope's lower half).
                assert lanes is not None
                beside = self.temp(dst.shape, dst.dtype)
                self.places[beside.tensor] = lanes
                op = self.emit(kind, engine, beside, reads, **fields)
                self.emit(Kind.COPY, Engine.SCALAR, dst, [beside], label="lane shift")
                return op
        op = Op(
            kind=kind,
            engine=engine,
            label=fields.pop("label", name.rpartition(".")[2]),
            line=self.instr.line,
            writes=(dst, *fields.pop("more_writes", ())),
            reads=tuple(reads),
            source=name,
            home=self.home,
            **fields,
        )
        self.out.append(op)
        return op

    def _one_from_psum(self, dst: Access, reads: list[Access], accumulates: bool) -> list[Access]:
        """Operands of which at most one is in PSUM, which VectorE reads through one port; others are copied first."""
        taken = accumulates and dst.tensor.buffer is Buffer.PSUM
        found = []
        for access in reads:
            if access.tensor.buffer is Buffer.PSUM and taken:
                copied = self.temp(access.shape, access.dtype)
                self.emit(Kind.COPY, Engine.SCALAR, copied, [access], label="copy")
                access = copied
            taken = taken or access.tensor.buffer is Buffer.PSUM
            found.append(access)
        return found

    # -- lanes ----------------------------------------------------------------------------------------------------------

    def _lanes(self, dst: Access, reads: list[Access]) -> Affine | None:
        """The first partition on which an instruction works: that of its first operand which has a place."""
        sides = [r for r in reads if r.tensor.buffer.on_chip and r.shape[0] == dst.shape[0]]
        starts = [start for a in (*sides, dst) if (start := self._start(a)) is not None]
        return starts[0] if starts and sides else None

    def _start(self, access: Access) -> Affine | None:
        """First partition of an on-chip tile; None while the compiler may still choose it."""
        expression = access.index[access.tensor.par_dim]
        if not isinstance(expression, Affine):
            return None
        along = Affine.of(0, expression.coefficient(0))
        place = self.places.get(access.tensor)
        if place is None:
            if access.tensor.shape[access.tensor.par_dim] <= int(self.machine.partitions) // 2:
                return None
            place = Affine(0)
        return expression - along + place

    def _on(self, access: Access, lanes: Affine | None) -> bool:
        """Whether a tile is on these lanes; one without a place yet is put there."""
        expression = access.index[access.tensor.par_dim]
        if lanes is None or not access.tensor.buffer.on_chip or not isinstance(expression, Affine):
            return True
        start = self._start(access)
        if start is None:
            self.places[access.tensor] = lanes - (expression - Affine.of(0, expression.coefficient(0)))
            return True
        return start == lanes

    def _beside(self, access: Access, lanes: Affine | None) -> Access:
        """An operand on the lanes of the others: a copy of it, if it is elsewhere."""
        if self._on(access, lanes):
            return access
        assert lanes is not None
        copied = self.temp(access.shape, access.dtype)
        self.places[copied.tensor] = lanes
        self.emit(Kind.COPY, Engine.SCALAR, copied, [access], label="lane shift")
        return copied

    def temp(self, shape: tuple[int, ...], dtype: np.dtype[Any], buffer: Buffer = Buffer.SBUF) -> Access:
        """A compiler temporary, as the access to all of it."""
        self.counter += 1
        line = self.instr.line if self.instr else 0
        return Tensor(f"tmp{self.counter}", shape, dtype, buffer, scope=self.loop, line=line).whole()

    def tile(self, instr: Instr, *names: str) -> Access:
        """The first tile operand among the names, else the first tile operand at all, else the destination."""
        for n in names:
            value = instr.args.get(n)
            if isinstance(value, Access):
                return value
        for value in instr.args.values():
            if isinstance(value, Access):
                return value
        return instr.dst

    def nest(self, var: LoopVar, fill: Callable[[], Any]) -> None:
        """Emit a compiler-made loop around what `fill` emits."""
        saved, self.out = self.out, []
        fill()
        inner, self.out = self.out, saved
        self.out.append(Nest(var, LoopKind.AFFINE, inner, self.instr.line if self.instr else 0))

    def spread(self, access: Access, partitions: int) -> Access:
        """The operand as engines can read it: one that repeats over partitions goes through a ones-matmul.

        A [1, F] row becomes one single-pass matmul per 512 columns; results wider than a PSUM bank are evicted to
        SBUF chunk by chunk by ScalarE, narrower ones are read from PSUM (mamba's and the rmsnorm kernels' counters).
        """
        if partitions <= 1 or not access.tensor.buffer.on_chip:
            return access
        uses_axis0 = access.shape[0] == partitions and 0 not in access.broadcast_axes()
        if uses_axis0:
            return access
        row = Access(access.tensor, tuple(access.index), (1, *access.shape[1:]))
        free_axes = [
            k for k in range(1, len(row.shape)) if row.shape[k] > 1 and k not in row.broadcast_axes()
        ]
        columns = unique_free(row)
        passes = 1
        fields: dict[str, Any] = dict(
            passes=passes, rows_contracted=1, stationary_columns=partitions, stationary_resident=True, mask=()
        )
        if columns <= _VECTOR_FREE or len(free_axes) != 1:
            where = Buffer.PSUM if columns <= _VECTOR_FREE else Buffer.SBUF
            shape = (partitions, *access.shape[1:])
            result = self.temp(shape, np.dtype(np.float32), where)
            if where is Buffer.PSUM:
                self.emit(Kind.BROADCAST, Engine.TENSOR, result, [row], elements=columns, **fields)
                return result
            # several free axes: the same work in chunks, without following which chunk is which
            chunk = LoopVar("chunk", math.ceil(columns / _VECTOR_FREE))
            bank = self.temp((partitions, _VECTOR_FREE), np.dtype(np.float32), Buffer.PSUM)
            self.nest(
                chunk,
                lambda: (
                    self.emit(Kind.BROADCAST, Engine.TENSOR, bank, [row], elements=_VECTOR_FREE, **fields),
                    self.emit(Kind.COPY, Engine.SCALAR, result, [bank], elements=_VECTOR_FREE, mask=()),
                ),
            )
            return result
        axis = free_axes[0]
        width = math.gcd(columns, _VECTOR_FREE) if columns % _VECTOR_FREE else _VECTOR_FREE
        if width < _VECTOR_FREE // 2:
            width = _VECTOR_FREE
        chunk = LoopVar("chunk", math.ceil(columns / width))
        shape = tuple(partitions if k == 0 else columns if k == axis else 1 for k in range(len(row.shape)))
        result = self.temp(shape, access.dtype)
        bank_shape = tuple(partitions if k == 0 else width if k == axis else 1 for k in range(len(row.shape)))
        bank = self.temp(bank_shape, np.dtype(np.float32), Buffer.PSUM)
        shift: Mapping[LoopVar | int, Affine | int] = {axis: Affine(0, {axis: 1, chunk: width})}
        row_chunk = Access(
            row.tensor,
            row.substitute(shift).index,
            tuple(width if k == axis else 1 for k in range(len(row.shape))),
        )
        out_chunk = Access(result.tensor, result.substitute(shift).index, bank_shape)
        self.nest(
            chunk,
            lambda: (
                self.emit(Kind.BROADCAST, Engine.TENSOR, bank, [row_chunk], elements=width, **fields),
                self.emit(Kind.COPY, Engine.SCALAR, out_chunk, [bank], elements=width, mask=()),
            ),
        )
        return result


def _moving(instr: Instr, loops: tuple[Loop, ...]) -> frozenset[LoopVar]:
    """Loops in which an instruction does something else every time, whatever its tiles: patterns, random numbers."""
    if instr.op in _RANDOM:
        return frozenset(loop.var for loop in loops)
    found: set[LoopVar] = set()
    for value in instr.attrs.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Affine):
                found.update(item.loops())
    return frozenset(found)


def indices_of(*accesses: Access) -> tuple[Access, ...]:
    """Index tiles of indirect accesses."""
    return tuple(e.tile for a in accesses for e in a.index if not isinstance(e, Affine))


def free_elements(access: Access) -> int:
    """Elements per partition, repeated axes included."""
    return access.free_size


def tiles_of(instr: Instr, *names: str) -> tuple[Access, ...]:
    """The tile operands among the named ones."""
    return tuple(a for n in names if isinstance(a := instr.args.get(n), Access))
