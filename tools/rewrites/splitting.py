"""Cutting wide tiles into pieces that a new loop works through, the inverse of merging iterations.

Every instruction of a loop's body that runs along the cut axis works on one piece at a time. A scan along that axis hands
its last value from piece to piece. What does not run along the axis is the same for every piece.
"""

from __future__ import annotations

import numpy as np

from ..neuroncore.dtypes import FLOAT32
from ..neuroncore.ir import Access, Affine, Buffer, Instr, Kernel, Loop, LoopKind, LoopVar, Node, Tensor
from .axes import Label, Operand, Space, space_of
from .dependence import is_private
from .refusal import RewriteError
from .structure import instrs_in, is_local, map_instr, read_accesses, replace_instrs

_SCAN = "nisa.tensor_tensor_scan"


def split_tiles(kernel: Kernel, loop: Loop, seed: Instr, pieces: int) -> Loop:
    """Run the body of a loop piece by piece along the last axis of one of its instructions, in place.

    Args:
        kernel: changed in place.
        loop: the loop whose body is cut.
        seed: an instruction in it; its result's last axis is the one to cut.
        pieces: how many pieces; a divisor of the axis's extent.

    Returns:
        the new loop over the pieces, now the loop's body but for the first values of scans.

    Raises:
        RewriteError: if something in the body cannot work on pieces.
    """
    cut = _Cut(loop, seed)
    extent = cut.extent
    if pieces < 2 or extent % pieces:
        raise RewriteError("option", f"{pieces} pieces do not divide {extent} columns")
    cut.solve()
    scans = [site for site in cut.labels if site.op == _SCAN]
    var = LoopVar("piece", pieces)
    kind = LoopKind.SEQUENTIAL if scans else LoopKind.AFFINE
    inner = Loop(var, kind, loop.body, loop.line)
    first_values: list[Node] = []
    carried: dict[int, list[Instr]] = {}
    for scan in scans:
        first, last = _carry(loop, scan, extent // pieces)
        first_values.extend(first)
        carried[id(scan)] = last
    replace_instrs(inner.body, lambda instr: cut.narrowed(instr, var, extent // pieces, carried))
    for tensor, dim in cut.narrow.items():
        tensor.shape = (*tensor.shape[:dim], extent // pieces, *tensor.shape[dim + 1 :])
    for tensor in _scoped_to(loop, inner.body):
        if not any(tensor is d.tensor for i, _ in instrs_in(first_values) for d in i.dsts):
            tensor.scope = inner
    loop.body = [*first_values, inner]
    return inner


def _scoped_to(loop: Loop, body: list[Node]) -> list[Tensor]:
    seen: dict[Tensor, None] = {}
    for instr, _ in instrs_in(body):
        for access in (*instr.dsts, *read_accesses(instr)):
            if access.tensor.scope is loop and is_local(access.tensor):
                seen[access.tensor] = None
    return list(seen)


class _Cut:
    """Which label of which instruction is cut, and which dimension of which tensor.

    Attributes:
        labels: instructions that work on pieces, with the label that is cut.
        narrow: tensors that hold one piece, with the dimension.
        extent: extent of the cut axis.
    """

    def __init__(self, loop: Loop, seed: Instr) -> None:
        self.loop = loop
        self.sites = [instr for instr, _ in instrs_in(loop.body)]
        self.spaces: dict[int, Space | None] = {id(i): self.space(i) for i in self.sites}
        self.labels: dict[Instr, Label] = {}
        self.narrow: dict[Tensor, int] = {}
        self.seed = seed
        self.extent = seed.dst.shape[-1]
        space = self.spaces.get(id(seed))
        label = space.operands[0].labels[-1] if space is not None else None
        if label is None:
            raise RewriteError("option", f"{seed.op} has no axis to cut")
        self.pending: list[tuple[Instr, Label]] = [(seed, label)]

    @staticmethod
    def space(instr: Instr) -> Space | None:
        try:
            return space_of(instr)
        except RewriteError:
            return None

    def solve(self) -> None:
        """Follow the axis through every tensor that holds it."""
        while self.pending:
            instr, label = self.pending.pop()
            known = self.labels.get(instr)
            if known is not None:
                if known != label:
                    raise RewriteError("shape", f"{instr.op} would be cut along two axes")
                continue
            self.labels[instr] = label
            self.follow(instr, label)
        for instr in self.sites:
            if instr not in self.labels:
                self.check_untouched(instr)

    def follow(self, instr: Instr, label: Label) -> None:
        space = self.spaces[id(instr)]
        assert space is not None
        if label in space.reduced or (label in space.rigid and instr.op != _SCAN):
            raise RewriteError("dependence", f"{instr.op} needs the whole of the axis at once")
        if space.extent(label) != self.extent:
            raise RewriteError(
                "shape", f"{instr.op} runs over {space.extent(label)} columns, not {self.extent}"
            )
        for operand in space.operands:
            axis = operand.axis(label)
            if axis is None or not is_private(operand.access.tensor, self.loop):
                continue
            if axis in operand.access.broadcast_axes() or operand.access.shape[axis] == 1:
                continue
            dim = self.dimension(operand.access, axis)
            if self.narrow.setdefault(operand.access.tensor, dim) != dim:
                raise RewriteError(
                    "shape", f"`{operand.access.tensor.name}` would be cut along two dimensions"
                )
            self.spread(operand.access.tensor, dim)

    def spread(self, tensor: Tensor, dim: int) -> None:
        for other in self.sites:
            space = self.spaces[id(other)]
            touches = [a for a in (*other.dsts, *read_accesses(other)) if a.tensor is tensor]
            if not touches:
                continue
            if space is None:
                raise RewriteError("operation", f"{other.op} cannot work on pieces")
            for operand in space.operands:
                if operand.access.tensor is tensor:
                    self.pending.append((other, self.label_of(operand, dim)))

    @staticmethod
    def label_of(operand: Operand, dim: int) -> Label:
        e = operand.access.affine[dim] if not operand.access.is_indirect else Affine(0)
        axes = e.axes()
        label = operand.labels[axes[0]] if len(axes) == 1 and e == Affine.of(axes[0]) else None
        if label is None or operand.access.shape[axes[0]] != operand.access.tensor.shape[dim]:
            raise RewriteError(
                "shape", f"`{operand.access.tensor.name}` is used in other parts than the pieces"
            )
        return label

    @staticmethod
    def dimension(access: Access, axis: int) -> int:
        dims = [d for d, e in enumerate(access.index) if isinstance(e, Affine) and axis in e.terms]
        if len(dims) == 1:
            e = access.affine[dims[0]]
            if e == Affine.of(axis) and access.shape[axis] == access.tensor.shape[dims[0]]:
                return dims[0]
        raise RewriteError("shape", f"`{access.tensor.name}` is used in other parts than the pieces")

    def check_untouched(self, instr: Instr) -> None:
        """An instruction that does not run along the axis runs once for every piece: that must change nothing."""
        for dst in instr.dsts:
            if is_private(dst.tensor, self.loop):
                continue
            if any(r.tensor.storage is dst.tensor.storage for r in read_accesses(instr)):
                raise RewriteError("dependence", f"`{dst.tensor.name}` would accumulate once for every piece")
            raise RewriteError("dependence", f"`{dst.tensor.name}` would be written once for every piece")

    def narrowed(
        self, instr: Instr, var: LoopVar, size: int, carried: dict[int, list[Instr]]
    ) -> Instr | list[Instr]:
        """The instruction on one piece, and after a scan what hands its last value on."""
        label = self.labels.get(instr)
        if label is None:
            return instr
        space = self.spaces[id(instr)]
        assert space is not None
        pieces: dict[Access, Access] = {}
        for operand in space.operands:
            axis = operand.axis(label)
            if axis is not None:
                pieces[operand.access] = self.piece(operand.access, axis, var, size)
        dst_axis = space.operands[0].axis(label)
        bindings: dict[LoopVar | int, Affine | int] = {}
        if dst_axis is not None:
            bindings[dst_axis] = Affine.of(dst_axis) + Affine.of(var, size)
        new = map_instr(instr, lambda a: pieces.get(a, a), lambda e: e.substitute(bindings))
        if id(instr) not in carried:
            return new
        state, save = carried[id(instr)]
        return [new.replace(args={**new.args, "initial": state.dst}), save]

    def piece(self, access: Access, axis: int, var: LoopVar, size: int) -> Access:
        if access.shape[axis] == 1:
            return access
        shape = (*access.shape[:axis], size, *access.shape[axis + 1 :])
        if access.tensor in self.narrow or axis in access.broadcast_axes():
            return Access(access.tensor, access.index, shape)
        moved = access.substitute({axis: Affine.of(axis) + Affine.of(var, size)})
        return Access(access.tensor, moved.index, shape)


def _carry(loop: Loop, scan: Instr, size: int) -> tuple[list[Node], list[Instr]]:
    """A tile for the state of a scan between pieces.

    Returns:
        nodes that set the first state, to run before the first piece; and the instruction whose destination is the state
        with the one that saves it after each piece.
    """
    initial = scan.args.get("initial")
    if isinstance(initial, Access) or initial is None:
        raise RewriteError("operation", "the scan starts from a tile")
    chain = _loops_to(loop.body, scan)
    assert chain is not None
    partitions = scan.dst.shape[0]
    state = Tensor(
        f"{scan.dst.tensor.name}_carry",
        (*(inner.trips for inner in chain), partitions, 1),
        np.dtype(FLOAT32),
        Buffer.SBUF,
        par_dim=len(chain),
        scope=loop,
    )
    place = (Affine.of(0) if partitions > 1 else Affine(0), Affine(0))
    access = Access(state, (*(Affine.of(inner.var) for inner in chain), *place), (partitions, 1))
    copies = [Loop(LoopVar(inner.var.name, inner.trips), inner.kind) for inner in chain]
    first = Access(state, (*(Affine.of(copy.var) for copy in copies), *place), (partitions, 1))
    nodes: list[Node] = [
        Instr("nisa.memset", (first,), {}, {"value": float(initial), "engine": "unknown"}, (), scan.line)
    ]
    for copy in reversed(copies):
        copy.body = nodes
        nodes = [copy]
    last_index = scan.dst.substitute({1: size - 1})
    last = Access(scan.dst.tensor, last_index.index, (partitions, 1))
    holder = Instr("nl.copy", (access,), {"src": last}, {}, (), scan.line)
    return nodes, [holder, holder]


def _loops_to(body: list[Node], wanted: Instr) -> tuple[Loop, ...] | None:
    for node in body:
        if node is wanted:
            return ()
        if isinstance(node, Loop):
            inner = _loops_to(node.body, wanted)
            if inner is not None:
                return (node, *inner)
    return None
