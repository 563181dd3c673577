"""Let matmuls add up in PSUM instead of adding their results on another engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..neuroncore.dtypes import FLOAT32
from ..neuroncore.ir import Access, Buffer, Instr, Kernel, Loop, Tensor
from .dataflow import Dataflow, Site, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, instrs_in, is_local, read_accesses

_MATMULS = ("nl.matmul", "nisa.nc_matmul")


@dataclasses.dataclass(frozen=True)
class AccumulateOption(Option):
    """An addition of matmul results.

    Attributes:
        instr: where the addition is.
        result: what it computes.
        over: index of the loop that the sum runs over, empty if it adds two separate results.
    """

    instr: Path
    result: str
    over: str

    def describe(self) -> str:
        """See `Option`."""
        if self.over:
            return f"Accumulate `{self.result}` over {self.over} in PSUM instead of adding in SBUF"
        return f"Let the matmuls whose results are added into `{self.result}` accumulate in one PSUM tile"


class AccumulateInPsum(Rewrite[AccumulateOption]):
    """Replace additions of matmul results by accumulation in PSUM."""

    name = "accumulate-in-psum"
    summary = (
        "The tensor engine adds to a PSUM tile for free: let matmuls accumulate there instead of copying each result and "
        "adding on the vector engine"
    )
    targets = ("vector", "scalar", "latency")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[AccumulateOption]:
        """Additions of two matmul results, and sums of matmul results over a loop."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            if site.instr.op != "nl.add":
                continue
            if site.instr.args["x"] == site.instr.dst:
                over = site.loops[-1].var.name if site.loops else ""
                yield AccumulateOption(site.path, site.instr.dst.tensor.name, over)
            else:
                yield AccumulateOption(site.path, site.instr.dst.tensor.name, "")

    def edit(self, kernel: Kernel, option: AccumulateOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        if site.instr.op != "nl.add" or site.instr.mask:
            raise RewriteError("option", "there is no unmasked addition")
        if option.over:
            _over_loop(kernel, flow, site)
        else:
            _two_results(kernel, flow, site)
        drop_dead(kernel)


def _matmul_result(flow: Dataflow, access: object, reader: Site) -> tuple[Access, list[Site]] | None:
    """The PSUM tile behind an operand (possibly copied to SBUF), and the matmuls that fill it."""
    if not isinstance(access, Access):
        return None
    producer = flow.producer(access, reader)
    if (
        producer is not None
        and producer.instr.op in ("nl.copy", "nisa.tensor_copy")
        and not producer.instr.mask
    ):
        source = producer.instr.args["src"]
        if not isinstance(source, Access) or access.dtype != FLOAT32:
            return None
        access = source
    if access.tensor.buffer is not Buffer.PSUM or access != access.tensor.whole():
        return None
    writers = flow.writers.get(access.tensor, [])
    matmuls = [w for w in writers if w.instr.op in _MATMULS]
    others = [w for w in writers if w.instr.op not in _MATMULS]
    if not matmuls or any(w.instr.op != "nl.zeros" for w in others) or any(m.instr.mask for m in matmuls):
        return None
    if any(m.instr.attrs.get("is_transpose") or m.instr.dst != access for m in matmuls):
        return None
    return access, matmuls


def _two_results(kernel: Kernel, flow: Dataflow, site: Site) -> None:
    """``a + b`` of two matmul results: the later one's matmuls add to the earlier one's tile."""
    left = _matmul_result(flow, site.instr.args["x"], site)
    right = _matmul_result(flow, site.instr.args["y"], site)
    if left is None or right is None or left[0].tensor is right[0].tensor or left[0].shape != right[0].shape:
        raise RewriteError("option", "the operands are not two matmul results")
    if max(s.order for s in left[1]) > max(s.order for s in right[1]):
        left, right = right, left
    (target, earlier), (source, later) = left, right
    here = site.loops[-1] if site.loops else None
    if target.tensor.scope is not here or source.tensor.scope is not here:
        raise RewriteError("scope", "the two results do not belong to the same iteration")
    first, last = min(s.order for s in later), max(s.order for s in earlier)
    if last > first:
        raise RewriteError("dependence", "the two sums are interleaved")
    for tensor in (target.tensor, source.tensor):
        if len(flow.readers.get(tensor, [])) > _own_reads(flow, tensor) + 1:
            raise RewriteError("dependence", f"`{tensor.name}` is used by itself, too")
    for other in (*flow.readers.get(target.tensor, ()),):
        if (
            other.order > last
            and other.order < first
            and other.instr.op not in ("nl.copy", "nisa.tensor_copy")
        ):
            raise RewriteError("dependence", f"`{target.tensor.name}` is used before the second sum")
    zeroed = any(w.instr.op == "nl.zeros" for w in flow.writers[target.tensor])
    if not zeroed and (len(earlier) > 1 or earlier[0].loops != site.loops):
        raise RewriteError("dependence", f"`{target.tensor.name}` is not set before it accumulates")
    for s in later:
        accumulated = s.instr.replace(dsts=(target,), attrs={**s.instr.attrs, "accumulate": True})
        replace_instr(kernel, s.instr, [accumulated])
    for w in flow.writers[source.tensor]:
        if w.instr.op == "nl.zeros":
            replace_instr(kernel, w.instr, [])
    copy = Instr("nl.copy", site.instr.dsts, {"src": target}, {}, (), site.instr.line)
    replace_instr(kernel, site.instr, [copy])
    if not zeroed:
        # Accumulation needs a tile that starts at zero; the first matmul now accumulates as well.
        only = earlier[0].instr
        zeros = Instr("nl.zeros", (target,), {}, {"value": 0.0}, (), only.line)
        replace_instr(kernel, only, [zeros, only.replace(attrs={**only.attrs, "accumulate": True})])


def _own_reads(flow: Dataflow, tensor: Tensor) -> int:
    return sum(1 for s in flow.readers.get(tensor, []) if any(d.tensor is tensor for d in s.instr.dsts))


def _over_loop(kernel: Kernel, flow: Dataflow, site: Site) -> None:
    """``sum[...] += matmul(...)`` over a loop, with the sum in SBUF: accumulate in PSUM and copy once after the loop."""
    total = site.instr.dst
    found = _matmul_result(flow, site.instr.args["y"], site)
    if found is None or site.instr.args["x"] != total:
        raise RewriteError("option", "what is added is not a matmul result")
    part, matmuls = found
    loop = site.loops[-1] if site.loops else None
    if (
        loop is None
        or loop.var in total.loops()
        or part.tensor.scope is not loop
        or not is_local(total.tensor)
    ):
        raise RewriteError("shape", "the sum does not run over the innermost loop")
    if total.dtype != FLOAT32 or total.shape != part.shape:
        raise RewriteError("dtype", "the sum is not a float32 tile of the matmul's shape")
    initial = [w for w in flow.writers[total.tensor] if w is not site]
    if (
        len(initial) != 1
        or initial[0].instr.op not in ("nl.zeros", "nisa.memset")
        or initial[0].order > site.order
    ):
        raise RewriteError("dependence", f"`{total.tensor.name}` does not start at zero")
    if initial[0].instr.attrs.get("value") != 0 or initial[0].loops != site.loops[:-1]:
        raise RewriteError("dependence", f"`{total.tensor.name}` does not start at zero in each sum")
    if initial[0].instr.dst != total or any(
        a.tensor is total.tensor
        for i, _ in instrs_in(loop.body)
        for a in read_accesses(i)
        if i is not site.instr
    ):
        raise RewriteError("dependence", f"`{total.tensor.name}` is read within the sum")
    around = site.loops[-2] if len(site.loops) > 1 else None
    _accumulate(kernel, loop, around, site, initial[0], part, matmuls)


def _accumulate(
    kernel: Kernel,
    loop: Loop,
    around: Loop | None,
    site: Site,
    start: Site,
    part: Access,
    matmuls: list[Site],
) -> None:
    tensor = Tensor(
        f"{site.instr.dst.tensor.name}_psum", part.shape, np.dtype(np.float32), Buffer.PSUM, scope=around
    )
    target = tensor.whole()
    for s in matmuls:
        accumulated = s.instr.replace(dsts=(target,), attrs={**s.instr.attrs, "accumulate": True})
        replace_instr(kernel, s.instr, [accumulated])
    replace_instr(
        kernel, start.instr, [Instr("nl.zeros", (target,), {}, {"value": 0.0}, (), start.instr.line)]
    )
    replace_instr(kernel, site.instr, [])
    body = around.body if around is not None else kernel.body
    copy = Instr("nl.copy", site.instr.dsts, {"src": target}, {}, (), site.instr.line)
    body.insert(body.index(loop) + 1, copy)
