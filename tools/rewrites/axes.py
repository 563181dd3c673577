"""What the tile axes of an instruction's operands have to do with one another.

Every operation runs over a small space of *labels*; each axis of each operand runs along one of them. ``nc_matmul`` has
three: the rows of its result are the stationary tile's columns, its columns are the moving tile's columns, and the
partitions of both operands are contracted. Knowing this for every operation is what widening, narrowing and
transposing tiles needs.
"""

from __future__ import annotations

import dataclasses

from ..neuroncore.ir import Access, Instr
from .refusal import RewriteError

Label = str
"""Name of one dimension of an operation's iteration space."""

_MATMUL_LABELS = ("m", "n")

ELEMENTWISE_ISA = frozenset(
    [
        "nisa.activation",
        "nisa.tensor_scalar",
        "nisa.tensor_tensor",
        "nisa.scalar_tensor_tensor",
        "nisa.reciprocal",
        "nisa.tensor_copy",
        "nisa.memset",
        "nisa.iota",
        "nisa.affine_select",
        "nisa.dma_copy",
        "nisa.tensor_copy_predicated",
        "nisa.dropout",
    ]
)
"""ISA calls whose result has the axes of its operands."""

_NOT_ELEMENTWISE_NL = frozenset(
    [
        "nl.matmul",
        "nl.transpose",
        "nl.load_transpose2d",
        "nl.atomic_rmw",
        "nl.gather_flattened",
        "nl.softmax",
        "nl.rms_norm",
        "nl.rand",
        "nl.all_reduce",
    ]
)

REDUCTIONS = {
    "nl.sum": "add",
    "nl.max": "maximum",
    "nl.min": "minimum",
    "nl.mean": None,
    "nl.var": None,
    "nl.prod": "multiply",
    "nl.all": "logical_and",
}
"""Reductions of `nl`, and the operation with which partial results combine."""


@dataclasses.dataclass(frozen=True)
class Operand:
    """An operand with the label of each of its axes.

    Attributes:
        key: the argument's name, or ``dst`` followed by its number.
        access: the tile.
        labels: one for each axis; None for an axis that the operation does not run along (a scalar operand's).
    """

    key: str
    access: Access
    labels: tuple[Label | None, ...]

    def axis(self, label: Label) -> int | None:
        """The axis that runs along a label, or None."""
        return self.labels.index(label) if label in self.labels else None


@dataclasses.dataclass(frozen=True)
class Space:
    """The iteration space of one instruction.

    Attributes:
        operands: destinations first.
        reduced: labels that the destination lacks.
        combine: the operation that merges two partial results along the reduced labels, or None if there is none.
        rigid: labels along which the instruction is not independent (the axis of a scan).
    """

    operands: tuple[Operand, ...]
    reduced: frozenset[Label] = frozenset()
    combine: str | None = None
    rigid: frozenset[Label] = frozenset()

    def extent(self, label: Label) -> int:
        """How far a label runs."""
        return max(
            (o.access.shape[o.axis(label) or 0] for o in self.operands if label in o.labels), default=1
        )

    def labels(self) -> list[Label]:
        """All labels, in order of appearance."""
        seen: dict[Label, None] = {}
        for operand in self.operands:
            for label in operand.labels:
                if label is not None:
                    seen[label] = None
        return list(seen)


def is_elementwise(instr: Instr) -> bool:
    """Whether each element of the result depends on the operands' elements at the same place only."""
    if instr.op in ELEMENTWISE_ISA:
        return len(instr.dsts) == 1
    if instr.op.startswith("nl.") and instr.op not in _NOT_ELEMENTWISE_NL and instr.op not in REDUCTIONS:
        return True
    return False


def space_of(instr: Instr) -> Space:
    """The iteration space of an instruction.

    Raises:
        RewriteError: for operations whose axes are not described here.
    """
    tiles = {k: a for k, a in instr.args.items() if isinstance(a, Access)}
    dsts = [(f"dst{k}", d) for k, d in enumerate(instr.dsts)]
    if instr.op in ("nisa.nc_matmul", "nl.matmul"):
        return _matmul(instr, tiles)
    if instr.op in ("nisa.nc_transpose", "nl.transpose", "nl.load_transpose2d", "nisa.dma_transpose"):
        return _transpose(instr, tiles)
    if instr.op in REDUCTIONS or instr.op == "nisa.tensor_reduce":
        return _reduction(instr, tiles)
    if instr.op == "nisa.tensor_tensor_scan":
        labels = _plain(len(instr.dst.shape))
        operands = [
            Operand(k, a, labels if len(a.shape) == len(labels) else _scalar(a)) for k, a in tiles.items()
        ]
        operands = [
            o if o.key != "initial" else Operand(o.key, o.access, _scalar(o.access)) for o in operands
        ]
        dst = Operand("dst0", instr.dst, labels)
        return Space((dst, *operands), rigid=frozenset({labels[-1]}))
    if is_elementwise(instr) or instr.op in (
        "nisa.activation",
        "nisa.activation_reduce",
        "nisa.tensor_scalar_reduce",
    ):
        return _elementwise(instr, tiles, dsts)
    raise RewriteError("operation", f"the axes of {instr.op} are not known to the rewrites")


def _plain(rank: int) -> tuple[Label, ...]:
    return tuple(f"a{k}" for k in range(rank))


def _scalar(access: Access) -> tuple[Label | None, ...]:
    """A scalar operand: one value for each partition."""
    return ("a0", *(None,) * (len(access.shape) - 1))


def _elementwise(instr: Instr, tiles: dict[str, Access], dsts: list[tuple[str, Access]]) -> Space:
    rank = len(instr.dst.shape)
    labels = _plain(rank)
    operands = [Operand("dst0", instr.dst, labels)]
    reduced: frozenset[Label] = frozenset()
    combine = None
    for key, access in dsts[1:]:
        operands.append(Operand(key, access, _scalar(access)))
        combine = instr.attrs.get("reduce_op")
    for key, access in tiles.items():
        scalar = key in ("bias", "scale", "operand0", "prob") or (
            key == "operand1" and instr.op in ("nisa.tensor_scalar", "nisa.tensor_scalar_reduce")
        )
        if scalar:
            operands.append(Operand(key, access, _scalar(access)))
        elif len(access.shape) == rank:
            operands.append(Operand(key, access, labels))
        else:
            raise RewriteError("operation", f"an operand of {instr.op} has another rank than its result")
    if len(dsts) > 1:
        reduced = frozenset(labels[1:])
    return Space(tuple(operands), reduced, combine)


def _matmul(instr: Instr, tiles: dict[str, Access]) -> Space:
    if instr.op == "nl.matmul":
        x, y = tiles["x"], tiles["y"]
        x_labels = ("k", "m") if instr.attrs.get("transpose_x") else ("m", "k")
        named = (("x", x, x_labels), ("y", y, ("k", "n")))
    else:
        named = (("stationary", tiles["stationary"], ("k", "m")), ("moving", tiles["moving"], ("k", "n")))
    if any(len(a.shape) != 2 for _, a, _ in named) or len(instr.dst.shape) != 2:
        raise RewriteError("operation", f"{instr.op} with tiles of more than two axes")
    operands = [Operand("dst0", instr.dst, _MATMUL_LABELS), *(Operand(*n) for n in named)]
    # Partial sums over k combine in PSUM when the instruction accumulates.
    return Space(tuple(operands), frozenset({"k"}), "add")


def _transpose(instr: Instr, tiles: dict[str, Access]) -> Space:
    ((key, source),) = tiles.items()
    if len(source.shape) != 2 or len(instr.dst.shape) != 2:
        raise RewriteError("operation", f"{instr.op} of a tile with more than two axes")
    return Space((Operand("dst0", instr.dst, ("b", "a")), Operand(key, source, ("a", "b"))))


def _reduction(instr: Instr, tiles: dict[str, Access]) -> Space:
    ((key, source),) = tiles.items()
    rank = len(source.shape)
    labels = _plain(rank)
    axes = tuple(a % rank for a in instr.attrs["axis"])
    kept = [labels[k] for k in range(rank) if k not in axes]
    if len(instr.dst.shape) == rank and (instr.attrs.get("keepdims") or len(kept) < rank):
        result: tuple[Label | None, ...] = tuple(labels[k] if k not in axes else None for k in range(rank))
        if not instr.attrs.get("keepdims") and len(kept) > 1:
            result = (*kept, *(None,) * (rank - len(kept)))
    else:
        result = (*kept, *(None,) * (len(instr.dst.shape) - len(kept)))
    combine = REDUCTIONS.get(instr.op) if instr.op != "nisa.tensor_reduce" else str(instr.attrs["op"])
    if instr.attrs.get("negate"):
        combine = None
    operands = (Operand("dst0", instr.dst, result), Operand(key, source, labels))
    return Space(operands, frozenset(labels[k] for k in axes), combine)
