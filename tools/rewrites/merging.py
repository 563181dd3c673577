"""Merging iterations of a loop into wider instructions.

``k`` iterations of a loop over ``j`` become one when, in every instruction, what ``j`` selects continues what a tile axis
runs over: ``x[512*j + axis]`` for ``j`` and ``j + 1`` is ``x[1024*J + axis]`` with an axis twice as long. The loop's own
tensors grow accordingly. Reductions over the widened axis give fewer, larger partial results.
"""

from __future__ import annotations

import dataclasses

from ..neuroncore.ir import Access, Affine, Instr, Kernel, Loop, LoopVar, Tensor
from .axes import Label, Operand, Space, space_of
from .dependence import carries, is_private
from .refusal import RewriteError
from .structure import find, instrs_in, locate, map_instr, replace_instrs, rescope, substitute


def merge_iterations(kernel: Kernel, loop: Loop, factor: int) -> None:
    """Merge `factor` iterations of a loop at a time, in place.

    Args:
        kernel: changed in place.
        loop: the loop; if `factor` is its trip count it disappears.
        factor: a divisor of the trip count, at least 2.

    Raises:
        RewriteError: if iterations depend on one another or do not continue each other.
    """
    if factor < 2 or loop.trips % factor:
        raise RewriteError(
            "option", f"{factor} does not divide the {loop.trips} iterations of {loop.var.name}"
        )
    body, position, outer = locate(kernel, find(kernel, loop))
    if not loop.kind.parallel and carries(loop, outer) is not None:
        raise RewriteError("dependence", f"iterations of {loop.var.name} depend on one another")
    plan = _Plan(loop)
    plan.solve()
    replace_instrs(loop.body, lambda instr: plan.widened(instr, factor))
    for tensor, dim in plan.wide.items():
        shape = list(tensor.shape)
        shape[dim] *= factor
        tensor.shape = tuple(shape)
    new_var = LoopVar(loop.var.name, loop.trips // factor)
    substitute(loop.body, {loop.var: Affine.of(new_var, factor)})
    if new_var.trips == 1:
        substitute(loop.body, {new_var: 0})
        rescope(loop.body, loop, outer[-1] if outer else None)
        body[position : position + 1] = loop.body
    else:
        new = Loop(new_var, loop.kind, loop.body, loop.line)
        rescope(loop.body, loop, new)
        body[position] = new


def mergeable_factors(loop: Loop) -> list[int]:
    """The divisors of the trip count from 2 on, the trip count included."""
    return [k for k in range(2, loop.trips + 1) if loop.trips % k == 0]


@dataclasses.dataclass
class _Site:
    instr: Instr
    space: Space | None
    label: Label | None = None


class _Plan:
    """Which label of each instruction grows, and which dimension of each of the loop's own tensors.

    Attributes:
        wide: tensors of the loop that grow, and the dimension.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.var = loop.var
        self.sites = [_Site(instr, self.space(instr)) for instr, _ in instrs_in(loop.body)]
        self.by_id = {id(site.instr): site for site in self.sites}
        self.wide: dict[Tensor, int] = {}
        self.private = {
            a.tensor
            for site in self.sites
            for a in (*site.instr.dsts, *site.instr.args.values())
            if isinstance(a, Access) and is_private(a.tensor, loop)
        }

    @staticmethod
    def space(instr: Instr) -> Space | None:
        try:
            return space_of(instr)
        except RewriteError:
            return None

    # -- solving ----------------------------------------------------------------------------------------------------------
    def solve(self) -> None:
        """Propagate from the accesses that depend on the loop until nothing changes, then check what was left out."""
        pending = list(self.sites)
        while pending:
            site = pending.pop(0)
            before = dict(self.wide)
            self.visit(site)
            grown = [t for t in self.wide if t not in before]
            if grown:
                touching = [s for s in self.sites if any(o.access.tensor in grown for o in self.operands(s))]
                pending.extend(s for s in touching if s not in pending)
        for site in self.sites:
            if site.label is None:
                self.check_untouched(site)
            else:
                self.check_label(site)

    @staticmethod
    def operands(site: _Site) -> tuple[Operand, ...]:
        if site.space is not None:
            return site.space.operands
        tiles = [a for a in site.instr.args.values() if isinstance(a, Access)]
        return tuple(Operand("", a, (None,) * len(a.shape)) for a in (*site.instr.dsts, *tiles))

    def visit(self, site: _Site) -> None:
        label = site.label
        for operand in self.operands(site):
            axis = self.merge_axis(operand, label)
            if axis is None:
                continue
            found = operand.labels[axis]
            if site.space is None or found is None or found in site.space.rigid:
                raise self.refusal(site, "cannot be widened")
            if label is not None and found != label:
                raise self.refusal(site, "would have to grow along two axes")
            label = found
        if label is None:
            return
        site.label = label
        assert site.space is not None
        for operand in site.space.operands:
            axis = operand.axis(label)
            if (
                axis is None
                or operand.access.tensor not in self.private
                or operand.access.tensor in self.wide
            ):
                continue
            if operand.key.startswith("dst") or operand.access.shape[axis] > 1:
                if axis in operand.access.broadcast_axes():
                    continue
                self.wide[operand.access.tensor] = self.dimension(operand.access, axis)

    def merge_axis(self, operand: Operand, hint: Label | None) -> int | None:
        """The axis along which an operand continues from one iteration to the next; None if it is the same tile.

        Raises:
            RewriteError: if it is neither.
        """
        access = operand.access
        if access.is_indirect:
            if self.var in access.loops():
                raise RewriteError("shape", f"`{access.tensor.name}` is indexed at run time")
            return None
        if access.tensor in self.wide:
            return self.axis_of(access, self.wide[access.tensor], operand, hint)
        dims = [d for d, e in enumerate(access.affine) if self.var in e.terms]
        if not dims:
            return None
        if len(dims) > 1 or access.tensor in self.private:
            raise RewriteError(
                "shape", f"`{access.tensor.name}` is not continued along one axis by {self.var.name}"
            )
        tensor = access.tensor
        if tensor.buffer.on_chip and dims[0] < tensor.par_dim:
            raise RewriteError(
                "shape", f"`{tensor.name}` keeps a block for each iteration of {self.var.name}"
            )
        e = access.affine[dims[0]]
        step = e.coefficient(self.var)
        axes = e.axes()
        for axis in axes:
            if step == e.coefficient(axis) * access.shape[axis]:
                if any(axis in other.terms for d, other in enumerate(access.affine) if d != dims[0]):
                    break
                return axis
        if not axes:
            units = [k for k, n in enumerate(access.shape) if n == 1]
            if hint is not None and (wanted := operand.axis(hint)) in units:
                return wanted
            free = [k for k in units if k > 0]
            if len(free) == 1:
                return free[0]
        raise RewriteError(
            "shape", f"tiles of `{access.tensor.name}` do not continue one another along {self.var.name}"
        )

    def axis_of(self, access: Access, dim: int, operand: Operand, hint: Label | None) -> int:
        """The axis of an access that covers a growing dimension of one of the loop's tensors."""
        e = access.affine[dim]
        extent = access.tensor.shape[dim]
        axes = e.axes()
        if len(axes) == 1 and e == Affine.of(axes[0]) and access.shape[axes[0]] == extent:
            return axes[0]
        if extent == 1 and e == Affine(0):
            if hint is not None and (wanted := operand.axis(hint)) is not None and access.shape[wanted] == 1:
                return wanted
            position = dim - access.tensor.par_dim
            if (
                len(access.shape) == len(access.tensor.shape) - access.tensor.par_dim
                and access.shape[position] == 1
            ):
                return position
        raise RewriteError("shape", f"`{access.tensor.name}` would grow, but is also used in parts")

    @staticmethod
    def dimension(access: Access, axis: int) -> int:
        """The dimension of the tensor that an axis of an access covers.

        Raises:
            RewriteError: if it covers only a part of one.
        """
        tensor = access.tensor
        if access.shape[axis] == 1:
            position = axis + tensor.par_dim
            if len(access.shape) == len(tensor.shape) - tensor.par_dim and tensor.shape[position] == 1:
                return position
            raise RewriteError("shape", f"`{tensor.name}` would have to grow along an axis of one element")
        dims = [d for d, e in enumerate(access.affine) if axis in e.terms]
        if len(dims) == 1:
            e = access.affine[dims[0]]
            if (
                e == Affine.of(axis)
                and access.shape[axis] == tensor.shape[dims[0]]
                and dims[0] >= tensor.par_dim
            ):
                return dims[0]
        raise RewriteError("shape", f"`{tensor.name}` would grow, but is written in parts")

    # -- checking -----------------------------------------------------------------------------------------------------------
    def check_label(self, site: _Site) -> None:
        instr, space, label = site.instr, site.space, site.label
        assert space is not None and label is not None
        for operand in space.operands:
            axis = operand.axis(label)
            if axis is None:
                continue
            access = operand.access
            grows = access.tensor in self.wide or self.var in access.loops()
            repeated = access.shape[axis] == 1 or axis in access.broadcast_axes()
            if not grows and not (repeated and not operand.key.startswith("dst")):
                raise RewriteError(
                    "shape", f"`{access.tensor.name}` would have to repeat along {self.var.name}"
                )
        if label in space.reduced:
            self.check_reduction(site)
        axis = self.label_axis_of_dst(space, label)
        for e in self.expressions(instr):
            step = e.coefficient(self.var)
            if axis is None and (step or e.axes()):
                raise self.refusal(site, "has a mask over the widened axis")
            if axis is not None and step != e.coefficient(axis) * instr.dst.shape[axis]:
                raise self.refusal(site, "has a mask that does not continue")

    @staticmethod
    def label_axis_of_dst(space: Space, label: Label) -> int | None:
        return space.operands[0].axis(label)

    def check_untouched(self, site: _Site) -> None:
        """An instruction that stays as it is now runs once for several iterations: that must be the same."""
        instr = site.instr
        if any(self.var in e.terms for e in self.expressions(instr)):
            raise self.refusal(site, "has a mask that depends on the loop")
        for operand in self.operands(site):
            if self.var in operand.access.loops():
                raise self.refusal(site, "depends on the loop in a way that cannot be widened")
        listed = instr.attrs.get("loops", ())
        in_place = any(r.tensor.storage is d.tensor.storage for r in instr.reads() for d in instr.dsts)
        if (in_place or self.var in listed) and not self.folds_partial(instr):
            outside = any(not is_private(d.tensor, self.loop) for d in instr.dsts)
            if outside:
                raise self.refusal(site, "accumulates once an iteration")

    def folds_partial(self, instr: Instr) -> bool:
        """Whether an accumulation takes in a partial result that now stands for several iterations."""
        source = instr.args.get("x") if instr.op == "nl.loop_reduce" else instr.args.get("y")
        if instr.op == "nl.add" and instr.args.get("x") != instr.dst:
            source = instr.args.get("x")
        if not isinstance(source, Access):
            return False
        for site in self.sites:
            if site.label is None or site.space is None or site.label not in site.space.reduced:
                continue
            if any(d.tensor is source.tensor for d in site.instr.dsts):
                return site.space.combine == _accumulates_with(instr)
        return False

    def check_reduction(self, site: _Site) -> None:
        """A reduction over the widened axis gives the combination of the partial results it gave before."""
        assert site.space is not None
        if site.space.combine is None:
            raise self.refusal(site, "has partial results that do not combine")
        if site.instr.op in ("nisa.nc_matmul", "nl.matmul"):
            if site.instr.attrs.get("accumulate"):
                return
            raise self.refusal(site, "does not accumulate")
        partial = {d.tensor for d in site.instr.dsts if d.tensor not in self.wide}
        for tensor in partial:
            if tensor not in self.private:
                raise self.refusal(site, "keeps the last partial result only")
            for other in self.sites:
                if other is site or not any(r.tensor is tensor for r in other.instr.reads()):
                    continue
                if _accumulates_with(other.instr) != site.space.combine or other.label is not None:
                    raise self.refusal(site, "has partial results that are used one by one")

    @staticmethod
    def expressions(instr: Instr) -> list[Affine]:
        out = list(instr.mask)
        for value in instr.attrs.values():
            out.extend(v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Affine))
        return out

    @staticmethod
    def refusal(site: _Site, what: str) -> RewriteError:
        return RewriteError("shape", f"{site.instr.op} of `{site.instr.dst.tensor.name}` {what}")

    # -- the new instructions ---------------------------------------------------------------------------------------------
    def widened(self, instr: Instr, factor: int) -> Instr:
        """The instruction over `factor` times the extent of its growing label (the loop variable stays in place)."""
        site = self.by_id[id(instr)]
        if site.label is None or site.space is None:
            return instr
        grown: dict[Access, Access] = {}
        for operand in site.space.operands:
            axis = operand.axis(site.label)
            if axis is not None:
                grown[operand.access] = self.grow(operand.access, axis, factor)
        return map_instr(instr, lambda a: grown.get(a, a))

    def grow(self, access: Access, axis: int, factor: int) -> Access:
        shape = list(access.shape)
        grows = access.tensor in self.wide or self.var in access.loops()
        if not grows and shape[axis] == 1:
            return access
        index = list(access.index)
        if shape[axis] == 1:
            if access.tensor in self.wide:
                dim = self.wide[access.tensor]
                index[dim] = Affine.of(axis)
            else:
                dim = next(d for d, e in enumerate(access.affine) if self.var in e.terms)
                index[dim] = access.affine[dim] + Affine.of(axis, access.affine[dim].coefficient(self.var))
        shape[axis] *= factor
        return Access(access.tensor, tuple(index), tuple(shape))


def _accumulates_with(instr: Instr) -> str | None:
    """The operation with which an instruction takes a value into its destination, or None if it does not."""
    if instr.op == "nl.loop_reduce":
        return str(instr.attrs["op"])
    if instr.op in ("nl.add", "nl.maximum", "nl.minimum", "nl.multiply"):
        x, y = instr.args.get("x"), instr.args.get("y")
        if (x == instr.dst) != (y == instr.dst):
            return instr.op.removeprefix("nl.")
    return None
