"""The module around a kernel: imports, signature, loops, declarations."""

from __future__ import annotations

import abc
from collections.abc import Iterator

import numpy as np

from ...neuroncore.ir import Instr, Kernel, Loop, LoopKind, Node, Tensor, TensorKind
from ..refusal import RewriteError
from .access import AccessPrinter
from .facts import first_writes, mentioned
from .text import arange, buffer_name, dtype_name, nested, number, tuple_of, wrapped


class ModulePrinter(AccessPrinter, abc.ABC):
    """Prints everything but single instructions, in which the dialects differ."""

    package = "neuronxcc.nki"

    def __init__(self, kernel: Kernel) -> None:
        """See `AccessPrinter`."""
        super().__init__(kernel)
        self.modules: set[str] = set()
        self.first_writes = first_writes(kernel.body)
        self.declared: set[Tensor] = set()

    @abc.abstractmethod
    def statement(self, instr: Instr) -> str:
        """One instruction as a statement, without indentation."""

    @abc.abstractmethod
    def creates(self, instr: Instr) -> bool:
        """Whether a call can stand as ``name = call(...)``: it writes a whole new tensor, as its result would be."""

    # -- the module ---------------------------------------------------------------------------------------------------
    def text(self) -> str:
        """The whole module."""
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
        tiles = [f"    {name} = {arange(*key)}" for key, name in sorted(self.index_tiles.items())]
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
        """A parameter in the signature."""
        mutable = any(t.name == name and t.mutable for t in self.kernel.params)
        if mutable:
            self.modules.add("nt")
            return f"{name}: nt.mutable_tensor"
        return name

    def imports(self) -> list[str]:
        """Import lines for the modules that the text used."""
        lines = ["import nki" if self.package == "nki" else f"import {self.package} as nki"]
        if "nisa" in self.modules:
            lines.append(f"import {self.package}.isa as nisa")
        lines.append(f"import {self.package}.language as nl")
        if "nt" in self.modules:
            lines.append(f"import {self.package}.typing as nt")
        if "np" in self.modules:
            lines.append("import numpy as np")
        return lines

    # -- statements ---------------------------------------------------------------------------------------------------
    def block(self, body: list[Node], scope: Loop | None, depth: int) -> Iterator[str]:
        """The lines of a loop's body or of the kernel's."""
        indent = "    " * depth
        for node in body:
            for tensor in mentioned(node):
                if tensor.scope is scope and not self.is_defined_by(node, tensor):
                    for line in self.declarations(tensor):
                        yield from wrapped(indent + line, indent)
            if isinstance(node, Loop):
                # The instances of a launch grid are iterations of no order, which is what affine_range says.
                named = LoopKind.AFFINE if node.kind is LoopKind.SPMD else node.kind
                kind = "range" if named is LoopKind.RANGE else f"nl.{named}"
                yield f"{indent}for {self.loop_names[node.var]} in {kind}({node.trips}):"
                yield from self.block(node.body, node, depth + 1)
            else:
                yield from wrapped(indent + self.statement(node), indent)

    def is_defined_by(self, node: Node, tensor: Tensor) -> bool:
        """Whether this node is the plain assignment that creates the tensor."""
        if tensor in self.declared:
            return False
        return isinstance(node, Instr) and self.creates(node) and node.dst.tensor is tensor

    def declarations(self, tensor: Tensor) -> list[str]:
        """Lines that create a tensor, and those it is a view of; none if that has been done."""
        if tensor in self.declared:
            return []
        self.declared.add(tensor)
        name = self.name(tensor)
        if tensor.view_of is not None:
            base = self.declarations(tensor.view_of)
            return [
                *base,
                f"{name} = {self.name(tensor.view_of)}.reshape({tuple_of(map(str, tensor.shape))})",
            ]
        if tensor.kind is TensorKind.CONSTANT:
            return [f"{name} = {self.constant(tensor)}"]
        return [f"{name} = nl.ndarray({self.creation(tensor)})"]

    def creation(self, tensor: Tensor) -> str:
        """What ``nl.ndarray`` is called with for a tensor."""
        dims = [str(n) for n in tensor.shape]
        if tensor.buffer.on_chip and tensor.par_dim > 0:
            dims[tensor.par_dim] = f"nl.par_dim({dims[tensor.par_dim]})"
        return f"{tuple_of(dims)}, dtype={dtype_name(tensor.dtype)}, buffer=nl.{buffer_name(tensor.buffer)}"

    def constant(self, tensor: Tensor) -> str:
        """The call that creates a constant tensor."""
        value = tensor.value
        assert value is not None
        self.modules.add("np")
        dtype = dtype_name(tensor.dtype)
        if (
            value.ndim == 2
            and value.shape[0] == value.shape[1]
            and np.array_equal(value, np.identity(len(value)))
        ):
            text = f"np.identity({len(value)}, dtype=np.float32)"
        elif value.size and (value == value.flat[0]).all():
            text = f"np.full({tuple_of(map(str, value.shape))}, {number(value.flat[0].item())}, dtype=np.float32)"
        elif value.size <= 4096:
            text = f"np.array({nested(value.tolist())}, dtype=np.float32)"
        else:
            raise RewriteError(
                "constant", f"the constant `{tensor.name}` of {value.size} elements is too large to print"
            )
        if tensor.dtype != np.dtype(np.float32):
            return f"nl.shared_constant({text}, dtype={dtype})"
        return f"nl.shared_constant({text})"
