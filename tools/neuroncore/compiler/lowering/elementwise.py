"""Element-wise API calls: copies, activations, tensor_scalar, tensor_tensor, selects and scans.

Nothing fuses beyond what a call says; who runs what is read off the active times of the fourteen published profiles.
"""

from __future__ import annotations

from typing import Any

from ...ir import Access, Instr, Operand
from ..program import Engine, Kind, unique_free
from .emitter import ENGINES, Emitter, free_elements, tiles_of

SCALAR_ENGINE_ALU = frozenset({"add", "subtract", "multiply", "divide", "copy", None})
"""ALU operations that ScalarE's scale and bias can do; the rest of tensor_scalar stays on VectorE.

The division is that of `nl.divide` by a number or by one value a partition, whose reciprocal is the scale."""

GPSIMD_ALU = frozenset({"power", "mod", "fmod", "floor_divide"})
"""ALU operations that only GpSimd has (ALU table of `nki.isa`), with 32-bit integer arithmetic."""

GPSIMD_FUNCTION_CYCLES = 4.0
"""Cycles an element of functions on GpSimd: its rsqrt is four times slower than ScalarE's (`nki.isa`), and a power is no
cheaper."""

RECIPROCAL_CYCLES = 2.0
"""VectorE's reciprocal as in its instruction of that name, which an ALU operation of that name cannot beat."""


class Elementwise(Emitter):
    """Lowerings to ScalarE, VectorE and GpSimd instructions over whole tiles."""

    def copy(self, src: Access, dst: Access, engine: str | None = None, label: str = "copy") -> None:
        """A copy or cast: ScalarE unless the call names an engine (the compiler puts none on VectorE)."""
        where = ENGINES.get(str(engine), Engine.SCALAR)
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
        self.emit(Kind.RECIPROCAL, Engine.VECTOR, dst, [self.spread(src, dst.shape[0])], label="reciprocal")

    def tensor_scalar(
        self, src: Access, dst: Access, ops: tuple[str | None, ...], side: tuple[Access, ...] = (), engine: str = "unknown",
        label: str = "tensor_scalar", **fields: Any,
    ) -> None:  # fmt: skip
        """TENSOR_SCALAR, on ScalarE or VectorE.

        With the engine left open it runs on ScalarE if wider than two elements and its operations are a scale and a
        bias; tiny ones, comparisons and the like run on VectorE (active times of adamw, silu, gqa).
        """
        n = max(free_elements(src), free_elements(dst))
        where = ENGINES.get(engine)
        if where not in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD):
            fits = n > 2 and all(op in SCALAR_ENGINE_ALU for op in ops)
            where = Engine.SCALAR if fits else Engine.VECTOR
        if "rsqrt" in ops and where is not Engine.SCALAR:
            where = Engine.GPSIMD
        if any(op in GPSIMD_ALU for op in ops):
            where = Engine.GPSIMD
        if where is Engine.GPSIMD and ("rsqrt" in ops or "power" in ops):
            fields["per_element"] = GPSIMD_FUNCTION_CYCLES
        elif where is Engine.VECTOR and "reciprocal" in ops:
            fields["per_element"] = RECIPROCAL_CYCLES
        self.emit(
            Kind.TENSOR_SCALAR,
            where,
            dst,
            [self.spread(src, dst.shape[0])],
            side_reads=side,
            label=label,
            operations=sum(op is not None for op in ops),
            **fields,
        )

    def tensor_tensor(
        self, a: Access, b: Access, dst: Access, op: str, engine: str = "unknown", label: str = ""
    ) -> None:
        """TENSOR_TENSOR on VectorE, on GpSimd for power and 32-bit integer arithmetic."""
        partitions = dst.shape[0]
        a, b = self.spread(a, partitions), self.spread(b, partitions)
        where = ENGINES.get(engine, Engine.VECTOR)
        integers = a.dtype.kind in "iu" and a.dtype.itemsize == 4 and op in ("add", "subtract", "multiply")
        if op in GPSIMD_ALU or integers:
            where = Engine.GPSIMD
        elif where not in (Engine.VECTOR, Engine.GPSIMD):
            where = Engine.VECTOR
        cycles = 2 * GPSIMD_FUNCTION_CYCLES if op == "power" else None
        self.emit(Kind.TENSOR_TENSOR, where, dst, [a, b], label=label or op, per_element=cycles)

    def binary(self, op: str, x: Operand, y: Operand, dst: Access) -> None:
        """`nl`'s binary functions: by what the operands are."""
        if not isinstance(x, Access) and not isinstance(y, Access):
            self.emit(Kind.MEMSET, Engine.VECTOR, dst, [], label=op)
            return
        if isinstance(x, Access) and isinstance(y, Access):
            wide = free_elements(dst) > 1
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
        """`copy`."""
        src = self.tile(instr, "src", "x")
        self.copy(src, instr.dst, instr.attrs.get("engine"))

    op_tensor_copy = op_copy
    op_static_cast = op_copy
    op_identity = op_copy

    def op_tensor_copy_dynamic_src(self, instr: Instr) -> None:
        """Run-time offset: about 600 cycles before the copy (`nki.isa` cost table)."""
        src = self.tile(instr, "src")
        self.emit(
            Kind.COPY, Engine.VECTOR, instr.dst, [src], extra_cycles=max(0.0, 600.0 - free_elements(src))
        )

    op_tensor_copy_dynamic_dst = op_tensor_copy_dynamic_src

    def op_activation(self, instr: Instr) -> None:
        """`activation`."""
        data = self.tile(instr, "data", "x")
        side = tiles_of(instr, "bias", "scale")
        reduce = instr.attrs.get("reduce_op") is not None or len(instr.dsts) > 1
        self.activate(
            data, instr.dst, label=str(instr.attrs.get("op", "activation")), side=side,
            more_writes=instr.dsts[1:], extra_cycles=float(self.machine.min_cycles) if reduce else 0.0,
        )  # fmt: skip

    op_activation_reduce = op_activation
    op_activate2 = op_activation
    op_exponential = op_activation

    def op_negative(self, instr: Instr) -> None:
        """`negative`."""
        self.tensor_scalar(self.tile(instr, "x"), instr.dst, ("multiply",), label="negative")

    def op_invert(self, instr: Instr) -> None:
        """`invert`."""
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
        """`reciprocal`."""
        self.reciprocal(self.tile(instr, "data", "x"), instr.dst)

    def op_tensor_scalar(self, instr: Instr) -> None:
        """`tensor_scalar`."""
        self.tensor_scalar(
            self.tile(instr, "data"), instr.dst, (instr.attrs.get("op0"), instr.attrs.get("op1")),
            tiles_of(instr, "operand0", "operand1"), str(instr.attrs.get("engine", "unknown")),
            label=str(instr.attrs.get("op0", "tensor_scalar")),
        )  # fmt: skip

    def op_tensor_scalar_reduce(self, instr: Instr) -> None:
        """VectorE, with the accumulator read at the end: MIN_II more cycles."""
        self.emit(
            Kind.TENSOR_SCALAR, Engine.VECTOR, instr.dst, [self.spread(self.tile(instr, "data"), instr.dst.shape[0])],
            side_reads=tiles_of(instr, "operand0"), more_writes=instr.dsts[1:],
            extra_cycles=float(self.machine.min_cycles),
            per_element=RECIPROCAL_CYCLES if instr.attrs.get("op0") == "reciprocal" else None,
        )  # fmt: skip

    def op_tensor_scalar_cumulative(self, instr: Instr) -> None:
        """`tensor_scalar_cumulative`."""
        self.emit(Kind.SCAN, Engine.VECTOR, instr.dst, [self.tile(instr, "data")], per_element=1.0)

    def op_tensor_tensor(self, instr: Instr) -> None:
        """`tensor_tensor`."""
        a, b = instr.args.get("data1"), instr.args.get("data2")
        if not (isinstance(a, Access) and isinstance(b, Access)):
            raise TypeError(f"line {instr.line}: {instr.op} needs two tiles")
        self.tensor_tensor(
            a, b, instr.dst, str(instr.attrs.get("op")), str(instr.attrs.get("engine", "unknown")),
        )  # fmt: skip

    def op_scalar_tensor_tensor(self, instr: Instr) -> None:
        """Two cycles an element wherever its operands are, unless all are narrow (`nki.isa` cost table)."""
        data = self.tile(instr, "data")
        other = instr.args.get("operand1")
        reads = [self.spread(data, instr.dst.shape[0])]
        if isinstance(other, Access):
            reads.append(self.spread(other, instr.dst.shape[0]))
        inverts = "reciprocal" in (instr.attrs.get("op0"), instr.attrs.get("op1"))
        narrow = all(a.dtype.itemsize <= 2 for a in (*reads, instr.dst))
        self.emit(
            Kind.TENSOR_TENSOR, Engine.VECTOR, instr.dst, reads, side_reads=tiles_of(instr, "operand0"),
            per_element=2 * RECIPROCAL_CYCLES if inverts else None if narrow else 2.0,
        )  # fmt: skip

    def op_tensor_tensor_scan(self, instr: Instr) -> None:
        """`tensor_tensor_scan`."""
        reads = [a for n in ("data0", "data1") if isinstance(a := instr.args.get(n), Access)]
        reads = [self.spread(a, instr.dst.shape[0]) for a in reads]
        self.emit(
            Kind.SCAN, Engine.VECTOR, instr.dst, reads, side_reads=tiles_of(instr, "initial"), label="scan"
        )

    def op_where(self, instr: Instr) -> None:
        """A select over tiles: predicated copy onto a copy."""
        reads = [self.spread(a, instr.dst.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.SELECT, Engine.VECTOR, instr.dst, reads, per_element=2.0)

    op_select_reduce = op_where

    def op_tensor_copy_predicated(self, instr: Instr) -> None:
        """`tensor_copy_predicated`."""
        reads = [self.spread(a, instr.dst.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.SELECT, Engine.VECTOR, instr.dst, reads)
