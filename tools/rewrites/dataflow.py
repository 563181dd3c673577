"""Who produces a tile, who uses it, and whether one instruction can take another's place."""

from __future__ import annotations

import dataclasses

from ..neuroncore.ir import Access, Affine, Instr, Kernel, Loop, LoopVar, Node, Tensor, TensorKind
from .steps import FunctionStep, function_step
from .structure import Path, instrs_in, instrs_of, is_local, read_accesses, replace_instrs


@dataclasses.dataclass(frozen=True)
class Site:
    """An instruction and where it is.

    Attributes:
        instr: the instruction.
        path: its path.
        loops: the loops around it, outermost first.
        order: its position in program order.
    """

    instr: Instr
    path: Path
    loops: tuple[Loop, ...]
    order: int


class Dataflow:
    """Writers and readers of every tensor of a kernel, as it is when this is made."""

    def __init__(self, kernel: Kernel) -> None:
        """Look at the whole kernel once."""
        self.kernel = kernel
        self.sites: list[Site] = []
        self.writers: dict[Tensor, list[Site]] = {}
        self.readers: dict[Tensor, list[Site]] = {}
        for order, (path, instr, loops) in enumerate(instrs_of(kernel)):
            site = Site(instr, path, loops, order)
            self.sites.append(site)
            for dst in instr.dsts:
                self.writers.setdefault(dst.tensor.storage, []).append(site)
            for storage in dict.fromkeys(a.tensor.storage for a in read_accesses(instr)):
                self.readers.setdefault(storage, []).append(site)

    def site(self, instr: Instr) -> Site:
        """Where an instruction is."""
        return next(site for site in self.sites if site.instr is instr)

    def producer(self, access: Access, reader: Site) -> Site | None:
        """The one instruction that computes exactly the tile that `reader` reads, in the same iteration; None if unsure."""
        tensor = access.tensor
        if not is_local(tensor) or tensor.view_of is not None:
            return None
        writers = self.writers.get(tensor, [])
        if len(writers) != 1:
            return None
        (writer,) = writers
        if writer.loops != reader.loops or writer.order >= reader.order or len(writer.instr.dsts) != 1:
            return None
        return writer if writer.instr.dst == access and not writer.instr.attrs.get("accumulate") else None

    def function(self, site: Site) -> FunctionStep | None:
        """The instruction as an activation function; a bias tile that only ever holds zero counts as none."""
        step = function_step(site.instr)
        if step is not None and step.bias is not None and self.is_zero(step.bias, site):
            return dataclasses.replace(step, bias=None)
        return step

    def is_zero(self, access: Access, reader: Site) -> bool:
        """Whether a tile holds nothing but the zeros that one earlier instruction filled its tensor with."""
        writers = self.writers.get(access.tensor.storage, [])
        if len(writers) != 1 or not is_local(access.tensor):
            return False
        (writer,) = writers
        fills = writer.instr.op in ("nisa.memset", "nl.zeros", "nl.full") and writer.instr.attrs["value"] == 0
        around = writer.loops == reader.loops[: len(writer.loops)]
        whole = writer.instr.dst == access.tensor.whole() and not writer.instr.mask
        return fills and around and whole and writer.order < reader.order

    def is_used_once(self, tensor: Tensor) -> bool:
        """Whether exactly one operand of one instruction reads a tensor."""
        readers = self.readers.get(tensor, [])
        if len(readers) != 1:
            return False
        return sum(1 for a in read_accesses(readers[0].instr) if a.tensor is tensor) == 1

    def unchanged_between(self, access: Access, first: Site, second: Site) -> bool:
        """Whether what `first` reads is still there when `second` runs, both in one loop body."""
        for writer in self.writers.get(access.tensor.storage, []):
            if first.order < writer.order < second.order:
                return False
            # A writer elsewhere in the same loops runs before `first` or after `second` of the same iteration.
        return True

    def can_replace(self, producer: Site, reader: Site) -> bool:
        """Whether `reader` could read the producer's operands instead of its result."""
        return all(self.unchanged_between(a, producer, reader) for a in read_accesses(producer.instr))


def drop_dead(kernel: Kernel) -> int:
    """Remove instructions whose results nobody reads, in place.

    Returns:
        how many were removed.
    """
    outputs = {t.storage for t in kernel.outputs}
    removed = 0
    while True:
        read = {
            a.tensor.storage
            for instr, _ in instrs_in(kernel.body)
            for a in read_accesses(instr)
            if not any(a.tensor.storage is d.tensor.storage for d in instr.dsts)
        }
        dead = {
            id(instr)
            for instr, _ in instrs_in(kernel.body)
            if all(_is_dead(d.tensor, read, outputs) for d in instr.dsts)
        }
        if not dead:
            return removed
        removed += len(dead)
        replace_instrs(kernel.body, lambda instr, dead=dead: None if id(instr) in dead else instr)  # type: ignore[misc]
        _drop_empty(kernel.body)


def _is_dead(tensor: Tensor, read: set[Tensor], outputs: set[Tensor]) -> bool:
    storage = tensor.storage
    return storage.kind is TensorKind.LOCAL and storage not in read and storage not in outputs


def _drop_empty(body: list[Node]) -> None:
    for k in range(len(body) - 1, -1, -1):
        node = body[k]
        if isinstance(node, Loop):
            _drop_empty(node.body)
            if not node.body:
                del body[k]


def compose(outer: Access, definition: Access) -> Access | None:
    """What a tile of a result is in terms of another tensor that holds the same values.

    Args:
        outer: a tile of tensor T.
        definition: the tile of another tensor to which the whole of T (one block of it) is equal, axis by axis.

    Returns:
        the same elements as `outer`, read from the definition's tensor; None if that cannot be expressed.
    """
    tensor = outer.tensor
    dims = range(tensor.par_dim, len(tensor.shape))
    if len(definition.shape) != len(dims) or outer.is_indirect or definition.is_indirect:
        return None
    bindings: dict[LoopVar | int, Affine | int] = {k: outer.affine[dim] for k, dim in enumerate(dims)}
    return Access(definition.tensor, tuple(e.substitute(bindings) for e in definition.affine), outer.shape)


def replace_instr(kernel: Kernel, old: Instr, new: list[Instr]) -> None:
    """Put other instructions in the place of one, in place."""
    replace_instrs(kernel.body, lambda instr: new if instr is old else instr)
