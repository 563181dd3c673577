"""Repeat a row over the partitions once, in SBUF, instead of wherever it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Tensor
from .dataflow import Dataflow
from .extraction import extract, writers_closure
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, instrs_of, map_instr, replace_instrs


@dataclasses.dataclass(frozen=True)
class BroadcastOption(Option):
    """An operand that repeats over the partitions, and how many loops to take the repetition out of.

    Attributes:
        instr: where it is used first.
        operand: which of the instruction's arguments it is.
        tensor: what is repeated.
        levels: loops to leave, counted from the innermost.
        loop: index of the outermost loop left, empty if none.
    """

    instr: Path
    operand: str
    tensor: str
    levels: int
    loop: str

    def describe(self) -> str:
        """See `Option`."""
        when = f"once before the loop over {self.loop}" if self.levels else "once"
        return f"Repeat `{self.tensor}` over the partitions in SBUF {when}, and use that"


class BroadcastOnce(Rewrite[BroadcastOption]):
    """``x * g.broadcast_to(...)`` becomes ``x * g_rows`` with a tile that holds the row in every partition."""

    name = "broadcast-once"
    summary = (
        "A row that is broadcast over the partitions goes through the tensor engine at each use, and ISA calls do not take "
        "it: keep it repeated in SBUF, where every engine and every fused instruction can read it"
    )
    targets = ("vector", "tensor", "gpsimd")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[BroadcastOption]:
        """Every broadcast operand with every number of loops around it that it does not depend on."""
        seen: set[tuple[Access, tuple[object, ...]]] = set()
        for path, instr, loops in instrs_of(kernel):
            for name, access in instr.args.items():
                if not isinstance(access, Access) or not _repeats(access) or instr.op == "nl.copy":
                    continue
                if (access, loops) in seen:
                    continue
                seen.add((access, loops))
                if not loops:
                    yield BroadcastOption(path, name, access.tensor.name, 0, "")
                for levels in range(1, len(loops) + 1):
                    loop = loops[-levels]
                    if loop.var in access.loops():
                        break
                    yield BroadcastOption(path, name, access.tensor.name, levels, loop.var.name)

    def edit(self, kernel: Kernel, option: BroadcastOption) -> None:
        """See `Rewrite`."""
        instr, body, position, loops = instr_at(kernel, option.instr)
        row = instr.args.get(option.operand)
        if not isinstance(row, Access) or not _repeats(row) or option.levels > len(loops):
            raise RewriteError("option", "there is no operand that repeats over the partitions")
        flow = Dataflow(kernel)
        first = flow.site(instr)
        users = [
            site
            for site in flow.sites
            if site.loops == loops
            and site.order >= first.order
            and site.instr.op != "nl.copy"
            and row in site.instr.args.values()
            and flow.unchanged_between(row, first, site)
        ]
        scope = loops[-1] if loops else None
        rows = Tensor(f"{row.tensor.name}_rows", row.shape, np.dtype(row.dtype), Buffer.SBUF, scope=scope)
        copy = Instr("nl.copy", (rows.whole(),), {"src": row}, {}, (), instr.line)
        ids = {id(site.instr) for site in users}
        replace_instrs(
            body,
            lambda each: (
                map_instr(each, lambda a: rows.whole() if a == row else a) if id(each) in ids else each
            ),
        )
        body.insert(position, copy)
        if option.levels:
            loop = loops[-option.levels]
            extract(kernel, loop, writers_closure(loop, [copy]), keep_loop=False)


def _repeats(access: Access) -> bool:
    """Whether a tile on chip repeats one row over its partitions, and nothing along its free axes."""
    return (
        access.tensor.buffer.on_chip
        and not access.is_indirect
        and access.shape[0] > 1
        and access.free_size > 1
        and set(access.broadcast_axes()) == {0}
    )
