"""Make the transpose hidden in ``nl.matmul`` explicit, and do it once instead of in every iteration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Tensor
from .extraction import extract, writers_closure
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, instrs_of, locate


@dataclasses.dataclass(frozen=True)
class TransposeOption(Option):
    """One ``nl.matmul``, and how many loops to take its transpose out of.

    Attributes:
        instr: where the matmul is.
        tensor: its left operand.
        result: the tensor it computes.
        levels: loops to leave, counted from the innermost; 0 keeps the transpose next to the matmul.
        loop: index of the outermost loop left, empty if none.
    """

    instr: Path
    tensor: str
    result: str
    levels: int
    loop: str

    def describe(self) -> str:
        """See `Option`."""
        what = f"Transpose `{self.tensor}` explicitly, not inside the nl.matmul into `{self.result}`"
        return f"{what}, once before the loop over {self.loop}" if self.levels else what


class ExplicitTranspose(Rewrite[TransposeOption]):
    """``nl.matmul(x, y)`` becomes a transpose of x, its copy to SBUF, and ``nisa.nc_matmul``."""

    name = "explicit-transpose"
    summary = (
        "nl.matmul transposes its left operand on the tensor engine every time; transpose it once outside of the loops "
        "that reuse it, keep it in SBUF, and multiply with nisa.nc_matmul"
    )
    targets = ("tensor", "scalar")

    def find(self, kernel: Kernel) -> Iterator[TransposeOption]:
        """Every ``nl.matmul`` with every number of loops around it."""
        for path, instr, loops in instrs_of(kernel):
            x = instr.args.get("x")
            if instr.op != "nl.matmul" or not isinstance(x, Access):
                continue
            names = (x.tensor.name, instr.dst.tensor.name)
            yield TransposeOption(path, *names, 0, "")
            if instr.attrs.get("transpose_x"):
                continue
            for levels in range(1, len(loops) + 1):
                if loops[-levels].var not in x.loops():
                    yield TransposeOption(path, *names, levels, loops[-levels].var.name)

    def edit(self, kernel: Kernel, option: TransposeOption) -> None:
        """See `Rewrite`."""
        transposed = make_explicit(kernel, option.instr)
        _, _, loops = locate(kernel, option.instr)
        if not option.levels:
            return
        if transposed is None or option.levels > len(loops):
            raise RewriteError("option", "there is no transpose to hoist")
        loop = loops[-option.levels]
        extract(kernel, loop, writers_closure(loop, [transposed]), keep_loop=False)


def make_explicit(kernel: Kernel, path: Path) -> Instr | None:
    """Replace an ``nl.matmul`` by its parts, in place.

    Returns:
        the copy of the transposed operand to SBUF; None if the operand was given transposed.

    Raises:
        RewriteError: if there is no such matmul.
    """
    instr, body, position, loops = instr_at(kernel, path)
    x, y = instr.args.get("x"), instr.args.get("y")
    if instr.op != "nl.matmul" or not isinstance(x, Access) or not isinstance(y, Access):
        raise RewriteError("option", f"{instr.op} is not nl.matmul")
    attrs = {"is_stationary_onezero": False, "is_moving_onezero": False, "is_transpose": False}
    if instr.attrs.get("accumulate"):
        attrs["accumulate"] = True
    if instr.attrs.get("transpose_x"):
        body[position] = Instr(
            "nisa.nc_matmul", instr.dsts, {"stationary": x, "moving": y}, attrs, instr.mask
        )
        return None
    scope = loops[-1] if loops else None
    shape = (x.shape[1], x.shape[0])
    in_psum = Tensor(f"{x.tensor.name}_t_psum", shape, np.dtype(x.dtype), Buffer.PSUM, scope=scope)
    in_sbuf = Tensor(f"{x.tensor.name}_t", shape, np.dtype(x.dtype), Buffer.SBUF, scope=scope)
    transpose = Instr("nisa.nc_transpose", (in_psum.whole(),), {"data": x}, {"engine": "tensor"})
    copy = Instr("nl.copy", (in_sbuf.whole(),), {"src": in_psum.whole()})
    matmul = Instr(
        "nisa.nc_matmul", instr.dsts, {"stationary": in_sbuf.whole(), "moving": y}, attrs, instr.mask
    )
    body[position : position + 1] = [transpose, copy, matmul]
    return copy
