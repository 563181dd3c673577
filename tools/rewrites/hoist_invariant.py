"""Hoist what does not depend on a loop out of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Instr, Kernel, Loop
from .dependence import depends_on_loop
from .extraction import extract, writers_closure
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, instrs_in, instrs_of, loop_at, loops_of, read_accesses


@dataclasses.dataclass(frozen=True)
class HoistOption(Option):
    """Run an instruction, and what it needs, before a loop.

    Attributes:
        loop: where the loop is.
        instr: where the instruction is, inside the loop; empty for everything that can be hoisted.
        name: the loop's index.
        result: the tensor that the instruction writes.
        op: its API name.
    """

    loop: Path
    instr: Path
    name: str
    result: str
    op: str

    def describe(self) -> str:
        """See `Option`."""
        if not self.instr:
            return (
                f"Hoist everything that does not depend on it out of the loop over {self.name}: {self.result}"
            )
        return f"Hoist `{self.result}` ({self.op}) and what it needs out of the loop over {self.name}"


class HoistInvariant(Rewrite[HoistOption]):
    """Move loop-invariant loads and computations out of a loop, keeping their results in SBUF."""

    name = "hoist-invariant"
    summary = (
        "Run loads and computations that do not depend on a loop once before it, and keep the results resident in SBUF "
        "(one block for every iteration of the loops that they do depend on)"
    )
    targets = ("memory", "tensor", "vector", "scalar", "spill")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[HoistOption]:
        """Loads, and the last invariant instruction of every chain, for each loop around them."""
        for path, loop, _ in loops_of(kernel):
            invariant = invariant_instrs(loop)
            ids = {id(i) for i in invariant}
            feeding = {
                id(writer)
                for reader in invariant
                for access in read_accesses(reader)
                for writer in invariant
                if writer is not reader
                and any(d.tensor.storage is access.tensor.storage for d in writer.dsts)
            }
            ends: list[str] = []
            for where, instr, _ in instrs_of(kernel):
                if id(instr) not in ids or instr.op in ("nisa.memset", "nl.zeros"):
                    continue
                if instr.op == "nl.load" or id(instr) not in feeding:
                    ends.append(instr.dst.tensor.name)
                    yield HoistOption(path, where, loop.var.name, instr.dst.tensor.name, instr.op)
            if len(ends) > 1:
                listed = ", ".join(f"`{name}`" for name in dict.fromkeys(ends))
                yield HoistOption(path, (), loop.var.name, listed, "")

    def edit(self, kernel: Kernel, option: HoistOption) -> None:
        """See `Rewrite`."""
        loop, _ = loop_at(kernel, option.loop)
        seeds = [instr_at(kernel, option.instr)[0]] if option.instr else invariant_instrs(loop)
        extract(kernel, loop, writers_closure(loop, seeds), keep_loop=False)


def invariant_instrs(loop: Loop) -> list[Instr]:
    """The instructions in a loop that give the same result in each of its iterations, in program order.

    Necessary conditions only; `extract` checks the rest.
    """
    everything = [instr for instr, _ in instrs_in(loop.body)]
    varying = {id(i) for i in everything if depends_on_loop(i, loop.var) or not i.dst.tensor.buffer.on_chip}
    changed = True
    while changed:
        changed = False
        touched = {d.tensor.storage for i in everything if id(i) in varying for d in i.dsts}
        for instr in everything:
            if id(instr) in varying:
                continue
            accesses = [*read_accesses(instr), *instr.dsts]
            if any(a.tensor.storage in touched for a in accesses):
                varying.add(id(instr))
                changed = True
    return [i for i in everything if id(i) not in varying]
