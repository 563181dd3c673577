"""Read a matmul's result from PSUM instead of from a copy of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Buffer, Instr, Kernel
from .axes import is_elementwise
from .dataflow import Dataflow, Site, compose, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, is_local, replace_accesses


@dataclasses.dataclass(frozen=True)
class CopyOption(Option):
    """A copy that its readers can do without.

    Attributes:
        instr: where the copy is.
        result: the copy.
        source: what it copies.
    """

    instr: Path
    result: str
    source: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Read `{self.source}` where `{self.result}`, its copy, is read"


class ReadPsumDirectly(Rewrite[CopyOption]):
    """Vector and scalar engines read PSUM as well as SBUF."""

    name = "read-psum-directly"
    summary = (
        "The vector and scalar engines read PSUM: drop the copy of a result to SBUF where they are its only readers, and an "
        "operation of two tiles runs at full rate with one of them in PSUM"
    )
    targets = ("scalar", "vector", "latency")

    def find(self, kernel: Kernel) -> Iterator[CopyOption]:
        """Every copy from one on-chip tile to another."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            source = site.instr.args.get("src")
            if site.instr.op in ("nl.copy", "nisa.tensor_copy") and isinstance(source, Access):
                yield CopyOption(site.path, site.instr.dst.tensor.name, source.tensor.name)

    def edit(self, kernel: Kernel, option: CopyOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        source, dst = site.instr.args.get("src"), site.instr.dst
        if (
            site.instr.op not in ("nl.copy", "nisa.tensor_copy")
            or not isinstance(source, Access)
            or site.instr.mask
        ):
            raise RewriteError("option", "there is no unmasked copy")
        _check(flow, site, source)
        replace_instr(kernel, site.instr, [])

        def on(access: Access) -> Access:
            composed = compose(access, source)
            if composed is None:
                raise RewriteError(
                    "shape", f"tiles of `{dst.tensor.name}` cannot be read from `{source.tensor.name}`"
                )
            return composed

        replace_accesses(kernel.body, dst.tensor, on)
        drop_dead(kernel)


def _check(flow: Dataflow, site: Site, source: Access) -> None:
    """Refuse unless every reader may read the source, and the source stays as it is for as long."""
    dst = site.instr.dst
    if (
        not is_local(dst.tensor)
        or dst != dst.tensor.whole()
        or dst.tensor.block_shape
        or source.broadcast_axes()
    ):
        raise RewriteError("shape", "the copy does not fill a tile of its own")
    if dst.dtype != source.dtype or not source.tensor.buffer.on_chip:
        raise RewriteError("dtype", "the copy changes the element type or the memory")
    if len(flow.writers.get(dst.tensor, [])) != 1:
        raise RewriteError("dependence", f"`{dst.tensor.name}` is written again")
    if source.tensor.scope is not None and source.tensor.scope not in site.loops:
        raise RewriteError("scope", f"`{source.tensor.name}` does not live where it would be read")
    owner = dst.tensor.scope
    if owner is not (site.loops[-1] if site.loops else None):
        raise RewriteError("scope", f"`{dst.tensor.name}` lives on after the loop that fills it")
    readers = flow.readers.get(dst.tensor, [])
    last = max((r.order for r in readers), default=site.order)
    for writer in flow.writers.get(source.tensor.storage, []):
        if site.order < writer.order <= last:
            raise RewriteError("dependence", f"`{source.tensor.name}` changes while it would be read")
    if source.tensor.buffer is Buffer.PSUM:
        for reader in readers:
            _check_reader(reader.instr, dst, source)


def _check_reader(instr: Instr, copy: Access, source: Access) -> None:
    tiles = [a for a in instr.args.values() if isinstance(a, Access)]
    reduction = instr.op in ("nl.sum", "nl.max", "nl.min", "nisa.tensor_reduce", "nisa.activation_reduce")
    if not (is_elementwise(instr) or reduction or instr.op == "nisa.tensor_scalar_reduce"):
        raise RewriteError("psum", f"{instr.op} cannot read PSUM")
    if instr.op in ("nl.load", "nl.store", "nisa.dma_copy") or instr.attrs.get("engine") == "gpsimd":
        raise RewriteError("psum", f"{instr.op} cannot read PSUM on its engine")
    others = [a for a in tiles if a.tensor is not copy.tensor and a.tensor.buffer is Buffer.PSUM]
    twice = sum(1 for a in tiles if a.tensor is copy.tensor) > 1
    if (others or twice) and source.tensor.buffer is Buffer.PSUM:
        raise RewriteError("psum", f"{instr.op} would read two tiles from PSUM")
    if any(0 in a.broadcast_axes() for a in tiles if a.tensor is copy.tensor):
        raise RewriteError("psum", "a tile in PSUM cannot repeat along the partitions")
