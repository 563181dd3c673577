"""Random kernels: nested loops of all kinds over loads, stores, element-wise operations, reductions and matmuls.

Every index is in bounds by construction (tensors are made as large as their accesses need); nothing else is guaranteed.
Kernels may read what nobody wrote, carry values around loops, overlap what they write, and leave results unwritten.
Values are small integers, so that sums come out the same in any order.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tools.neuroncore.ir import (
    Access,
    Affine,
    Buffer,
    Instr,
    Kernel,
    Loop,
    LoopKind,
    LoopVar,
    Node,
    Tensor,
    TensorKind,
)

from .build import F32

BINARY = ("add", "subtract", "maximum", "minimum")
UNARY = ("negative", "relu", "abs", "copy")
KINDS = (LoopKind.AFFINE, LoopKind.SEQUENTIAL, LoopKind.RANGE)


class RandomKernel:
    """One kernel being made."""

    def __init__(
        self, rng: random.Random, *, masks: bool = True, tidy: bool = False, max_depth: int = 3
    ) -> None:
        """`tidy` kernels read only what they have written, and store every iteration somewhere else."""
        self.rng = rng
        self.masks = masks and not tidy
        self.tidy = tidy
        self.max_depth = max_depth
        self.count = 0
        self.fixed: dict[Tensor, list[int]] = {}
        self.inputs = [self.hbm(f"x{k}", TensorKind.INPUT) for k in range(2)]
        self.outputs = [self.hbm(f"y{k}") for k in range(rng.randint(1, 2))]
        self.scratch = [self.hbm(f"h{k}") for k in range(rng.randint(0, 1))]
        self.tiles: list[tuple[Tensor, tuple[int, int]]] = []
        self.accesses: list[Access] = []

    def kernel(self) -> Kernel:
        body = self.body((), 0)
        for t in [*self.inputs, *self.outputs]:
            for d, n in enumerate(self.fixed[t]):
                self.fixed[t][d] = max(n, 1)
        for t, shape in self.fixed.items():
            t.shape = tuple(max(n, 1) for n in shape)
        return Kernel(
            "kernel",
            "neuronxcc.nki",
            self.inputs,
            self.outputs,
            body,
            signature=[t.name for t in self.inputs],
        )

    def arguments(self, kernel: Kernel) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(self.rng.randint(0, 10**6))
        return [rng.integers(-3, 4, size=t.shape).astype(np.float32) for t in kernel.params]

    # -- tensors ---------------------------------------------------------------------------------------------------------
    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def hbm(self, name: str, kind: TensorKind = TensorKind.LOCAL) -> Tensor:
        rank = self.rng.randint(2, 3)
        t = Tensor(name, (1,) * rank, F32, Buffer.HBM, kind=kind)
        self.fixed[t] = [1] * rank
        return t

    def tile(
        self, shape: tuple[int, int], scope: Loop | None, buffer: Buffer = Buffer.SBUF, blocks: int = 0
    ) -> Tensor:
        t = Tensor(
            self.name("t"),
            (*(1,) * blocks, *shape),
            F32,
            buffer,
            par_dim=blocks,
            scope=scope,
            declared=blocks > 0,
        )
        self.fixed[t] = [*(1,) * blocks, *shape]
        self.tiles.append((t, shape))
        return t

    def index(self, tensor: Tensor, shape: tuple[int, int], loops: tuple[Loop, ...]) -> Access:
        """A random access with a tile of `shape`; the tensor grows to hold it."""
        if self.tidy:
            return self.tidy_index(tensor, shape, loops)
        rank = len(self.fixed[tensor])
        axes: list[int | None] = [None] * rank
        if tensor.buffer.on_chip:
            axes[tensor.par_dim], axes[rank - 1] = 0, 1
        else:
            for number, d in enumerate(sorted(self.rng.sample(range(rank), 2))):
                axes[d] = number
        index = []
        for d in range(rank):
            a = axes[d]
            own_tile = tensor.buffer.on_chip and d >= tensor.par_dim
            step = self.rng.choice([1, 1, 1, 2]) if a is not None and not own_tile else 1
            e = Affine(0) if a is None else Affine(0, {a: step})
            span = 1 if a is None else (shape[a] - 1) * step + 1
            if not (own_tile and self.rng.random() < 0.85):
                for loop in self.rng.sample(loops, min(len(loops), self.rng.choice([0, 1, 1, 1, 2]))):
                    c = self.rng.choice([span, span, 1, span + 1])
                    e = e + Affine(0, {loop.var: c})
                    span += c * (loop.trips - 1)
                if self.rng.random() < 0.2:
                    e = e + 1
            index.append(e)
            _, high = e.bounds(lambda s: shape[s] if isinstance(s, int) else s.trips)
            self.fixed[tensor][d] = max(self.fixed[tensor][d], high + 1)
        return Access(tensor, tuple(index), shape)

    def tidy_index(self, tensor: Tensor, shape: tuple[int, int], loops: tuple[Loop, ...]) -> Access:
        """Whole on-chip tiles; in HBM every loop moves by whole tiles along some dimension."""
        if tensor.buffer.on_chip:
            return tensor.whole()
        rank = len(self.fixed[tensor])
        dims = sorted(self.rng.sample(range(rank), 2))
        index = [Affine(0, {dims.index(d): 1}) if d in dims else Affine(0) for d in range(rank)]
        spans = [shape[dims.index(d)] if d in dims else 1 for d in range(rank)]
        for loop in loops:
            d = self.rng.randrange(rank)
            index[d] = index[d] + Affine(0, {loop.var: spans[d]})
            spans[d] *= loop.trips
        for d in range(rank):
            self.fixed[tensor][d] = max(self.fixed[tensor][d], spans[d])
        return Access(tensor, tuple(index), shape)

    def visible(
        self, loops: tuple[Loop, ...], shape: tuple[int, int] | None = None
    ) -> list[tuple[Tensor, tuple[int, int]]]:
        return [
            (t, s)
            for t, s in self.tiles
            if (t.scope is None or t.scope in loops) and (shape is None or s == shape)
        ]

    # -- statements ------------------------------------------------------------------------------------------------------
    def body(self, loops: tuple[Loop, ...], depth: int) -> list[Node]:
        nodes: list[Node] = []
        for _ in range(self.rng.randint(1, 3 if depth else 4)):
            if depth < self.max_depth and self.rng.random() < (0.55 if depth else 0.8):
                loop = Loop(
                    LoopVar(self.name("i"), self.rng.choice([1, 2, 2, 3, 3, 4])), self.rng.choice(KINDS)
                )
                loop.body = self.body((*loops, loop), depth + 1)
                nodes.append(loop)
            else:
                nodes.extend(self.statements(loops))
        return nodes

    def destination(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> Access:
        """A fresh tile, a declared one from further out, or one that exists."""
        old = self.visible(loops, shape)
        if old and self.rng.random() < (0.15 if self.tidy else 0.35):
            return self.index(self.rng.choice(old)[0], shape, loops)
        if self.tidy:
            return self.tile(shape, loops[-1] if loops else None).whole()
        scopes: list[Loop | None] = [None, *loops]
        if self.rng.random() < 0.4:
            t = self.tile(shape, self.rng.choice(scopes), blocks=self.rng.randint(0, 2))
            return self.index(t, shape, loops)
        return self.tile(shape, scopes[-1]).whole()

    def operand(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> tuple[list[Node], Access]:
        old = self.visible(loops, shape)
        if old and self.rng.random() < 0.85:
            t = self.rng.choice(old[-4:])[0]
            if len(self.fixed[t]) == 2:
                return [], Access(t, (Affine.of(0), Affine.of(1)), shape)
            return [], self.index(t, shape, loops)
        dst = self.destination(shape, loops)
        return [
            Instr("nl.load", (dst,), {"src": self.index(self.rng.choice(self.inputs), shape, loops)})
        ], dst

    def mask(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> tuple[Affine, ...]:
        if not self.masks or self.rng.random() < 0.7:
            return ()
        conditions = []
        for _ in range(self.rng.randint(1, 2)):
            e = Affine(self.rng.randint(0, 6))
            for symbol in [s for s in (0, 1, *(loop.var for loop in loops)) if self.rng.random() < 0.4]:
                e = e + Affine(0, {symbol: self.rng.choice([-1, -2, 1, -1])})
            conditions.append(e)
        return tuple(conditions)

    def statements(self, loops: tuple[Loop, ...]) -> list[Node]:
        shape = self.rng.choice([(4, 6), (4, 6), (2, 3), (4, 4)])
        if self.tidy and self.rng.random() < 0.3:
            return self.make_store(shape, loops)
        kind = self.rng.choice(
            ["load", "unary", "binary", "binary", "store", "store", "accumulate", "matmul", "reduce", "loop_reduce",
             "transpose", "fill", "scalar"]
        )  # fmt: skip
        return getattr(self, f"make_{kind}")(shape, loops)  # type: ignore[no-any-return]

    def make_load(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        sources = self.inputs if self.tidy else [*self.inputs, *self.scratch, *self.outputs[:1]]
        source = self.index(self.rng.choice(sources), shape, loops)
        return [
            Instr("nl.load", (self.destination(shape, loops),), {"src": source}, mask=self.mask(shape, loops))
        ]

    def make_unary(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        op = self.rng.choice(UNARY)
        args = {"src" if op == "copy" else "x": x}
        return [
            *before,
            Instr(f"nl.{op}", (self.destination(shape, loops),), args, mask=self.mask(shape, loops)),
        ]

    def make_scalar(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        more, y = (
            self.operand((shape[0], 1), loops) if self.rng.random() < 0.5 else ([], self.rng.randint(-2, 2))
        )
        attrs = {"op0": self.rng.choice(BINARY), "reverse0": self.rng.random() < 0.5, "engine": "vector"}
        args = {"data": x, "operand0": y}
        dst = self.destination(shape, loops)
        return [
            *before,
            *more,
            Instr("nisa.tensor_scalar", (dst,), args, attrs, mask=self.mask(shape, loops)),
        ]

    def make_binary(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        more, y = self.operand(shape, loops)
        op = f"nl.{self.rng.choice(BINARY)}"
        return [
            *before,
            *more,
            Instr(op, (self.destination(shape, loops),), {"x": x, "y": y}, mask=self.mask(shape, loops)),
        ]

    def make_accumulate(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, y = self.operand(shape, loops)
        known = self.visible(loops, shape)
        dst = self.rng.choice(known)[0].whole() if self.tidy else self.destination(shape, loops)
        args = {"x": dst, "y": y} if self.rng.random() < 0.7 else {"x": y, "y": dst}
        return [
            *before,
            Instr(f"nl.{self.rng.choice(['add', 'maximum'])}", (dst,), args, mask=self.mask(shape, loops)),
        ]

    def make_store(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        dst = self.index(
            self.rng.choice(self.outputs if self.tidy else [*self.outputs, *self.scratch]), shape, loops
        )
        return [*before, Instr("nl.store", (dst,), {"value": x}, mask=self.mask(shape, loops))]

    def make_fill(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        value = self.rng.randint(-2, 2)
        return [
            Instr(
                "nisa.memset",
                (self.destination(shape, loops),),
                {},
                {"value": value},
                mask=self.mask(shape, loops),
            )
        ]

    def make_transpose(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        dst = self.destination((shape[1], shape[0]), loops)
        return [*before, Instr("nl.transpose", (dst,), {"x": x}, mask=self.mask((shape[1], shape[0]), loops))]

    def make_reduce(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        before, x = self.operand(shape, loops)
        op = self.rng.choice(["add", "maximum"])
        dst = self.destination((shape[0], 1), loops)
        attrs = {"op": op, "axis": (1,), "negate": self.rng.random() < 0.3, "keepdims": False}
        return [
            *before,
            Instr("nisa.tensor_reduce", (dst,), {"data": x}, attrs, mask=self.mask(shape, loops)),
        ]

    def make_loop_reduce(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        if not loops:
            return self.make_store(shape, loops)
        before, x = self.operand(shape, loops)
        over = tuple(loop.var for loop in loops[self.rng.randint(0, len(loops) - 1) :])
        outside = [None, *loops][: len(loops) - len(over) + 1]
        t = self.tile(shape, self.rng.choice(outside), blocks=0 if self.tidy else self.rng.randint(0, 1))
        kept = tuple(loop for loop in loops if loop.var not in over)
        dst = self.index(t, shape, kept)
        return [
            *before,
            Instr(
                "nl.loop_reduce", (dst,), {"x": x}, {"op": self.rng.choice(["add", "maximum"]), "loops": over}
            ),
        ]

    def make_matmul(self, shape: tuple[int, int], loops: tuple[Loop, ...]) -> list[Node]:
        k, m, n = (self.rng.choice([2, 4]), self.rng.choice([2, 4]), self.rng.choice([3, 6]))
        before, stationary = self.operand((k, m), loops)
        more, moving = self.operand((k, n), loops)
        scopes: list[Loop | None] = [None, *loops]
        scope = self.rng.choice(scopes)
        psum = self.tile((m, n), scope, Buffer.PSUM, blocks=0 if self.tidy else self.rng.randint(0, 1))
        dst = self.index(psum, (m, n), loops)
        attrs: dict[str, Any] = {"is_transpose": False}
        if self.rng.random() < 0.7:
            attrs["accumulate"] = True
        matmul = Instr("nisa.nc_matmul", (dst,), {"stationary": stationary, "moving": moving}, attrs)
        return [*before, *more, matmul]
