"""Move an instruction to an engine that has less to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.dtypes import is_float
from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Loop
from .dataflow import replace_instr
from .reductions import on_scalar_engine
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import FunctionStep, activation, scalar_step, tensor_scalar, tensor_step
from .structure import Path, instr_at, instrs_of


@dataclasses.dataclass(frozen=True)
class EngineOption(Option):
    """An instruction and the engine it goes to.

    Attributes:
        instr: where it is.
        result: its result.
        engine: ``vector``, ``scalar`` or ``gpsimd``.
    """

    instr: Path
    result: str
    engine: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Compute `{self.result}` on the {self.engine} engine"


class MoveEngine(Rewrite[EngineOption]):
    """Copies, sums and element-wise operations can run on more than one engine."""

    name = "move-engine"
    summary = (
        "Copies, scalings, shifts, squares, sums and element-wise operations run on more than one engine: move one from "
        "the busiest to an idle one"
    )
    targets = ("vector", "scalar", "gpsimd")

    def find(self, kernel: Kernel) -> Iterator[EngineOption]:
        """Every instruction with every engine that could run it instead."""
        for path, instr, _ in instrs_of(kernel):
            for engine in ("vector", "scalar", "gpsimd"):
                moved = _moved(instr, engine, None)
                if moved is not None and (moved[0].op, moved[0].attrs) != (instr.op, instr.attrs):
                    yield EngineOption(path, instr.dst.tensor.name, engine)

    def edit(self, kernel: Kernel, option: EngineOption) -> None:
        """See `Rewrite`."""
        instr, _, _, loops = instr_at(kernel, option.instr)
        moved = _moved(instr, option.engine, loops[-1] if loops else None)
        if moved is None:
            raise RewriteError("operation", f"{instr.op} does not run on the {option.engine} engine")
        replace_instr(kernel, instr, moved)


def _moved(instr: Instr, engine: str, scope: Loop | None) -> list[Instr] | None:
    """What to run instead of an instruction, with an engine for it; None if that engine has nothing for it."""
    moved = on_engine(instr, engine)
    if moved is not None:
        return [moved]
    return on_scalar_engine(instr, scope) if engine == "scalar" else None


def on_engine(instr: Instr, engine: str) -> Instr | None:
    """The instruction pinned to an engine, in whichever call can do it there; None if none can."""
    if engine == "gpsimd" and _touches_psum(instr):
        return None
    source = instr.args.get("src")
    if instr.op in ("nl.copy", "nisa.tensor_copy") and isinstance(source, Access):
        if source.broadcast_axes():
            return None
        if engine == "scalar":
            # An activation copies on every generation; tensor_copy takes the scalar engine from trn2 on.
            copying = FunctionStep(source, "copy", 1.0, None)
            return activation(instr.dst, copying, instr) if is_float(source.dtype) else None
        return Instr(
            "nisa.tensor_copy", instr.dsts, {"src": source}, {"engine": engine}, instr.mask, instr.line
        )
    scalar = scalar_step(instr)
    if scalar is not None:
        if 0 in scalar.data.broadcast_axes():
            return None
        if engine == "vector" and scalar.op == "multiply" and scalar.scalar == 1.0:
            args = {"src": scalar.data}
            return Instr("nisa.tensor_copy", instr.dsts, args, {"engine": engine}, instr.mask, instr.line)
        if engine == "vector":
            return tensor_scalar(instr.dst, scalar, None, instr, engine)
        if engine == "scalar" and scalar.op == "multiply":
            scale = scalar.scalar if isinstance(scalar.scalar, Access) else float(scalar.scalar)
            return activation(instr.dst, FunctionStep(scalar.data, "copy", scale, None), instr)
        if engine == "scalar" and scalar.op == "add" and isinstance(scalar.scalar, Access):
            return activation(instr.dst, FunctionStep(scalar.data, "copy", 1.0, scalar.scalar), instr)
        return None
    step = tensor_step(instr)
    if step is None or 0 in step.left.broadcast_axes() or 0 in step.right.broadcast_axes():
        return None
    if engine == "scalar" and step.op == "multiply" and step.left == step.right:
        return activation(instr.dst, FunctionStep(step.left, "square", 1.0, None), instr)
    if engine in ("vector", "gpsimd") and instr.dst.free_size > 1:
        if engine == "vector" and instr.attrs.get("engine", "unknown") == "unknown":
            return None
        args = {"data1": step.left, "data2": step.right}
        attrs = {"op": step.op, "engine": engine}
        return Instr("nisa.tensor_tensor", instr.dsts, args, attrs, instr.mask, instr.line)
    return None


def _touches_psum(instr: Instr) -> bool:
    tiles = [a for a in (*instr.dsts, *instr.args.values()) if isinstance(a, Access)]
    return any(a.tensor.buffer is Buffer.PSUM for a in tiles)
