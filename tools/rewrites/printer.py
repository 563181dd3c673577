"""From the intermediate representation back to NKI source that a person can read.

``trace(print_kernel(k))`` is the same program as ``k`` up to names and source lines, so a rewrite that edits the
representation always has a kernel to show for it, and one that a person can take over.

What the text looks like: results of API calls are plain assignments (``x_tile = nl.load(...)``); tensors that are
written in pieces are declared with ``nl.ndarray`` in the block they belong to, right before they are needed; an access
to a box of a tensor is written with slices, anything else (masks, steps, two tile axes in one dimension) with index
tiles from ``nl.arange`` that are defined once at the top. One subscript never mixes the two, as the compiler demands.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..neuroncore.dtypes import BY_NAME
from ..neuroncore.ir import (
    Access,
    Affine,
    Buffer,
    Indirect,
    Instr,
    Kernel,
    Loop,
    LoopKind,
    LoopVar,
    Node,
    Operand,
    Tensor,
    TensorKind,
)
from .axes import is_elementwise
from .refusal import RewriteError

_RESERVED = {
    "nki",
    "nl",
    "nisa",
    "nt",
    "np",
    "kernel",
    "slice",
    "range",
    "print",
    "len",
    "min",
    "max",
    "sum",
    "abs",
}

LINE_LENGTH = 110

_FILLED = {"nl.zeros", "nl.ones", "nl.full"}

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


def print_kernel(kernel: Kernel) -> str:
    """The source of a kernel, in its own dialect.

    Args:
        kernel: as traced or as left by a rewrite.

    Returns:
        A complete module: imports and one function decorated with ``@nki.jit``.

    Raises:
        RewriteError: for what has no source form: the later ``nki`` dialect, a launch grid, an array constant too
            large to be written out.
    """
    if kernel.dialect != "neuronxcc.nki":
        raise RewriteError("dialect", f"kernels of the `{kernel.dialect}` dialect cannot be printed")
    return _Printer(kernel).text()


class _Printer:
    """State of one printing: names given, index tiles needed, modules used."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.taken: set[str] = set(_RESERVED) | set(kernel.signature)
        self.tensor_names: dict[Tensor, str] = {}
        self.loop_names: dict[LoopVar, str] = {}
        self.index_tiles: dict[tuple[int, int, int], str] = {}
        self.modules: set[str] = set()
        self.scalar_names = _unique_scalars(kernel.scalars)
        self.first_writes = _first_writes(kernel.body)
        self.declared: set[Tensor] = set()
        self.extents = _extents_in_use(kernel)

    # -- the module ---------------------------------------------------------------------------------------------------
    def text(self) -> str:
        for tensor in self.kernel.params:
            self.tensor_names[tensor] = tensor.name
            self.taken.add(tensor.name)
            self.declared.add(tensor)
        for tensor in self.kernel.tensors():
            self.name(tensor)
        self.name_loops(self.kernel.body, {})
        head = [
            f"    {line}"
            for tensor in self.kernel.outputs
            if tensor.kind is TensorKind.LOCAL
            for line in self.declarations(tensor)
        ]
        body = [*head, *self.block(self.kernel.body, None, 1)]
        tiles = [f"    {name} = {_arange(*key)}" for key, name in sorted(self.index_tiles.items())]
        returned = ", ".join(self.tensor_names[t] for t in self.kernel.outputs)
        lines = [
            "@nki.jit",
            f"def {self.kernel.name}({', '.join(map(self.parameter, self.kernel.signature))}):",
            *tiles,
            *([""] if tiles else []),
            *body,
            "",
            f"    return {returned}",
        ]
        return "\n".join([*self.imports(), "", "", *lines]) + "\n"

    def parameter(self, name: str) -> str:
        mutable = any(t.name == name and t.mutable for t in self.kernel.params)
        if mutable:
            self.modules.add("nt")
            return f"{name}: nt.mutable_tensor"
        return name

    def imports(self) -> list[str]:
        lines = ["import neuronxcc.nki as nki"]
        if "nisa" in self.modules:
            lines.append("import neuronxcc.nki.isa as nisa")
        lines.append("import neuronxcc.nki.language as nl")
        if "nt" in self.modules:
            lines.append("import neuronxcc.nki.typing as nt")
        if "np" in self.modules:
            lines.append("import numpy as np")
        return lines

    # -- names --------------------------------------------------------------------------------------------------------
    def unique(self, wanted: str) -> str:
        stem = re.sub(r"\W", "_", wanted).strip("_") or "tile"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"t_{stem}"
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def name(self, tensor: Tensor) -> str:
        if tensor not in self.tensor_names:
            self.tensor_names[tensor] = self.unique(tensor.name)
        return self.tensor_names[tensor]

    def name_loops(self, body: list[Node], outer: dict[str, LoopVar]) -> None:
        """Loops keep the source's names; only a loop inside another of the same name gets a new one."""
        tensor_names = set(self.tensor_names.values()) | set(self.kernel.signature) | _RESERVED
        for node in body:
            if not isinstance(node, Loop):
                continue
            stem = re.sub(r"_\d+$", "", node.var.name)
            stem = stem if stem.isidentifier() and not keyword.iskeyword(stem) else "i"
            name, n = stem, 1
            while name in outer or name in tensor_names:
                n += 1
                name = f"{stem}_{n}"
            self.loop_names[node.var] = name
            self.taken.add(name)
            self.name_loops(node.body, {**outer, name: node.var})

    # -- statements ---------------------------------------------------------------------------------------------------
    def block(self, body: list[Node], scope: Loop | None, depth: int) -> Iterator[str]:
        indent = "    " * depth
        for node in body:
            for tensor in _mentioned(node):
                if tensor.scope is scope and not self.is_defined_by(node, tensor):
                    for line in self.declarations(tensor):
                        yield from _wrapped(indent + line, indent)
            if isinstance(node, Loop):
                if node.kind is LoopKind.SPMD:
                    raise RewriteError(
                        "grid", "a kernel with a launch grid has no single-function source form"
                    )
                kind = "range" if node.kind is LoopKind.RANGE else f"nl.{node.kind}"
                yield f"{indent}for {self.loop_names[node.var]} in {kind}({node.trips}):"
                yield from self.block(node.body, node, depth + 1)
            else:
                yield from _wrapped(indent + self.statement(node, scope), indent)

    def is_defined_by(self, node: Node, tensor: Tensor) -> bool:
        """Whether this node is the plain assignment that creates the tensor."""
        if tensor in self.declared:
            return False
        return isinstance(node, Instr) and self.creates(node) and node.dst.tensor is tensor

    def creates(self, instr: Instr) -> bool:
        """Whether a call can stand as ``name = call(...)``: it writes a whole new tensor, as its result would be."""
        tensor = instr.dst.tensor
        if tensor.kind is not TensorKind.LOCAL or not tensor.buffer.on_chip or tensor in self.declared:
            return False
        if self.first_writes.get(tensor) is not instr or instr.attrs.get("accumulate"):
            return False
        if not _is_whole(instr.dst) or any(
            tensor is a.tensor for a in instr.args.values() if isinstance(a, Access)
        ):
            return False
        if instr.op in _FILLED:
            return True
        if instr.op == "nisa.dma_copy" or tensor.par_dim != 0:
            return False
        return tensor.buffer is _result_buffer(instr) and tensor.dtype == self.result_dtype(instr)

    def result_dtype(self, instr: Instr) -> np.dtype[Any]:
        """The result's element type: every call takes ``dtype=``, and it is printed where it is not the default."""
        return instr.dst.tensor.dtype

    def declarations(self, tensor: Tensor) -> list[str]:
        if tensor in self.declared:
            return []
        self.declared.add(tensor)
        name = self.name(tensor)
        if tensor.view_of is not None:
            base = self.declarations(tensor.view_of)
            return [*base, f"{name} = {self.name(tensor.view_of)}.reshape({_tuple(map(str, tensor.shape))})"]
        if tensor.kind is TensorKind.CONSTANT:
            return [f"{name} = {self.constant(tensor)}"]
        return [f"{name} = nl.ndarray({self.creation(tensor)})"]

    def creation(self, tensor: Tensor, buffer_needed: bool = True) -> str:
        dims = [str(n) for n in tensor.shape]
        if tensor.buffer.on_chip and tensor.par_dim > 0:
            dims[tensor.par_dim] = f"nl.par_dim({dims[tensor.par_dim]})"
        return f"{_tuple(dims)}, dtype={_dtype_name(tensor.dtype)}, buffer=nl.{_buffer_name(tensor.buffer)}"

    def constant(self, tensor: Tensor) -> str:
        value = tensor.value
        assert value is not None
        self.modules.add("np")
        dtype = _dtype_name(tensor.dtype)
        if (
            value.ndim == 2
            and value.shape[0] == value.shape[1]
            and np.array_equal(value, np.identity(len(value)))
        ):
            text = f"np.identity({len(value)}, dtype=np.float32)"
        elif value.size and (value == value.flat[0]).all():
            text = (
                f"np.full({_tuple(map(str, value.shape))}, {_number(value.flat[0].item())}, dtype=np.float32)"
            )
        elif value.size <= 4096:
            text = f"np.array({_nested(value.tolist())}, dtype=np.float32)"
        else:
            raise RewriteError(
                "constant", f"the constant `{tensor.name}` of {value.size} elements is too large to print"
            )
        if tensor.dtype != np.dtype(np.float32):
            return f"nl.shared_constant({text}, dtype={dtype})"
        return f"nl.shared_constant({text})"

    def statement(self, instr: Instr, scope: Loop | None) -> str:
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
        if instr.op in _FILLED:
            value = instr.attrs["value"]
            fill = [] if instr.op in ("nl.zeros", "nl.ones") else [f"fill_value={_number(value)}"]
            shape = _tuple(map(str, dst.shape)) if not new else None
            created = self.creation(dst.tensor) if new else f"{shape}, dtype={_dtype_name(dst.dtype)}"
            if not new:
                created += f", buffer=nl.{_buffer_name(dst.tensor.buffer)}"
            head, _, tail = created.partition(", dtype=")
            return f"{instr.op}({', '.join([head, *fill, f'dtype={tail}'])})"
        if instr.op == "nisa.memset":
            shape = _tuple(map(str, dst.shape))
            parts = [shape, f"value={_number(instr.attrs['value'])}", f"dtype={_dtype_name(dst.dtype)}"]
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
            first.append(self.affine(instr.attrs["expr"], instr.dst.shape))
        elif instr.op == "nisa.affine_select":
            conditions = [self.condition(e, instr.dst.shape) for e in instr.attrs["pred"]]
            first.append(f"pred={_conjunction(conditions)}")
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
            named.append(f"dtype={_dtype_name(instr.dst.dtype)}")
        return [*first, *named, *self.mask(instr)]

    def attributes(self, instr: Instr, skip: tuple[str, ...] = ()) -> list[str]:
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
        if key in _OP_ATTRIBUTES and isinstance(value, str):
            text = f"nl.{value}"
        elif key == "engine":
            self.modules.add("nisa")
            text = f"nisa.{value}_engine"
        elif key == "reduce_cmd":
            self.modules.add("nisa")
            text = f"nisa.reduce_cmd.{value}"
        elif key == "axis":
            axes = value if isinstance(value, tuple | list) else (value,)
            text = f"[{', '.join(map(str, axes))}]"
        elif isinstance(value, Access):
            text = self.subscripted(value)
        elif isinstance(value, tuple | list):
            text = _tuple(map(str, value))
        else:
            text = _number(value)
        return f"{key}={text}" if named else text

    # -- operands -----------------------------------------------------------------------------------------------------
    def operand(self, value: Operand) -> str:
        if isinstance(value, Access):
            return self.subscripted(value)
        if isinstance(value, float) and value in self.scalar_names:
            return self.scalar_names[value]
        return _number(value)

    def subscripted(self, access: Access, always: bool = False) -> str:
        """An access as source. `always`: with a subscript even for the whole tensor, as an assignment needs it."""
        name = self.name(access.tensor)
        broadcast = access.broadcast_axes()
        if broadcast:
            shape = tuple(1 if k in broadcast else n for k, n in enumerate(access.shape))
            inner = Access(access.tensor, access.index, shape)
            return f"{self.subscripted(inner)}.broadcast_to({_tuple(map(str, access.shape))})"
        if _is_whole(access) and (access.tensor.par_dim == 0):
            return f"{name}[...]" if always else name
        slices = self.slices(access)
        if slices is not None:
            return f"{name}[{', '.join(slices)}]"
        return f"{name}[{', '.join(self.index(e, access.shape) for e in access.index)}]"

    def slices(self, access: Access) -> list[str] | None:
        """The subscript in slices, or None if the access is not a plain box of the tensor.

        Slices keep their dimension and numbers drop it, so the slices must be the tile's axes in order. A tile axis of
        one element appears in no index; a dimension that is indexed by a number carries it, as a slice of length one.
        """
        if access.is_indirect:
            return None
        tensor = access.tensor
        axis = len(access.shape) - 1
        out: list[str] = []
        for dim in range(len(tensor.shape) - 1, -1, -1):
            e, extent = access.affine[dim], tensor.shape[dim]
            axes = e.axes()
            if axes:
                if axes != (axis,) or e.coefficient(axis) != 1:
                    return None
                start = e - Affine.of(axis)
                low, high = start.bounds(lambda s: s.trips if isinstance(s, LoopVar) else 1)
                if low < 0 or high + access.shape[axis] > extent:
                    return None  # only a mask keeps it inside, and masks go with index tiles
                out.append(self.slice(start, access.shape[axis], extent))
                axis -= 1
            elif axis >= 0 and access.shape[axis] == 1 and self.may_carry(tensor, dim, axis):
                out.append(self.slice(e, 1, extent))
                axis -= 1
            else:
                out.append(self.affine(e, ()))
        return out[::-1] if axis < 0 else None

    @staticmethod
    def may_carry(tensor: Tensor, dim: int, axis: int) -> bool:
        """Whether a dimension may be the tile's axis: on chip, the first axis is the partition and blocks are none."""
        if not tensor.buffer.on_chip:
            return True
        return dim == tensor.par_dim if axis == 0 else dim > tensor.par_dim

    def slice(self, start: Affine, size: int, extent: int) -> str:
        if start.is_const and start.const == 0 and size == extent:
            return ":"
        low, high = self.affine(start, ()), self.affine(start + size, ())
        return f"{low}:{high}" if start.is_const else f"{low} : {high}"

    def index(self, e: Affine | Indirect, shape: tuple[int, ...]) -> str:
        if isinstance(e, Indirect):
            inner = f"{self.name(e.tile.tensor)}[{', '.join(self.index(i, shape) for i in e.tile.index)}]"
            text = inner if e.scale == 1 else f"{e.scale} * {inner}"
            offset = self.affine(e.offset, shape)
            return text if offset == "0" else f"{text} + {offset}"
        return self.affine(e, shape)

    def affine(self, e: Affine, shape: tuple[int, ...]) -> str:
        """An index expression; axes are written as index tiles of the access's shape."""
        text = ""
        for symbol, c in sorted(e.terms.items(), key=_loops_first):
            name = (
                self.tile(len(shape), symbol, shape[symbol])
                if isinstance(symbol, int)
                else self.loop_names[symbol]
            )
            term = name if abs(c) == 1 else f"{abs(c)} * {name}"
            text += (f" - {term}" if c < 0 else f" + {term}") if text else (f"-{term}" if c < 0 else term)
        if not text:
            return str(e.const)
        if e.const:
            text += f" + {e.const}" if e.const > 0 else f" - {-e.const}"
        return text

    def tile(self, rank: int, axis: int, extent: int) -> str:
        """The name of ``nl.arange(extent)`` along one axis of tiles of that rank."""
        key = (rank, axis, extent)
        if key not in self.index_tiles:
            letters = {1: "p", 2: "pf", 3: "pxf", 4: "pxyf", 5: "pxyzf"}.get(rank)
            stem = f"i_{letters[axis]}" if letters else f"i_{axis}"
            stem = stem if rank == 2 else f"{stem}_{rank}d"
            others = {n for r, a, n in self.extents if (r, a) == (rank, axis)}
            if len(others) > 1:
                stem = f"{stem}_{extent}"
            self.index_tiles[key] = self.unique(stem)
        return self.index_tiles[key]

    # -- masks --------------------------------------------------------------------------------------------------------
    def mask(self, instr: Instr) -> list[str]:
        if not instr.mask:
            return []
        return [f"mask={_conjunction([self.condition(e, instr.dst.shape) for e in instr.mask])}"]

    def condition(self, e: Affine, shape: tuple[int, ...]) -> str:
        """``e >= 0`` with the negative terms moved to the other side: ``128 * i + i_p < 1000``."""
        left = Affine(0, {s: -c for s, c in e.terms.items() if c < 0})
        right = Affine(e.const, {s: c for s, c in e.terms.items() if c > 0})
        if left.is_const:
            return f"{self.affine(right - e.const, shape)} >= {-e.const}"
        if right.is_const:
            return f"{self.affine(left, shape)} < {e.const + 1}"
        return f"{self.affine(left, shape)} <= {self.affine(right, shape)}"


# -- facts about the kernel -------------------------------------------------------------------------------------------
def _mentioned(node: Node) -> list[Tensor]:
    """Every tensor that a node touches, in order."""
    seen: dict[Tensor, None] = {}
    nodes = [node]
    while nodes:
        current = nodes.pop(0)
        if isinstance(current, Loop):
            nodes[:0] = current.body
            continue
        accesses = [
            *current.reads(),
            *current.dsts,
            *(v for v in current.attrs.values() if isinstance(v, Access)),
        ]
        for access in accesses:
            seen[access.tensor] = None
    return list(seen)


def _first_writes(body: list[Node]) -> dict[Tensor, Instr]:
    """For each tensor, the instruction that touches it first, if that instruction writes it."""
    first: dict[Tensor, Instr | None] = {}
    stack: list[Node] = list(body)
    while stack:
        node = stack.pop(0)
        if isinstance(node, Loop):
            stack[:0] = node.body
            continue
        for access in node.reads():
            first.setdefault(access.tensor, None)
        for access in node.dsts:
            first.setdefault(access.tensor, node)
    return {t: i for t, i in first.items() if i is not None}


def _extents_in_use(kernel: Kernel) -> set[tuple[int, int, int]]:
    """Rank, axis and extent of every index tile that could be needed, so that names can tell extents apart."""
    out: set[tuple[int, int, int]] = set()
    for instr, _ in kernel.walk():
        shapes = [a.shape for a in (*instr.dsts, *instr.reads()) if not _is_box(a)]
        if instr.mask or instr.op in ("nisa.iota", "nisa.affine_select"):
            shapes.append(instr.dst.shape)
        for shape in shapes:
            out.update((len(shape), axis, n) for axis, n in enumerate(shape) if n > 1)
    return out


def _is_box(access: Access) -> bool:
    if access.is_indirect:
        return False
    position = 0
    for e in access.affine:
        axes = e.axes()
        if not axes:
            continue
        if len(axes) != 1 or axes[0] < position or e.coefficient(axes[0]) != 1:
            return False
        position = axes[0] + 1
    return True


def _is_whole(access: Access) -> bool:
    """Whether it covers its tensor, dimension by dimension; an axis of extent 1 may be written as 0."""
    if access.is_indirect or access.shape != access.tensor.shape:
        return False
    return all(
        e == Affine.of(k) or (n == 1 and e == Affine(0))
        for k, (e, n) in enumerate(zip(access.affine, access.shape, strict=True))
    )


def _unique_scalars(scalars: dict[str, Any]) -> dict[float, str]:
    """Parameters that carry a float no other parameter carries, by value: printed by name where that value is used."""
    values = [v for v in scalars.values() if isinstance(v, float)]
    return {
        v: name
        for name, v in scalars.items()
        if isinstance(v, float) and values.count(v) == 1 and not v.is_integer()
    }


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


def _loops_first(term: tuple[LoopVar | int, int]) -> tuple[bool, int]:
    symbol, _ = term
    return (True, symbol) if isinstance(symbol, int) else (False, 0)


# -- text -------------------------------------------------------------------------------------------------------------
def _wrapped(line: str, indent: str) -> list[str]:
    """A statement on one line or, if it is long and ends in a call, with one argument to a line."""
    if len(line) <= LINE_LENGTH or not line.endswith(")"):
        return [line]
    depth, opening = 0, -1
    for position in range(len(line) - 1, -1, -1):
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(line[position], 0)
        if depth == 0:
            opening = position
            break
    arguments, start, depth = [], opening + 1, 0
    for position in range(opening + 1, len(line) - 1):
        depth += {")": -1, "]": -1, "(": 1, "[": 1}.get(line[position], 0)
        if line[position] == "," and depth == 0:
            arguments.append(line[start:position].strip())
            start = position + 1
    arguments.append(line[start:-1].strip())
    return [line[: opening + 1], *(f"{indent}    {argument}," for argument in arguments), f"{indent})"]


def _tuple(parts: Any) -> str:
    items = list(parts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _arange(rank: int, axis: int, extent: int) -> str:
    if rank == 1:
        return f"nl.arange({extent})"
    keys = ", ".join(":" if k == axis else "None" for k in range(rank))
    return f"nl.arange({extent})[{keys}]"


def _number(value: Any) -> str:
    """A Python number so that it reads back as the same one."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return 'float("nan")'
        if math.isinf(number):
            return 'float("inf")' if number > 0 else '-float("inf")'
        return repr(number)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, str):
        return repr(value)
    raise RewriteError("value", f"{value!r} has no source form")


def _nested(value: Any) -> str:
    return f"[{', '.join(map(_nested, value))}]" if isinstance(value, list) else _number(value)


def _buffer_name(buffer: Buffer) -> str:
    return buffer.value


def _dtype_name(dtype: np.dtype[Any]) -> str:
    for name, candidate in BY_NAME.items():
        if candidate == dtype and name not in ("tfloat32", "float32r", "bool_"):
            return f"nl.{name}"
    raise RewriteError("dtype", f"{dtype} is not an element type of NKI")


def _conjunction(conditions: list[str]) -> str:
    return f"({conditions[0]})" if len(conditions) == 1 else " & ".join(f"({c})" for c in conditions)
