"""Beta 1 (``neuronxcc.nki``): calls return tiles, which are assigned."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...neuroncore.ir import Access, Affine, Buffer, Instr, Operand, TensorKind
from ..axes import is_elementwise
from ..refusal import RewriteError
from .facts import is_whole
from .module import ModulePrinter
from .text import buffer_name, conjunction, dtype_name, number, tuple_of

FILLED = {"nl.zeros", "nl.ones", "nl.full"}

_POSITIONAL = {
    "nl.load": ("src",),
    "nl.load_transpose2d": ("src",),
    "nl.copy": ("src",),
    "nl.matmul": ("x", "y"),
    "nl.transpose": ("x",),
    "nl.where": ("cond", "x", "y"),
    "nl.loop_reduce": ("x",),
    "nisa.nc_matmul": ("stationary", "moving"),
    "nisa.nc_transpose": ("data",),
    "nisa.tensor_copy": ("src",),
    "nisa.tensor_tensor": ("data1", "data2"),
    "nisa.tensor_tensor_scan": ("data0", "data1"),
    "nisa.reciprocal": ("data",),
    "nisa.bn_stats": ("data",),
    "nisa.bn_aggr": ("data",),
    "nisa.max8": ("src",),
}
"""Arguments given by position; all other arguments are named. Unlisted ``nl`` calls give ``x`` and ``y`` so."""

_OPERATION_FIRST = {"nisa.activation", "nisa.activation_reduce", "nisa.tensor_reduce"}
"""Calls whose operation is the first argument."""

_NAMED_ORDER = ("data", "op0", "operand0", "reverse0", "op1", "operand1", "reverse1")
"""Named arguments that read best in the order of the formula they stand for; others follow."""

_DEFAULTS: dict[str, Any] = {
    "engine": "unknown",
    "keepdims": False,
    "negate": False,
    "transpose_x": False,
    "is_stationary_onezero": False,
    "is_moving_onezero": False,
    "is_transpose": False,
    "reverse0": False,
    "reverse1": False,
    "reduce_cmd": "idle",
    "accumulate": False,
    "reverse_pred": False,
    "oob_mode": "error",
}
"""Attributes with these values are what the call means without them."""

_OP_ATTRIBUTES = {"op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1"}

_RESULT_PARAMETERS = {
    "nisa.activation": "reduce_res",
    "nisa.activation_reduce": "reduce_res",
    "nisa.tensor_scalar_reduce": "reduce_res",
}
"""Where the second result goes, for the calls that have one."""

_TO_PSUM = {"nl.matmul", "nisa.nc_matmul", "nl.transpose"}
"""Calls whose result is in PSUM unless it is assigned into another tensor."""


class Beta1Printer(ModulePrinter):
    """Statements of the form ``name = call(...)``, ``tensor[...] = call(...)``, ``tensor[...] += call(...)``."""

    def creates(self, instr: Instr) -> bool:
        """Whether a call can stand as ``name = call(...)``: it writes a whole new tensor, as its result would be."""
        tensor = instr.dst.tensor
        if tensor.kind is not TensorKind.LOCAL or not tensor.buffer.on_chip or tensor in self.declared:
            return False
        if self.first_writes.get(tensor) is not instr or instr.attrs.get("accumulate"):
            return False
        if not is_whole(instr.dst) or any(
            tensor is a.tensor for a in instr.args.values() if isinstance(a, Access)
        ):
            return False
        if instr.op in FILLED:
            return True
        if instr.op == "nisa.dma_copy" or tensor.par_dim != 0:
            return False
        return tensor.buffer is _result_buffer(instr)

    def statement(self, instr: Instr) -> str:
        """See `ModulePrinter`."""
        dst = instr.dst
        if instr.op in ("nl.store", "nl.atomic_rmw"):
            extra = self.attributes(instr)
            value = self.operand(instr.args["value"])
            self.modules.add("nl")
            parts = [self.subscripted(dst, always=True), f"value={value}", *extra, *self.mask(instr)]
            return f"{instr.op}({', '.join(parts)})"
        if instr.op == "nisa.dma_copy":
            self.modules.add("nisa")
            parts = [f"dst={self.subscripted(dst, always=True)}", f"src={self.operand(instr.args['src'])}"]
            return f"nisa.dma_copy({', '.join([*parts, *self.attributes(instr), *self.mask(instr)])})"
        if self.creates(instr):
            self.declared.add(dst.tensor)
            return f"{self.name(dst.tensor)} = {self.call(instr, new=True)}"
        target = self.subscripted(dst, always=True)
        if instr.attrs.get("accumulate"):
            return f"{target} += {self.call(instr, new=False)}"
        if self.is_in_place_add(instr):
            return f"{target} += {self.operand(instr.args['y'])}"
        return f"{target} = {self.call(instr, new=False)}"

    @staticmethod
    def is_in_place_add(instr: Instr) -> bool:
        """Whether an addition is ``tensor[...] += tile``."""
        return (
            instr.op == "nl.add"
            and instr.args.get("x") == instr.dst
            and isinstance(instr.args.get("y"), Access)
            and not instr.mask
        )

    def call(self, instr: Instr, new: bool) -> str:
        """The call itself. `new`: its result is a new tensor, so that the type must be right without a destination."""
        self.modules.add(instr.op.partition(".")[0])
        dst = instr.dst
        if instr.op in FILLED:
            value = instr.attrs["value"]
            fill = [] if instr.op in ("nl.zeros", "nl.ones") else [f"fill_value={number(value)}"]
            shape = tuple_of(map(str, dst.shape)) if not new else None
            created = self.creation(dst.tensor) if new else f"{shape}, dtype={dtype_name(dst.dtype)}"
            if not new:
                created += f", buffer=nl.{buffer_name(dst.tensor.buffer)}"
            head, _, tail = created.partition(", dtype=")
            return f"{instr.op}({', '.join([head, *fill, f'dtype={tail}'])})"
        if instr.op == "nisa.memset":
            shape = tuple_of(map(str, dst.shape))
            parts = [shape, f"value={number(instr.attrs['value'])}", f"dtype={dtype_name(dst.dtype)}"]
            return f"nisa.memset({', '.join([*parts, *self.attributes(instr, skip=('value',)), *self.mask(instr)])})"
        return f"{instr.op}({', '.join(self.arguments(instr))})"

    def arguments(self, instr: Instr) -> list[str]:
        """The call's arguments: operation first where the signature has it so, tiles, then everything by name."""
        positional = _POSITIONAL.get(instr.op, ("x", "y") if instr.op.startswith("nl.") else ())
        first: list[str] = []
        named: list[str] = []
        if instr.op in _OPERATION_FIRST:
            first.append(self.attribute("op", instr.attrs["op"]))
        elif instr.op == "nisa.iota":
            first.append(self.spanning(instr.attrs["expr"], instr.dst.shape))
        elif instr.op == "nisa.affine_select":
            conditions = [self.condition(e, instr.dst.shape) for e in instr.attrs["pred"]]
            first.append(f"pred={conjunction(conditions)}")
        for key, value in instr.args.items():
            if value is None or (key == "scale" and isinstance(value, float) and value == 1.0):
                continue
            text = self.operand(_shrunken(instr, value))
            if key in positional and not named:
                first.append(text)
            else:
                named.append(f"{key}={text}")
        named += self.attributes(instr, skip=("op",) if instr.op in _OPERATION_FIRST else ())
        named.sort(key=_signature_order)
        if len(instr.dsts) > 1:
            parameter = _RESULT_PARAMETERS.get(instr.op)
            if parameter is None or len(instr.dsts) > 2:
                raise RewriteError("results", f"{instr.op} with {len(instr.dsts)} results cannot be printed")
            named.append(f"{parameter}={self.subscripted(instr.dsts[1], always=True)}")
        if _default_dtype(instr) != instr.dst.dtype and not instr.attrs.get("accumulate"):
            named.append(f"dtype={dtype_name(instr.dst.dtype)}")
        return [*first, *named, *self.mask(instr)]

    def spanning(self, e: Affine, shape: tuple[int, ...]) -> str:
        """An index expression as a value: it has the shape of its index tiles, those that it does not vary along included."""
        others = [
            f"0 * {self.tile(len(shape), k, n)}" for k, n in enumerate(shape) if n > 1 and k not in e.axes()
        ]
        return " + ".join([*others, self.affine(e, shape)])

    def attributes(self, instr: Instr, skip: tuple[str, ...] = ()) -> list[str]:
        """Attributes that differ from what the call means without them."""
        out = []
        for key, value in instr.attrs.items():
            if key in skip or key in ("expr", "pred") or (key in _DEFAULTS and value == _DEFAULTS[key]):
                continue
            if value is None or key == "accumulate":
                continue
            if key == "loops":
                out.append(f"loop_indices=[{', '.join(self.loop_names[v] for v in value)}]")
            else:
                out.append(self.attribute(key, value, named=True))
        return out

    def attribute(self, key: str, value: Any, named: bool = False) -> str:
        """One attribute's value, with its name if asked for."""
        if key in _OP_ATTRIBUTES and isinstance(value, str):
            text = f"nl.{value}"
        elif key == "engine":
            self.modules.add("nisa")
            text = f"nisa.{value}_engine"
        elif key in ("reduce_cmd", "oob_mode"):
            self.modules.add("nisa")
            text = f"nisa.{key}.{value}"
        elif key == "axis":
            axes = value if isinstance(value, tuple | list) else (value,)
            text = f"[{', '.join(map(str, axes))}]"
        elif isinstance(value, Access):
            text = self.subscripted(value)
        elif isinstance(value, tuple | list):
            text = tuple_of(map(str, value))
        else:
            text = number(value)
        return f"{key}={text}" if named else text


def _shrunken(instr: Instr, value: Operand) -> Operand:
    """An operand without the free axes along which it repeats, where another operand says how far they run."""
    if not isinstance(value, Access) or not is_elementwise(instr):
        return value
    others = [a for a in instr.args.values() if isinstance(a, Access) and a is not value]
    shape = list(value.shape)
    for axis in value.broadcast_axes():
        if axis > 0 and any(axis not in a.broadcast_axes() and a.shape[axis] == shape[axis] for a in others):
            shape[axis] = 1
    return Access(value.tensor, value.index, tuple(shape))


def _result_buffer(instr: Instr) -> Buffer:
    """Where a call's result is when it is not assigned into another tensor."""
    if instr.op in _TO_PSUM:
        return Buffer.PSUM
    if instr.op == "nisa.nc_transpose":
        return Buffer.SBUF if instr.attrs.get("engine") == "vector" else Buffer.PSUM
    return Buffer.SBUF


def _default_dtype(instr: Instr) -> np.dtype[Any] | None:
    """The type a call's result has without ``dtype=``; None if that is not certain."""
    if instr.op in ("nl.matmul", "nisa.nc_matmul"):
        return np.dtype(np.float32)
    tiles = [a for a in instr.args.values() if isinstance(a, Access)]
    types = {a.dtype for a in tiles}
    if len(types) != 1:
        return None
    dtype = types.pop()
    scalars = [a for k, a in instr.args.items() if isinstance(a, float | int)]
    if instr.op.startswith("nl.") and scalars and dtype != np.dtype(np.float32):
        return None
    return dtype


def _signature_order(argument: str) -> int:
    name = argument.partition("=")[0]
    return _NAMED_ORDER.index(name) if name in _NAMED_ORDER else len(_NAMED_ORDER)
