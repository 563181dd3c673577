"""Load the same tile once, and read a stored tile from where it still is on chip."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Kernel, TensorKind
from .dataflow import Dataflow, Site, compose, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .structure import Path, instr_at, is_local, replace_accesses


@dataclasses.dataclass(frozen=True)
class RedundantOption(Option):
    """A load of what is on chip already.

    Attributes:
        load: where the load is.
        source: where the earlier load, or the store of the same tile, is.
        result: what the load fills.
        kept: the tile that has the same values.
    """

    load: Path
    source: Path
    result: str
    kept: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Use `{self.kept}` instead of loading `{self.result}`: it holds the same values"


class RemoveRedundantLoad(Rewrite[RedundantOption]):
    """Drop loads whose values another tile still holds."""

    name = "remove-redundant-load"
    summary = (
        "Drop a load of a tile that was loaded before, or that the kernel itself has just stored to HBM, and use the copy "
        "on chip; a scratch tensor that nobody reads any more disappears"
    )
    targets = ("memory", "spill")

    def find(self, kernel: Kernel) -> Iterator[RedundantOption]:
        """Every load with every earlier load or store of the same tile."""
        flow = Dataflow(kernel)
        for load in flow.sites:
            if load.instr.op != "nl.load":
                continue
            for source in flow.sites[: load.order]:
                kept = _same_tile(load, source)
                if kept is not None:
                    yield RedundantOption(
                        load.path, source.path, load.instr.dst.tensor.name, kept.tensor.name
                    )

    def edit(self, kernel: Kernel, option: RedundantOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        load = flow.site(instr_at(kernel, option.load)[0])
        source = flow.site(instr_at(kernel, option.source)[0])
        kept = _same_tile(load, source)
        if kept is None:
            raise RewriteError("option", "the two do not move the same tile")
        target = load.instr.dst.tensor
        _check(flow, load, source, kept)
        replace_instr(kernel, load.instr, [])

        def on(access: Access) -> Access:
            composed = compose(access, kept)
            if composed is None:
                raise RewriteError(
                    "shape", f"tiles of `{target.name}` cannot be read from `{kept.tensor.name}`"
                )
            return composed

        replace_accesses(kernel.body, target, on)
        drop_dead(kernel)


def _same_tile(load: Site, source: Site) -> Access | None:
    """The on-chip tile that has what `load` loads, if `source` moved the same tile in every iteration of the load."""
    wanted = load.instr.args["src"]
    if source.loops != load.loops[: len(source.loops)] or source.order >= load.order:
        return None
    if source.instr.mask != load.instr.mask:
        return None
    if source.instr.op == "nl.load" and source.instr.args["src"] == wanted:
        return source.instr.dst
    value = source.instr.args.get("value")
    if source.instr.op == "nl.store" and source.instr.dst == wanted and isinstance(value, Access):
        return value
    return None


def _check(flow: Dataflow, load: Site, source: Site, kept: Access) -> None:
    """Refuse unless both tiles keep their values for as long as the load's result is used."""
    target = load.instr.dst
    if not is_local(target.tensor) or not is_local(kept.tensor) or target != target.tensor.whole():
        raise RewriteError("shape", "the load does not fill a tile of its own")
    if target.dtype != kept.dtype or target.tensor.block_shape:
        raise RewriteError("dtype", "the tiles differ in type or layout")
    hbm = load.instr.args["src"]
    assert isinstance(hbm, Access)
    if hbm.dtype != kept.dtype and source.instr.op == "nl.store":
        raise RewriteError("dtype", "storing has changed the element type")
    writers = [w for w in flow.writers.get(hbm.tensor.storage, []) if w is not source]
    if writers and not (hbm.tensor.kind is TensorKind.LOCAL and source.instr.op == "nl.store"):
        raise RewriteError("dependence", f"`{hbm.tensor.name}` is written elsewhere")
    if any(source.order < w.order for w in writers):
        raise RewriteError("dependence", f"`{hbm.tensor.name}` is written in between")
    if len(flow.writers.get(target.tensor, [])) != 1:
        raise RewriteError("dependence", f"`{target.tensor.name}` is written again")
    last = max((r.order for r in flow.readers.get(target.tensor, [])), default=load.order)
    for writer in flow.writers.get(kept.tensor.storage, []):
        if source.order < writer.order <= last:
            raise RewriteError("dependence", f"`{kept.tensor.name}` changes while it would be used")
    if kept.tensor.scope is not None and kept.tensor.scope not in load.loops:
        raise RewriteError("scope", f"`{kept.tensor.name}` does not live where it would be used")
