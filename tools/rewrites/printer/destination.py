"""The later ``nki`` package: instructions take their destination, tensors have no block dimensions, there are no masks."""

from __future__ import annotations

from ...neuroncore.ir import Access, Affine, Buffer, Instr, Loop, Node, Tensor
from ..refusal import RewriteError
from .beta1 import FILLED, Beta1Printer
from .text import number

_PATTERNED = ("nisa.iota", "nisa.affine_select")


class DestinationPrinter(Beta1Printer):
    """Statements of the form ``nisa.call(dst=tile, ...)``; what `nl` still returns is assigned."""

    package = "nki"

    def creates(self, instr: Instr) -> bool:
        """See `ModulePrinter`."""
        if instr.op in ("nl.load", "nl.load_transpose2d") or instr.op.startswith("nisa."):
            return False
        return super().creates(instr)

    def creation(self, tensor: Tensor) -> str:
        """See `ModulePrinter`."""
        if tensor.buffer.on_chip and tensor.par_dim > 0:
            raise RewriteError(
                "blocks", f"`{tensor.name}` has block dimensions, which the nki package has not"
            )
        return super().creation(tensor)

    def statement(self, instr: Instr) -> str:
        """See `ModulePrinter`."""
        if instr.mask:
            raise RewriteError("mask", f"the mask of {instr.op} has no form in the nki package")
        if instr.op == "nl.loop_reduce":
            raise RewriteError("operation", "nl.loop_reduce is not part of the nki package")
        target = self.subscripted(instr.dst)
        if instr.op == "nl.load":
            self.modules.add("nisa")
            return f"nisa.dma_copy(dst={target}, src={self.operand(instr.args['src'])})"
        if instr.op == "nl.store" and self._in_sbuf(instr.args["value"]):
            self.modules.add("nisa")
            return f"nisa.dma_copy(dst={target}, src={self.operand(instr.args['value'])})"
        if instr.op in FILLED and self._is_inferred_zero(instr):
            return self._declared_only(instr)
        if instr.op.startswith("nisa.") and instr.op != "nisa.dma_copy":
            self.modules.add("nisa")
            return f"{instr.op}({', '.join([f'dst={target}', *self.passed(instr)])})"
        return super().statement(instr)

    def passed(self, instr: Instr) -> list[str]:
        """The arguments after the destination."""
        if instr.op == "nisa.memset":
            return [f"value={number(instr.attrs['value'])}", *self.attributes(instr, skip=("value",))]
        if instr.op in _PATTERNED:
            return self.patterned(instr)
        out = []
        for key, value in instr.args.items():
            if value is None or (key == "scale" and value == 1.0):
                continue
            out.append(f"{key}={self.operand(value)}")
        out += self.attributes(instr)
        if len(instr.dsts) > 1:
            out.append(f"reduce_res={self.subscripted(instr.dsts[1])}")
        if instr.op == "nisa.nc_matmul" and not instr.attrs.get("is_transpose"):
            out += self.accumulation(instr)
        out.sort(key=_reading_order)
        return out

    def accumulation(self, instr: Instr) -> list[str]:
        """Whether a matmul adds, where the compiler would not infer it: later writes of a new tile do."""
        adds = bool(instr.attrs.get("accumulate"))
        tensor = instr.dst.tensor
        zero = self.first_writes.get(tensor)
        if adds:
            inferred = zero is not None and zero.op in FILLED and self._is_inferred_zero(zero)
            return [] if inferred else ["accumulate=True"]
        lone = self._writers(tensor) == [(instr, tensor.scope)]
        return [] if lone else ["accumulate=False"]

    def patterned(self, instr: Instr) -> list[str]:
        """``pattern=``, ``offset=`` and ``channel_multiplier=`` of an affine expression over the destination's axes."""
        expressions = [instr.attrs["expr"]] if instr.op == "nisa.iota" else list(instr.attrs["pred"])
        comparison: list[str] = []
        if instr.op == "nisa.affine_select":
            equal = len(expressions) == 2 and expressions[1] == -expressions[0]
            if len(expressions) != 1 and not equal:
                raise RewriteError("operation", "nisa.affine_select takes one comparison in the nki package")
            comparison = [f"cmp_op=nl.{'equal' if equal else 'greater_equal'}"]
        e: Affine = expressions[0]
        shape = instr.dst.shape
        steps = ", ".join(f"[{e.coefficient(axis)}, {n}]" for axis, n in enumerate(shape) if axis > 0)
        offset = self.affine(e.substitute({axis: 0 for axis in e.axes()}), ())
        parts = [f"pattern=[{steps}]", f"offset={offset}", f"channel_multiplier={e.coefficient(0)}"]
        for key, value in instr.args.items():
            parts.append(f"{key}={self.operand(value)}")
        if instr.op == "nisa.affine_select":
            parts.append(f"on_false_value={number(instr.attrs['on_false_value'])}")
        return [*parts, *comparison]

    # -- tiles that start at zero ---------------------------------------------------------------------------------------
    def _is_inferred_zero(self, instr: Instr) -> bool:
        """Whether a zero fill is what a new PSUM tile gets because matmuls add to it."""
        tensor = instr.dst.tensor
        if tensor.buffer is not Buffer.PSUM or instr.attrs.get("value") != 0 or instr.op != "nl.zeros":
            return False
        others = [(i, loop) for i, loop in self._writers(tensor) if i is not instr]
        if not others or any(i.op != "nisa.nc_matmul" or not i.attrs.get("accumulate") for i, _ in others):
            return False
        return len(others) > 1 or others[0][1] is not tensor.scope

    def _declared_only(self, instr: Instr) -> str:
        tensor = instr.dst.tensor
        self.declared.add(tensor)
        return f"{self.name(tensor)} = nl.ndarray({self.creation(tensor)})"

    def _writers(self, tensor: Tensor) -> list[tuple[Instr, Loop | None]]:
        out: list[tuple[Instr, Loop | None]] = []

        def visit(body: list[Node], loop: Loop | None) -> None:
            for node in body:
                if isinstance(node, Loop):
                    visit(node.body, node)
                elif any(d.tensor is tensor for d in node.dsts):
                    out.append((node, loop))

        visit(self.kernel.body, None)
        return out

    @staticmethod
    def _in_sbuf(value: object) -> bool:
        return isinstance(value, Access) and value.tensor.buffer is Buffer.SBUF


def _reading_order(argument: str) -> int:
    order = ("op", "data", "data1", "data2", "op0", "operand0", "reverse0", "op1", "operand1", "reverse1")
    name = argument.partition("=")[0]
    return order.index(name) if name in order else len(order)
