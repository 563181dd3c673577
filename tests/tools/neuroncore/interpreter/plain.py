"""A plain interpreter to compare with: every loop iteration in order, one tile at a time, nothing clever.

It shares `semantics.evaluate` (tested by itself against NumPy) with the real one, and nothing else: tensors are whole
arrays, accesses are NumPy index arrays made from the index expressions, masks are evaluated element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.neuroncore.interpreter.functions import REDUCTIONS, converted
from tools.neuroncore.interpreter.plan import poison, tensor_arguments
from tools.neuroncore.interpreter.semantics import FILLS, Call, evaluate, reads_destination
from tools.neuroncore.ir import (
    REDUCED_OPERAND,
    Access,
    Affine,
    Buffer,
    Indirect,
    Instr,
    Kernel,
    Loop,
    LoopVar,
    Tensor,
    TensorKind,
)

Array = np.ndarray[Any, Any]


class Plain:
    """One execution."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.memory: dict[Tensor, Array] = {}
        self.loops: dict[LoopVar, int] = {}
        self.zeroed: dict[int, bool] = {}
        self.accumulated = {
            d.tensor
            for instr, _ in kernel.walk()
            for d in instr.dsts
            if instr.attrs.get("accumulate") and d.tensor.buffer is Buffer.PSUM
        }
        self.rng = np.random.default_rng(0)

    def run(self, args: Sequence[Any]) -> list[Array]:
        for tensor, value in zip(self.kernel.params, tensor_arguments(self.kernel, args), strict=True):
            self.memory[tensor] = converted(np.array(value), tensor.dtype).copy()
        with np.errstate(all="ignore"):
            self.body(self.kernel.body)
        return [self.array(t) for t in self.kernel.outputs]

    def body(self, nodes: list[Any]) -> None:
        for node in nodes:
            if isinstance(node, Instr):
                self.instr(node)
                continue
            for i in range(node.trips):
                self.loops[node.var] = i
                for tensor in [t for t in self.memory if t.scope is node]:
                    del self.memory[tensor]
                self.body(node.body)
            assert isinstance(node, Loop)

    def array(self, tensor: Tensor) -> Array:
        """The whole tensor; fresh ones are poisoned."""
        if tensor.view_of is not None:
            return self.array(tensor.view_of).reshape(tensor.shape)
        if tensor not in self.memory:
            if tensor.kind is TensorKind.CONSTANT:
                self.memory[tensor] = np.array(tensor.value).reshape(tensor.shape).astype(tensor.dtype)
            else:
                fill = 0.0 if tensor in self.accumulated else float("nan")
                self.memory[tensor] = np.full(tensor.shape, poison(tensor.dtype, fill), tensor.dtype)
        return self.memory[tensor]

    def value(self, e: Affine, shape: tuple[int, ...]) -> Array:
        """An affine expression over a tile."""
        total = np.full(shape, e.const, np.int64)
        for symbol, c in e.terms.items():
            if isinstance(symbol, int):
                axis = np.arange(shape[symbol]).reshape([-1 if k == symbol else 1 for k in range(len(shape))])
                total = total + c * axis
            else:
                total = total + c * self.loops[symbol]
        return total

    def index(self, access: Access, shape: tuple[int, ...]) -> tuple[Array, ...]:
        parts = []
        for e in access.index:
            if isinstance(e, Indirect):
                tile = Access(e.tile.tensor, e.tile.index, shape)
                read = self.array(e.tile.tensor)[self.index(tile, shape)]
                parts.append(
                    np.rint(read.astype(np.float64)).astype(np.int64) * e.scale + self.value(e.offset, shape)
                )
            else:
                parts.append(self.value(e, shape))
        return tuple(parts)

    def read(self, access: Access, mask: Array | None = None) -> Array:
        array = self.array(access.tensor)
        index = self.index(access, access.shape)
        if mask is not None:
            # What the mask hides may lie out of bounds; any element stands for it.
            index = tuple(np.clip(i, 0, n - 1) for i, n in zip(index, array.shape, strict=True))
        for i, n in zip(index, array.shape, strict=True):
            assert i.min() >= 0 and i.max() < n, f"{access} out of bounds"
        return array[index]

    def write(self, access: Access, value: Array, mask: Array | None) -> None:
        array = self.array(access.tensor)
        index = self.index(access, access.shape)
        value = np.broadcast_to(value, access.shape)
        if mask is not None:
            mask = np.broadcast_to(mask, access.shape)
            index, value = tuple(i[mask] for i in index), value[mask]
        for i, n in zip(index, array.shape, strict=True):
            assert i.size == 0 or i.min() >= 0 and i.max() < n, f"{access} out of bounds"
        array[index] = value

    def instr(self, instr: Instr) -> None:
        shape = instr.dst.shape
        space = instr.mask_space
        mask: Array | None = None
        if instr.mask:
            mask = np.ones(space, bool)
            for condition in instr.mask:
                mask &= self.value(condition, space) >= 0
            if not mask.any():
                return
        attrs = dict(instr.attrs)
        if "expr" in attrs:
            attrs["expr"] = self.value(attrs["expr"], shape)
        if "pred" in attrs:
            attrs["pred"] = np.logical_and.reduce([self.value(p, shape) >= 0 for p in attrs["pred"]])
        attrs["batch"] = ()
        values = {k: self.read(v, mask) if isinstance(v, Access) else v for k, v in instr.args.items()}
        ranks = {k: len(v.shape) for k, v in instr.args.items() if isinstance(v, Access)}
        if mask is not None and instr.op in REDUCED_OPERAND:
            values, mask = self.reduced_mask(instr, values, mask)
        op = instr.op
        combine: str | None = None
        if op == "nl.loop_reduce":
            op, values, ranks = "nl.copy", {"src": values["x"]}, {"src": ranks["x"]}
            combine = attrs["op"] if any(self.loops[v] for v in attrs["loops"]) else None
        elif attrs.get("accumulate"):
            combine = "add"
        elif attrs.get("dst_rmw_op"):
            combine = attrs["dst_rmw_op"]
        elif op == "nl.atomic_rmw":
            op, values, ranks = "nl.copy", {"src": values["value"]}, {"src": ranks["value"]}
            combine = attrs["op"]
        kept = reads_destination(op, attrs)
        old = tuple(self.read(d) if k in kept else None for k, d in enumerate(instr.dsts))
        if op in FILLS:
            results: tuple[Array, ...] = (
                np.asarray(attrs.get("value", 1.0 if "ones" in op else 0.0), np.float64),
            )
        else:
            call = Call(op, attrs, values, ranks, tuple(d.shape for d in instr.dsts), old, self.rng)
            results = evaluate(call, instr.dst.dtype)
        for k, (dst, result) in enumerate(zip(instr.dsts, results, strict=True)):
            value = np.asarray(result)
            if value.size == np.prod(dst.shape):
                value = value.reshape(dst.shape)
            where = (
                mask
                if k == 0
                else None
                if mask is None
                else mask.any(axis=tuple(range(1, mask.ndim)), keepdims=True)
            )
            if combine is not None and dst.is_indirect:
                self.scatter(dst, value, combine, where)
                continue
            if combine is not None:
                value = REDUCTIONS[combine](self.read(dst, where).astype(np.float32), value)
            self.write(dst, converted(np.asarray(value), dst.dtype), where)

    def scatter(self, dst: Access, value: Array, combine: str, mask: Array | None) -> None:
        array, index = self.array(dst.tensor), self.index(dst, dst.shape)
        keep = np.broadcast_to(True if mask is None else mask, dst.shape)
        value = np.broadcast_to(value, dst.shape)
        for where in zip(*np.nonzero(keep), strict=True):
            at = tuple(i[where] for i in index)
            array[at] = REDUCTIONS[combine](np.float32(array[at]), value[where])

    def reduced_mask(self, instr: Instr, values: dict[str, Any], mask: Array) -> tuple[dict[str, Any], Array]:
        """Masked elements take no part in a reduction; rows without any element are not written."""
        name = REDUCED_OPERAND[instr.op]
        op = instr.attrs.get(
            "op", {"nl.max": "maximum", "nl.min": "minimum", "nl.prod": "multiply"}.get(instr.op, "add")
        )
        neutral = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[op]
        values = {**values, name: np.where(mask, values[name].astype(np.float32), np.float32(neutral))}
        return values, mask.any(axis=tuple(instr.attrs["axis"]), keepdims=True).reshape(instr.dst.shape)


def interpret_plainly(kernel: Kernel, args: Sequence[Any]) -> list[Array]:
    """What `interpret` must return."""
    return Plain(kernel).run(args)
