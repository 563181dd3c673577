"""API calls to hardware instructions.

Each call becomes the instructions that the counters of the fourteen published trn1 profiles show for it: no fusion
beyond what a call says, small composites spelled out, partition broadcasts as ones-matmuls, `nl.matmul`'s transposes
in place. Sources: the API tables of `nki.isa` and `nki.language` (SDK 2.26) for engines and shapes; byte counters of
the profiles for everything the documents leave to the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ir import Access, Affine, Buffer, Instr, Kernel, Loop, LoopKind, LoopVar, Operand, Tensor, TensorKind
from ..machine import Machine
from .program import Engine, Kind, Nest, Node, Op, Program, Role, Transfer, unique_free
from .transfers import cut

ACTIVATIONS = frozenset(
    "exp log sin tan tanh arctan sqrt rsqrt sigmoid relu silu silu_dx gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx erf erf_dx mish softplus square sign abs copy identity".split()
)
"""Unary functions that are one ScalarE ACTIVATE (`nki.language` activation table)."""

SCALAR_ENGINE_ALU = frozenset({"add", "subtract", "multiply", "divide", "copy", None})
"""ALU operations that ScalarE's scale and bias can do; the rest of tensor_scalar stays on VectorE."""

GPSIMD_ALU = frozenset({"power", "mod", "fmod", "floor_divide"})
"""ALU operations that only GpSimd has (ALU table of `nki.isa`), with 32-bit integer arithmetic."""

BINARY = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod floor_divide equal not_equal greater greater_equal "
    "less less_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift "
    "arctan2".split()
)
REDUCTIONS = frozenset("sum max min prod all any".split())

_ENGINES = {
    "vector": Engine.VECTOR,
    "scalar": Engine.SCALAR,
    "act": Engine.SCALAR,
    "gpsimd": Engine.GPSIMD,
    "pool": Engine.GPSIMD,
    "tensor": Engine.TENSOR,
    "pe": Engine.TENSOR,
}

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
"""Instructions that compute; plain copies can move between partitions by themselves."""

_TENSOR_ENGINE_CALLS = frozenset({"matmul", "nc_matmul", "nc_matmul_mx", "transpose", "nc_transpose"})

_VECTOR_FREE = 512
"""Columns of one ones-matmul: a PSUM bank of fp32 (`nl.tile_size.psum_fmax`)."""


def lower(kernel: Kernel, machine: Machine) -> Program:
    """The program in source order, before any pass."""
    return _Lowering(kernel, machine).run()


class _Lowering:
    """State of one lowering: where ops are emitted and the temporaries made."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.kernel = kernel
        self.machine = machine
        self.out: list[Node] = []
        self.instr: Instr | None = None
        self.counter = 0
        self.identity_needed = False
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

    def run(self) -> Program:
        body = self.body(self.kernel.body)
        if self.identity_needed:
            body.insert(0, self.identity())
        return Program(self.kernel, body)

    def identity(self) -> Op:
        """The 64 KiB constant that transposes multiply with, loaded once (exact in both hand-written rmsnorm kernels)."""
        f32, size = np.dtype(np.float32), int(self.machine.partitions)
        constant = Tensor("identity", (size, size), f32, Buffer.HBM, kind=TensorKind.CONSTANT).whole()
        tile = Tensor("identity_tile", (size, size), f32, Buffer.SBUF).whole()
        transfer = Transfer(Role.LOAD, size, 1, size * 4, hbm_read=True)
        return Op(
            Kind.DMA,
            Engine.DMA,
            "load",
            0,
            (tile,),
            (constant,),
            elements=size,
            transfer=transfer,
            source="identity",
        )

    def body(self, nodes: list[Any]) -> list[Node]:
        saved, self.out = self.out, []
        home = self.home
        for node in nodes:
            self.home = home
            if isinstance(node, Loop):
                self.homes += 1
                self.home = self.homes
                inner = self.body(node.body)
                if inner and node.trips > 0:
                    self.out.append(Nest(node.var, node.kind, inner, node.line))
            else:
                self.lower(node)
        self.home = home
        result, self.out = self.out, saved
        return result

    # -- emitting ---------------------------------------------------------------------------------------------------

    def emit(self, kind: Kind, engine: Engine, dst: Access, reads: list[Access], **fields: Any) -> Op:
        """Append an op of the current call; masks of the call apply unless `mask=()` is given."""
        assert self.instr is not None
        name = self.instr.op
        fields.setdefault("mask", self.instr.mask)
        fields.setdefault("mask_shape", self.instr.mask_space)
        fields.setdefault("elements", max([_free(dst), *(_free(r) for r in reads)]))
        if kind in _LANE_BOUND and _shifts_lanes(dst, reads):
            # Lanes are fixed: the result lands on the operands' partitions and one copy moves it (rope's lower half).
            beside = self.temp(dst.shape, dst.dtype)
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

    def temp(self, shape: tuple[int, ...], dtype: np.dtype[Any], buffer: Buffer = Buffer.SBUF) -> Access:
        """A compiler temporary, as the access to all of it."""
        self.counter += 1
        line = self.instr.line if self.instr else 0
        return Tensor(f"tmp{self.counter}", shape, dtype, buffer, line=line).whole()

    # -- dispatch ---------------------------------------------------------------------------------------------------

    def lower(self, instr: Instr) -> None:
        self.instr = instr
        name = instr.op.rpartition(".")[2]
        handler = getattr(self, f"op_{name}", None)
        if handler is not None:
            handler(instr)
        elif instr.op.startswith("nl.") and name in BINARY:
            self.binary(name, instr.args.get("x"), instr.args.get("y"), instr.dst)
        elif name in REDUCTIONS:
            self.reduce(self.tile(instr, "x", "data"), instr.dst, label=name)
        elif name in ACTIVATIONS:
            self.activate(self.tile(instr, "x", "data"), instr.dst, label=name)
        else:
            self.generic(instr)

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

    def generic(self, instr: Instr) -> None:
        """An instruction without a documented cost: one VectorE pass of N cycles per tile operand."""
        reads = [a for a in instr.args.values() if isinstance(a, Access)]
        if not instr.dst.tensor.buffer.on_chip or any(not r.tensor.buffer.on_chip for r in reads):
            self.dma(instr.dst, reads[0] if reads else instr.dst)
            return
        for extra in instr.dsts[1:]:
            reads.append(extra)
        self.emit(Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, reads, per_element=float(max(1, len(reads))))

    # -- DMA --------------------------------------------------------------------------------------------------------

    def dma(self, dst: Access, src: Access, elementwise: bool = False) -> None:
        """A transfer between any two memories; PSUM has no DMA port, so its side goes through a copy."""
        if src.tensor.buffer is Buffer.PSUM:
            staged = self.temp(src.shape, src.dtype)
            self.copy(src, staged)
            src = staged
        if dst.tensor.buffer is Buffer.PSUM:
            staged = self.temp(dst.shape, dst.dtype)
            self.dma(staged, src, elementwise)
            self.copy(staged, dst)
            return
        src_hbm, dst_hbm = not src.tensor.buffer.on_chip, not dst.tensor.buffer.on_chip
        if src_hbm and dst_hbm:
            role, (rows, pieces, size, single) = Role.COPY, cut(src, None)
            _, pieces_to, size_to, single_to = cut(dst, None)
            if pieces_to > pieces:
                pieces, size, single = pieces_to, size_to, single_to
        elif src_hbm:
            role, (rows, pieces, size, single) = Role.LOAD, cut(src, dst)
        elif dst_hbm:
            role, (rows, pieces, size, single) = Role.STORE, cut(dst, src)
        else:
            role, rows, pieces, size, single = (
                Role.COPY,
                src.shape[0],
                1,
                _free(src) * src.dtype.itemsize,
                False,
            )
        if elementwise:
            # A transposing transfer gathers single elements, whatever the pattern on the other side.
            side = src if src_hbm else dst
            rows, pieces, size, single = side.shape[0], _free(side), side.dtype.itemsize, True
        scratch = src.tensor.storage in self.scratch or dst.tensor.storage in self.scratch
        transfer = Transfer(role, rows, pieces, size, single, src_hbm, dst_hbm, scratch)
        # tile axes of an HBM destination are those of the call, so its mask applies unchanged
        self.emit(
            Kind.DMA,
            Engine.DMA,
            dst,
            [src],
            transfer=transfer,
            elements=_free(src),
            side_reads=_indices(src, dst),
        )

    def op_load(self, instr: Instr) -> None:
        self.dma(instr.dst, self.tile(instr, "src"))

    def op_store(self, instr: Instr) -> None:
        value = instr.args.get("value")
        if isinstance(value, Access):
            self.dma(instr.dst, value)
        else:
            filled = self.temp(instr.dst.shape, instr.dst.dtype)
            self.emit(Kind.MEMSET, Engine.VECTOR, filled, [])
            self.dma(instr.dst, filled)

    def op_dma_copy(self, instr: Instr) -> None:
        self.dma(instr.dst, self.tile(instr, "src"))

    def op_load_transpose2d(self, instr: Instr) -> None:
        self.dma(instr.dst, self.tile(instr, "src"), elementwise=True)

    op_dma_transpose = op_load_transpose2d

    def op_atomic_rmw(self, instr: Instr) -> None:
        """HBM read-modify-write: a read and a write of the same rows."""
        value = self.tile(instr, "value")
        old = self.temp(value.shape, value.dtype)
        self.dma(old, instr.dst)
        total = self.temp(value.shape, value.dtype)
        self.emit(Kind.TENSOR_TENSOR, Engine.VECTOR, total, [old, value])
        self.dma(instr.dst, total)

    # -- broadcasts over partitions ------------------------------------------------------------------------------------

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

    def nest(self, var: LoopVar, fill: Callable[[], Any]) -> None:
        """Emit a compiler-made loop around what `fill` emits."""
        saved, self.out = self.out, []
        fill()
        inner, self.out = self.out, saved
        self.out.append(Nest(var, LoopKind.AFFINE, inner, self.instr.line if self.instr else 0))

    # -- element-wise -----------------------------------------------------------------------------------------------

    def copy(self, src: Access, dst: Access, engine: str | None = None, label: str = "copy") -> None:
        """A copy or cast: ScalarE unless the call names an engine (the compiler puts none on VectorE)."""
        where = _ENGINES.get(str(engine), Engine.SCALAR)
        if where is Engine.TENSOR:
            where = Engine.SCALAR
        self.emit(Kind.COPY, where, dst, [self.spread(src, dst.shape[0])], label=label)

    def activate(
        self, src: Access, dst: Access, label: str, side: tuple[Access, ...] = (), **fields: Any
    ) -> None:
        """One ScalarE ACTIVATE."""
        self.emit(
            Kind.ACTIVATE,
            Engine.SCALAR,
            dst,
            [self.spread(src, dst.shape[0])],
            side_reads=side,
            label=label,
            **fields,
        )

    def reciprocal(self, src: Access, dst: Access) -> None:
        """VectorE RECIPROCAL: two cycles an element (silu's and adamw's active times; the documented eight is wrong)."""
        self.emit(Kind.RECIPROCAL, Engine.VECTOR, dst, [src], label="reciprocal")

    def tensor_scalar(
        self, src: Access, dst: Access, ops: tuple[str | None, ...], side: tuple[Access, ...] = (), engine: str = "unknown",
        label: str = "tensor_scalar", **fields: Any,
    ) -> None:  # fmt: skip
        """TENSOR_SCALAR, on ScalarE or VectorE.

        With the engine left open it runs on ScalarE if wider than two elements and its operations are a scale and a
        bias; tiny ones, comparisons and the like run on VectorE (active times of adamw, silu, gqa).
        """
        n = max(_free(src), _free(dst))
        where = _ENGINES.get(engine)
        if where not in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD):
            fits = n > 2 and all(op in SCALAR_ENGINE_ALU for op in ops)
            where = Engine.SCALAR if fits else Engine.VECTOR
        if any(op in GPSIMD_ALU for op in ops):
            where = Engine.GPSIMD
        self.emit(
            Kind.TENSOR_SCALAR,
            where,
            dst,
            [self.spread(src, dst.shape[0])],
            side_reads=side,
            label=label,
            **fields,
        )

    def tensor_tensor(
        self, a: Access, b: Access, dst: Access, op: str, engine: str = "unknown", label: str = ""
    ) -> None:
        """TENSOR_TENSOR on VectorE, on GpSimd for power and 32-bit integer arithmetic."""
        partitions = dst.shape[0]
        a, b = self.spread(a, partitions), self.spread(b, partitions)
        where = _ENGINES.get(engine, Engine.VECTOR)
        integers = a.dtype.kind in "iu" and a.dtype.itemsize == 4 and op in ("add", "subtract", "multiply")
        if op in GPSIMD_ALU or integers:
            where = Engine.GPSIMD
        elif where not in (Engine.VECTOR, Engine.GPSIMD):
            where = Engine.VECTOR
        self.emit(Kind.TENSOR_TENSOR, where, dst, [a, b], label=label or op)

    def binary(self, op: str, x: Operand, y: Operand, dst: Access) -> None:
        """`nl`'s binary functions: by what the operands are."""
        if not isinstance(x, Access) and not isinstance(y, Access):
            self.emit(Kind.MEMSET, Engine.VECTOR, dst, [], label=op)
            return
        if isinstance(x, Access) and isinstance(y, Access):
            wide = _free(dst) > 1
            if op == "divide":
                quotient = self.temp(y.shape, y.dtype)
                self.reciprocal(y, quotient)
                y, op = quotient, "multiply"
            if wide and unique_free(y) == 1 and unique_free(x) > 1:
                self.tensor_scalar(x, dst, (op,), (self.spread(y, dst.shape[0]),), label=op)
            elif wide and unique_free(x) == 1 and unique_free(y) > 1:
                self.tensor_scalar(y, dst, (op,), (self.spread(x, dst.shape[0]),), label=op)
            else:
                self.tensor_tensor(x, y, dst, op)
            return
        tile = x if isinstance(x, Access) else y
        assert isinstance(tile, Access)
        if op == "divide" and tile is y:
            number = x
            if number == 1:
                self.reciprocal(tile, dst)
                return
            inverse = self.temp(tile.shape, tile.dtype)
            self.reciprocal(tile, inverse)
            self.tensor_scalar(inverse, dst, ("multiply",), label="multiply")
            return
        self.tensor_scalar(tile, dst, (op,), label=op)

    def op_copy(self, instr: Instr) -> None:
        src = self.tile(instr, "src", "x")
        self.copy(src, instr.dst, instr.attrs.get("engine"))

    op_tensor_copy = op_copy
    op_static_cast = op_copy
    op_identity = op_copy

    def op_tensor_copy_dynamic_src(self, instr: Instr) -> None:
        """Run-time offset: about 600 cycles before the copy (`nki.isa` cost table)."""
        src = self.tile(instr, "src")
        self.emit(Kind.COPY, Engine.VECTOR, instr.dst, [src], extra_cycles=max(0.0, 600.0 - _free(src)))

    op_tensor_copy_dynamic_dst = op_tensor_copy_dynamic_src

    def op_activation(self, instr: Instr) -> None:
        data = self.tile(instr, "data", "x")
        side = _tiles(instr, "bias", "scale")
        reduce = instr.attrs.get("reduce_op") is not None or len(instr.dsts) > 1
        self.activate(
            data, instr.dst, label=str(instr.attrs.get("op", "activation")), side=side,
            more_writes=instr.dsts[1:], extra_cycles=float(self.machine.min_cycles) if reduce else 0.0,
        )  # fmt: skip

    op_activation_reduce = op_activation
    op_activate2 = op_activation
    op_exponential = op_activation

    def op_negative(self, instr: Instr) -> None:
        self.tensor_scalar(self.tile(instr, "x"), instr.dst, ("multiply",), label="negative")

    def op_invert(self, instr: Instr) -> None:
        self.tensor_scalar(self.tile(instr, "x"), instr.dst, ("invert",), label="invert")

    op_logical_not = op_invert
    op_ceil = op_invert
    op_floor = op_invert
    op_trunc = op_invert

    def op_cos(self, instr: Instr) -> None:
        """sin(x + pi/2), brought back into ScalarE's range first."""
        x = self.tile(instr, "x")
        shifted = self.temp(instr.dst.shape, x.dtype)
        self.tensor_scalar(x, shifted, ("add",), label="add")
        self.activate(shifted, instr.dst, label="sin")

    def op_reciprocal(self, instr: Instr) -> None:
        self.reciprocal(self.tile(instr, "data", "x"), instr.dst)

    def op_tensor_scalar(self, instr: Instr) -> None:
        self.tensor_scalar(
            self.tile(instr, "data"), instr.dst, (instr.attrs.get("op0"), instr.attrs.get("op1")),
            _tiles(instr, "operand0", "operand1"), str(instr.attrs.get("engine", "unknown")),
            label=str(instr.attrs.get("op0", "tensor_scalar")),
        )  # fmt: skip

    def op_tensor_scalar_reduce(self, instr: Instr) -> None:
        """VectorE, with the accumulator read at the end: MIN_II more cycles."""
        self.emit(
            Kind.TENSOR_SCALAR, Engine.VECTOR, instr.dst, [self.tile(instr, "data")],
            side_reads=_tiles(instr, "operand0"), more_writes=instr.dsts[1:],
            extra_cycles=float(self.machine.min_cycles),
        )  # fmt: skip

    def op_tensor_scalar_cumulative(self, instr: Instr) -> None:
        self.emit(Kind.SCAN, Engine.VECTOR, instr.dst, [self.tile(instr, "data")], per_element=1.0)

    def op_tensor_tensor(self, instr: Instr) -> None:
        a, b = instr.args.get("data1"), instr.args.get("data2")
        if not (isinstance(a, Access) and isinstance(b, Access)):
            raise TypeError(f"line {instr.line}: {instr.op} needs two tiles")
        self.tensor_tensor(
            a, b, instr.dst, str(instr.attrs.get("op")), str(instr.attrs.get("engine", "unknown")),
        )  # fmt: skip

    def op_scalar_tensor_tensor(self, instr: Instr) -> None:
        data = self.tile(instr, "data")
        other = instr.args.get("operand1")
        reads = [self.spread(data, instr.dst.shape[0])]
        if isinstance(other, Access):
            reads.append(self.spread(other, instr.dst.shape[0]))
        self.emit(Kind.TENSOR_TENSOR, Engine.VECTOR, instr.dst, reads, side_reads=_tiles(instr, "operand0"))

    def op_tensor_tensor_scan(self, instr: Instr) -> None:
        reads = [a for n in ("data0", "data1") if isinstance(a := instr.args.get(n), Access)]
        reads = [self.spread(a, instr.dst.shape[0]) for a in reads]
        self.emit(
            Kind.SCAN, Engine.VECTOR, instr.dst, reads, side_reads=_tiles(instr, "initial"), label="scan"
        )

    def op_where(self, instr: Instr) -> None:
        """A select over tiles: predicated copy onto a copy."""
        reads = [self.spread(a, instr.dst.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.SELECT, Engine.VECTOR, instr.dst, reads, per_element=2.0)

    op_select_reduce = op_where

    def op_tensor_copy_predicated(self, instr: Instr) -> None:
        reads = [a for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.SELECT, Engine.VECTOR, instr.dst, reads)

    # -- reductions ---------------------------------------------------------------------------------------------------

    def reduce(self, src: Access, dst: Access, label: str) -> None:
        """TENSOR_REDUCE over free axes on VectorE."""
        self.emit(Kind.REDUCE, Engine.VECTOR, dst, [src], label=label, elements=_free(src))

    def op_tensor_reduce(self, instr: Instr) -> None:
        self.reduce(self.tile(instr, "data"), instr.dst, label=str(instr.attrs.get("op", "reduce")))

    def op_mean(self, instr: Instr) -> None:
        """Sum, then one small multiply."""
        total = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(self.tile(instr, "x"), total, label="sum")
        self.tensor_scalar(total, instr.dst, ("multiply",), label="multiply")

    def op_var(self, instr: Instr) -> None:
        """Mean, squared distance on ScalarE, mean again."""
        x = self.tile(instr, "x")
        mean = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(x, mean, label="sum")
        distance = self.temp(x.shape, np.dtype(np.float32))
        self.activate(x, distance, label="square", side=(mean,))
        total = self.temp(instr.dst.shape, np.dtype(np.float32))
        self.reduce(distance, total, label="sum")
        self.tensor_scalar(total, instr.dst, ("multiply",), label="multiply")

    def op_tensor_partition_reduce(self, instr: Instr) -> None:
        """Across partitions on GpSimd: every lane's elements pass through one core (documented only as slow)."""
        src = self.tile(instr, "data")
        self.emit(Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], elements=_free(src), per_element=16.0)

    def op_all_reduce(self, instr: Instr) -> None:
        self.reduce(self.tile(instr, "x"), instr.dst, label="all_reduce")

    def op_loop_reduce(self, instr: Instr) -> None:
        """One VectorE TENSOR_TENSOR per partial; the first partial costs nothing.

        With a single loop and [P, 1] partials they are gathered and reduced by one TENSOR_REDUCE instead
        (rmsnorm_matmul's counters).
        """
        x = self.tile(instr, "x")
        loops = tuple(v for v in instr.attrs.get("loops", ()) if isinstance(v, LoopVar))
        if len(loops) == 1 and _free(instr.dst) == 1 and loops[0].trips <= 8:
            # The partial itself is `x`, which PSUM placement puts into a bank; only the last iteration reduces.
            self.emit(
                Kind.REDUCE, Engine.VECTOR, instr.dst, [_repeated(x, loops[0])], label="loop_reduce",
                elements=loops[0].trips, last_of=loops,
            )  # fmt: skip
            return
        self.emit(
            Kind.TENSOR_TENSOR,
            Engine.VECTOR,
            instr.dst,
            [x],
            label="loop_reduce",
            after_first=loops,
            accumulates=True,
        )

    def op_softmax(self, instr: Instr) -> None:
        x, dst = self.tile(instr, "x"), instr.dst
        column, f32 = (dst.shape[0], *(1 for _ in dst.shape[1:])), np.dtype(np.float32)
        peak, shifted, raised = self.temp(column, f32), self.temp(dst.shape, f32), self.temp(dst.shape, f32)
        total, inverse = self.temp(column, f32), self.temp(column, f32)
        self.reduce(x, peak, label="max")
        self.tensor_scalar(x, shifted, ("subtract",), (peak,), label="subtract")
        self.activate(shifted, raised, label="exp")
        self.reduce(raised, total, label="sum")
        self.reciprocal(total, inverse)
        self.tensor_scalar(raised, dst, ("multiply",), (inverse,), label="multiply")

    def op_rms_norm(self, instr: Instr) -> None:
        x, dst = self.tile(instr, "x"), instr.dst
        column, f32 = (dst.shape[0], *(1 for _ in dst.shape[1:])), np.dtype(np.float32)
        squared, total = self.temp(dst.shape, f32), self.temp(column, f32)
        mean, inverse, scaled = self.temp(column, f32), self.temp(column, f32), self.temp(dst.shape, f32)
        self.activate(x, squared, label="square")
        self.reduce(squared, total, label="sum")
        self.tensor_scalar(total, mean, ("multiply",), label="multiply")
        self.activate(mean, inverse, label="rsqrt")
        weight = instr.args.get("w")
        self.tensor_scalar(
            x, scaled if isinstance(weight, Access) else dst, ("multiply",), (inverse,), label="multiply"
        )
        if isinstance(weight, Access):
            self.tensor_tensor(scaled, weight, dst, "multiply")

    # -- TensorE ------------------------------------------------------------------------------------------------------

    def passes_of(self, *tiles: Access) -> int:
        """LS+MM pairs: two for fp32 operands, one for narrower types."""
        wide = any(t.dtype.itemsize == 4 for t in tiles)
        return int(self.machine.fp32_passes) if wide else 1

    def transpose(self, src: Access, dst: Access, hidden: bool = False, label: str = "transpose") -> None:
        """Matmul against the identity into PSUM; a result wanted in SBUF is evicted by ScalarE."""
        self.identity_needed = True
        target = dst
        if dst.tensor.buffer is not Buffer.PSUM:
            target = self.temp(dst.shape, np.dtype(np.float32), Buffer.PSUM)
        self.emit(
            Kind.TRANSPOSE, Engine.TENSOR, target, [src], passes=self.passes_of(src), rows_contracted=src.shape[0],
            stationary_columns=_free(src), elements=src.shape[0], hidden=hidden, label=label, mask=(),
        )  # fmt: skip
        if target is not dst:
            self.emit(Kind.COPY, Engine.SCALAR, dst, [target], label="copy", hidden=hidden, mask=())

    def op_transpose(self, instr: Instr) -> None:
        self.transpose(self.tile(instr, "x"), instr.dst)

    def op_nc_transpose(self, instr: Instr) -> None:
        data = self.tile(instr, "data")
        small = data.shape[0] <= 32 and _free(data) <= 32
        if instr.attrs.get("engine") == "vector" or (small and instr.dst.tensor.buffer is not Buffer.PSUM):
            self.emit(Kind.COPY, Engine.VECTOR, instr.dst, [data], label="nc_transpose", elements=_free(data))
        else:
            self.transpose(data, instr.dst, label="nc_transpose")

    def op_nc_matmul(self, instr: Instr) -> None:
        stationary, moving = self.tile(instr, "stationary"), instr.args.get("moving")
        if not isinstance(moving, Access):
            raise TypeError(f"line {instr.line}: {instr.op} needs a moving tile")
        self.matmul(instr, stationary, moving)

    op_nc_matmul_mx = op_nc_matmul

    def op_matmul(self, instr: Instr) -> None:
        """X @ y: x is transposed on the array first unless the call says that it already is."""
        x, y = instr.args.get("x"), instr.args.get("y")
        if not (isinstance(x, Access) and isinstance(y, Access)):
            raise TypeError(f"line {instr.line}: {instr.op} needs two tiles")
        if not instr.attrs.get("transpose_x"):
            turned = self.temp((_free(x), x.shape[0]), x.dtype)
            self.transpose(x, turned, hidden=True)
            x = turned
        self.matmul(instr, x, y)

    def matmul(self, instr: Instr, stationary: Access, moving: Access) -> None:
        """One or two LS+MM pairs; a masked moving operand still runs at the tile's full width."""
        one_zero = bool(instr.attrs.get("is_stationary_onezero"))
        turning = bool(instr.attrs.get("is_transpose"))
        dst = instr.dst
        target = dst
        if dst.tensor.buffer is not Buffer.PSUM:
            target = self.temp(dst.shape, np.dtype(np.float32), Buffer.PSUM)
        self.emit(
            Kind.TRANSPOSE if turning else Kind.MATMUL, Engine.TENSOR, target, [stationary, moving],
            passes=1 if one_zero else self.passes_of(stationary, moving), rows_contracted=stationary.shape[0],
            stationary_columns=_free(stationary), stationary_resident=one_zero,
            elements=_free(moving), accumulates=bool(instr.attrs.get("accumulate")), mask=(),
            label="transpose" if turning else "matmul",
        )  # fmt: skip
        if target is not dst:
            self.emit(Kind.COPY, Engine.SCALAR, dst, [target], label="copy")

    # -- constants and GpSimd --------------------------------------------------------------------------------------------

    def op_memset(self, instr: Instr) -> None:
        """A constant tile. Matmul results in PSUM need none: the first matmul overwrites."""
        if instr.dst.tensor in self.matmul_results:
            return
        if not instr.dst.tensor.buffer.on_chip:
            return
        engine = _ENGINES.get(str(instr.attrs.get("engine")), Engine.VECTOR)
        if engine not in (Engine.VECTOR, Engine.GPSIMD):
            engine = Engine.VECTOR
        self.emit(Kind.MEMSET, engine, instr.dst, [])

    op_zeros = op_memset
    op_ones = op_memset
    op_full = op_memset
    op_zeros_like = op_memset

    def gpsimd(self, instr: Instr) -> None:
        """GpSimd instructions of the cost table: 150 + N."""
        reads = [a for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, reads)

    op_iota = gpsimd
    op_affine_select = gpsimd
    op_rand = gpsimd
    op_rng = gpsimd
    op_sequence_bounds = gpsimd
    op_nonzero_with_count = gpsimd
    op_builtin_custom_op = gpsimd
    op_gather_flattened = gpsimd
    op_nc_n_gather = gpsimd

    def op_local_gather(self, instr: Instr) -> None:
        """150 + indices x elements / C cycles (`nki.isa` cost table)."""
        src = self.tile(instr, "src_buffer")
        each = int(instr.attrs.get("num_elem_per_idx", 1))
        valid = instr.attrs.get("num_valid_indices") or 16 * _free(self.tile(instr, "index"))
        size = 4
        divisor = ((28 + size * each) / (size * each)) / min(4 / src.dtype.itemsize, each)
        self.emit(
            Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], side_reads=_tiles(instr, "index"),
            elements=max(1, int(valid * each / max(divisor, 1e-9))),
        )  # fmt: skip

    def op_topk(self, instr: Instr) -> None:
        src = self.tile(instr, "data", "src")
        self.emit(Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], per_element=4.0)

    def vector_misc(self, instr: Instr) -> None:
        """VectorE instructions of the cost table that take N cycles."""
        reads = [a for a in instr.args.values() if isinstance(a, Access)]
        elements = max([_free(instr.dst), *(_free(r) for r in reads)])
        self.emit(
            Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, reads, elements=elements, per_element=1.0,
            more_writes=instr.dsts[1:],
        )  # fmt: skip

    op_bn_stats = vector_misc
    op_max8 = vector_misc
    op_nc_find_index8 = vector_misc
    op_nc_match_replace8 = vector_misc
    op_nc_stream_shuffle = vector_misc
    op_range_select = vector_misc
    op_dropout = vector_misc
    op_quantize_mx = vector_misc

    def op_bn_aggr(self, instr: Instr) -> None:
        """13 cycles per (count, mean, variance) triple (`nki.isa` cost table)."""
        data = self.tile(instr, "data")
        self.emit(Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, [data], per_element=13 / 3)


def _free(access: Access) -> int:
    """Elements per partition, repeated axes included."""
    return math.prod(access.shape[1:])


def _start_partition(access: Access) -> int | None:
    """First partition of an on-chip tile, if it is the same in every iteration."""
    expression = access.index[access.tensor.par_dim]
    if not isinstance(expression, Affine) or expression.loops():
        return None
    return expression.const


def _shifts_lanes(dst: Access, reads: list[Access]) -> bool:
    """Whether a result starts on another partition than every operand that spans as many partitions."""
    if not dst.tensor.buffer.on_chip:
        return False
    target = _start_partition(dst)
    sources = [_start_partition(r) for r in reads if r.tensor.buffer.on_chip and r.shape[0] == dst.shape[0]]
    return bool(sources) and target is not None and all(s is not None and s != target for s in sources)


def _tiles(instr: Instr, *names: str) -> tuple[Access, ...]:
    return tuple(a for n in names if isinstance(a := instr.args.get(n), Access))


def _indices(*accesses: Access) -> tuple[Access, ...]:
    """Index tiles of indirect accesses."""
    return tuple(e.tile for a in accesses for e in a.index if not isinstance(e, Affine))


def _repeated(partial: Access, loop: LoopVar) -> Access:
    """All partials of a loop as one access: a trailing axis that runs over the loop."""
    axis = len(partial.shape)
    moved = partial.substitute({loop: Affine.of(axis)})
    return Access(moved.tensor, moved.index, (*partial.shape, loop.trips))
