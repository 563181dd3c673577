"""Scale the rows of a matmul's result instead of the rows of its left operand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..neuroncore.ir import Access, Buffer, Instr, Kernel
from .dataflow import Dataflow, Site, compose, drop_dead, replace_instr
from .refusal import RewriteError
from .rewrite import Option, Rewrite
from .steps import ScalarStep, scalar_step
from .structure import Path, instr_at, is_local, replace_accesses

_MATMULS = ("nl.matmul", "nisa.nc_matmul")
_COPIES = ("nl.copy", "nisa.tensor_copy")


@dataclasses.dataclass(frozen=True)
class CommuteOption(Option):
    """A scaling of the rows of a tile that only matmuls use.

    Attributes:
        instr: where the scaling is.
        scaled: the scaled tile.
        source: the tile it is made from.
    """

    instr: Path
    scaled: str
    source: str

    def describe(self) -> str:
        """See `Option`."""
        return f"Multiply with `{self.source}` instead of `{self.scaled}` and scale the rows of the product"


class CommuteRowScale(Rewrite[CommuteOption]):
    """``(x * r) @ y`` with one r per row is ``(x @ y) * r``; the copy out of PSUM does the scaling for free."""

    name = "commute-row-scale"
    summary = (
        "A factor per row commutes with a matmul: multiply with the unscaled tile and scale the product while it is copied "
        "out of PSUM, instead of a pass over the operand"
    )
    targets = ("scalar", "vector", "latency")
    reorders = True

    def find(self, kernel: Kernel) -> Iterator[CommuteOption]:
        """Every scaling by one factor per row whose result only matmuls read."""
        flow = Dataflow(kernel)
        for site in flow.sites:
            step = scalar_step(site.instr)
            if step is None or step.op != "multiply":
                continue
            readers = flow.readers.get(site.instr.dst.tensor, [])
            if readers and all(r.instr.op in _MATMULS for r in readers):
                yield CommuteOption(site.path, site.instr.dst.tensor.name, step.data.tensor.name)

    def edit(self, kernel: Kernel, option: CommuteOption) -> None:
        """See `Rewrite`."""
        flow = Dataflow(kernel)
        site = flow.site(instr_at(kernel, option.instr)[0])
        step = scalar_step(site.instr)
        if step is None or step.op != "multiply" or site.instr.mask:
            raise RewriteError("option", "there is no unmasked scaling of rows")
        scaled = site.instr.dst
        _check_source(flow, site, step)
        evictions: dict[int, Site] = {}
        for reader in flow.readers.get(scaled.tensor, []):
            for eviction in _evictions(flow, site, reader):
                evictions[id(eviction.instr)] = eviction
        if not evictions:
            raise RewriteError("option", "the products are not copied out of PSUM")
        for eviction in evictions.values():
            _scale(kernel, eviction, step)
        replace_instr(kernel, site.instr, [])

        def on(access: Access) -> Access:
            composed = compose(access, step.data)
            if composed is None:
                raise RewriteError(
                    "shape", f"parts of `{scaled.tensor.name}` are no tiles of `{step.data.tensor.name}`"
                )
            return composed

        replace_accesses(kernel.body, scaled.tensor, on)
        drop_dead(kernel)


def _check_source(flow: Dataflow, site: Site, step: ScalarStep) -> None:
    scaled = site.instr.dst
    if not is_local(scaled.tensor) or scaled != scaled.tensor.whole() or scaled.tensor.block_shape:
        raise RewriteError("shape", "the scaling does not fill a tile of its own")
    if len(flow.writers.get(scaled.tensor, [])) != 1 or step.data.tensor.buffer is not Buffer.SBUF:
        raise RewriteError("dependence", f"`{scaled.tensor.name}` is written again")
    if step.data.dtype != scaled.dtype:
        raise RewriteError("dtype", "the scaling changes the element type")
    owners = {scaled.tensor.scope, site.loops[-1] if site.loops else None}
    if len(owners) != 1:
        raise RewriteError("scope", f"`{scaled.tensor.name}` lives on after the loop that fills it")
    last = max(r.order for r in flow.readers[scaled.tensor])
    sources = [step.data] + ([step.scalar] if isinstance(step.scalar, Access) else [])
    for source in sources:
        if source.tensor.scope is not None and source.tensor.scope not in site.loops:
            raise RewriteError("scope", f"`{source.tensor.name}` does not live long enough")
        for writer in flow.writers.get(source.tensor.storage, []):
            if site.order < writer.order <= _end(flow, last):
                raise RewriteError(
                    "dependence", f"`{source.tensor.name}` changes before the product is complete"
                )


def _end(flow: Dataflow, last: int) -> int:
    """Program order of the last copy that follows a matmul."""
    return max((s.order for s in flow.sites if s.instr.op in _COPIES), default=last)


def _evictions(flow: Dataflow, site: Site, reader: Site) -> list[Site]:
    """The copies that take a product out of PSUM.

    Raises:
        RewriteError: if the scaled tile is not the left operand, or something else contributes to or reads the product.
    """
    instr, scaled = reader.instr, site.instr.dst
    left = instr.args.get("x", instr.args.get("stationary"))
    right = instr.args.get("y", instr.args.get("moving"))
    if instr.op not in _MATMULS or not isinstance(left, Access) or not isinstance(right, Access):
        raise RewriteError("operation", f"`{scaled.tensor.name}` is used by {instr.op}")
    transposed = instr.op == "nisa.nc_matmul" or instr.attrs.get("transpose_x")
    if left.tensor is not scaled.tensor or right.tensor is scaled.tensor or transposed:
        raise RewriteError(
            "operation", f"`{scaled.tensor.name}` does not have the rows of the product as its rows"
        )
    rows = left.affine[left.tensor.par_dim]
    if rows != scaled.affine[scaled.tensor.par_dim] or left.shape[0] != scaled.shape[0]:
        raise RewriteError("shape", "the product is of some rows only")
    product = instr.dst.tensor
    if site.loops and product.scope not in reader.loops[len(site.loops) - 1 :]:
        raise RewriteError("dependence", f"`{product.name}` adds up products with different factors")
    for writer in flow.writers.get(product, []):
        operand = writer.instr.args.get("x")
        contributes = isinstance(operand, Access) and operand.tensor is scaled.tensor
        if writer.instr.op != "nl.zeros" and not contributes:
            raise RewriteError("dependence", f"`{product.name}` is the sum of more than this product")
    copies = [r for r in flow.readers.get(product, []) if not any(d.tensor is product for d in r.instr.dsts)]
    if any(r.instr.op not in _COPIES for r in copies):
        raise RewriteError("operation", f"`{product.name}` is used before it is copied out of PSUM")
    return copies


def _scale(kernel: Kernel, eviction: Site, step: ScalarStep) -> None:
    source = eviction.instr.args["src"]
    assert isinstance(source, Access)
    if source.shape[0] != step.data.shape[0] or source.affine[source.tensor.par_dim].const != 0:
        raise RewriteError("shape", "the copy is of some rows only")
    factor = step.scalar
    if isinstance(factor, Access):
        factor = Access(factor.tensor, factor.index, source.shape)
    args = {"x": source, "y": factor}
    scaled = Instr("nl.multiply", eviction.instr.dsts, args, {}, eviction.instr.mask, eviction.instr.line)
    replace_instr(kernel, eviction.instr, [scaled])
