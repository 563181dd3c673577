"""API calls to hardware instructions.

Each call becomes the instructions that the counters of the fourteen published trn1 profiles show for it: no fusion
beyond what a call says, small composites spelled out, partition broadcasts as ones-matmuls, `nl.matmul`'s transposes
in place. Sources: the API tables of `nki.isa` and `nki.language` (SDK 2.26) for engines and shapes; byte counters of
the profiles for everything the documents leave to the compiler.

One file per family of calls; a method ``op_<name>`` lowers the call of that name in either namespace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Access, Buffer, Instr, Kernel, Loop, Tensor, TensorKind
from ...machine import Machine
from ..program import Engine, Kind, Nest, Node, Op, Program, Role, Transfer
from .constants import Constants

ACTIVATIONS = frozenset(
    "exp log sin tan tanh arctan sqrt rsqrt sigmoid relu silu silu_dx gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx erf erf_dx mish softplus square sign abs copy identity".split()
)
"""Unary functions that are one ScalarE ACTIVATE (`nki.language` activation table)."""

BINARY = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod floor_divide equal not_equal greater greater_equal "
    "less less_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift "
    "arctan2".split()
)
REDUCTIONS = frozenset("sum max min prod all any".split())

REDUCTIONS = frozenset("sum max min prod all any".split())


def lower(kernel: Kernel, machine: Machine) -> Program:
    """The program in source order, before any pass."""
    return _Lowering(kernel, machine).run()


class _Lowering(Constants):
    """Walks a kernel and sends every call to its lowering."""

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
        home, loop = self.home, self.loop
        for node in nodes:
            self.home = home
            if isinstance(node, Loop):
                self.homes += 1
                self.home = self.homes
                self.loop = node
                self.loops = (*self.loops, node)
                inner = self.body(node.body)
                self.loop = loop
                self.loops = self.loops[:-1]
                if inner and node.trips > 0:
                    self.out.append(Nest(node.var, node.kind, inner, node.line))
            else:
                self.lower(node)
        self.home = home
        result, self.out = self.out, saved
        return result

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

    def generic(self, instr: Instr) -> None:
        """An instruction without a documented cost: one VectorE pass of N cycles per tile operand."""
        reads = [a for a in instr.args.values() if isinstance(a, Access)]
        if not instr.dst.tensor.buffer.on_chip or any(not r.tensor.buffer.on_chip for r in reads):
            self.dma(instr.dst, reads[0] if reads else instr.dst)
            return
        for extra in instr.dsts[1:]:
            reads.append(extra)
        self.emit(Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, reads, per_element=float(max(1, len(reads))))
