"""Changing how a local tensor is laid out, without changing what it holds."""

from __future__ import annotations

from collections.abc import Iterator

from ..neuroncore.ir import Access, Buffer, Kernel, Loop, LoopVar, Tensor
from .capacity import private_loops
from .refusal import RewriteError
from .structure import Use, is_local, replace_accesses, replace_instrs, uses


def merge_block_into_free(kernel: Kernel, tensor: Tensor, block: int) -> None:
    """Lay the blocks of one block dimension side by side in the last free dimension, in place.

    ``t[b, p, f]`` becomes ``t[p, F*b + f]``, so that neighbouring blocks can be moved by one instruction.

    Raises:
        RewriteError: if the tensor is not a local one with that block dimension, or is indexed at run time.
    """
    if not is_local(tensor) or block >= tensor.par_dim:
        raise RewriteError("option", f"`{tensor.name}` has no block dimension {block}")
    last = len(tensor.shape) - 1
    extent = tensor.shape[last]
    found = uses(kernel.body).get(tensor, [])
    if any(use.access.is_indirect for use in found) or last <= tensor.par_dim:
        raise RewriteError("shape", f"`{tensor.name}` cannot be laid out anew")

    def on(access: Access) -> Access:
        index = list(access.affine)
        index[last] = index[last] + index[block] * extent
        del index[block]
        return Access(tensor, tuple(index), access.shape)

    replace_accesses(kernel.body, tensor, on)
    shape = list(tensor.shape)
    shape[last] *= shape[block]
    del shape[block]
    tensor.shape = tuple(shape)
    tensor.par_dim -= 1


def blocks_of(loop: Loop) -> Iterator[tuple[Tensor, int]]:
    """The tensors in SBUF that keep a block for each iteration of a loop, with the block dimension that it indexes."""
    for tensor, found in uses(loop.body).items():
        if tensor.buffer is Buffer.SBUF and is_local(tensor):
            indexed = [
                {loop.var in use.access.affine[d].terms for use in found} for d in range(tensor.par_dim)
            ]
            if {True} in indexed:
                yield tensor, indexed.index({True})


def blocks_into_free(kernel: Kernel) -> None:
    """Make every block dimension a free dimension right behind the partition, in place: ``t[b, p, f]`` is ``t[p, b, f]``.

    The later `nki` package has tensors without block dimensions only.

    Raises:
        RewriteError: for blocks in PSUM, each of which has a bank of its own.
    """
    for tensor in kernel.tensors():
        if not is_local(tensor) or not tensor.block_shape:
            continue
        if tensor.buffer is Buffer.PSUM:
            raise RewriteError("blocks", f"`{tensor.name}` would need several banks of PSUM as one tile")
        p = tensor.par_dim

        def on(access: Access, tensor: Tensor = tensor, p: int = p) -> Access:
            index = access.index
            return Access(tensor, (index[p], *index[:p], *index[p + 1 :]), access.shape)

        replace_accesses(kernel.body, tensor, on)
        tensor.shape = (tensor.shape[p], *tensor.shape[:p], *tensor.shape[p + 1 :])
        tensor.par_dim = 0


def localize(kernel: Kernel) -> None:
    """Create every tensor in the innermost loop whose iterations each have their own part of it, in place."""
    found = uses(kernel.body)
    for tensor in list(found):
        if contract(kernel, tensor, found[tensor]) is not None:
            found = uses(kernel.body)


def contract(kernel: Kernel, tensor: Tensor, everything: list[Use] | None = None) -> Loop | None:
    """Make a tensor, of which each iteration of some loops has a part for itself, one of these iterations' own.

    Block dimensions that only those loops index disappear, and the tensor is created in the innermost of the loops. A
    fill of the whole tensor becomes one of the part, at the start of each iteration.

    Args:
        kernel: changed in place.
        tensor: the tensor.
        everything: all uses of it, where they are known.

    Returns:
        the loop that the tensor now belongs to, or None if nothing changed.
    """
    if not is_local(tensor):
        return None
    everything = uses(kernel.body).get(tensor, []) if everything is None else everything
    if not everything or any(use.access.is_indirect for use in everything):
        return None
    fills = [use.instr for use in everything if use.instr.op in _FILLS and use.access == tensor.whole()]
    found = [use for use in everything if use.instr not in fills]
    if not found or len(fills) > 1 or (fills and everything[0].instr is not fills[0]):
        return None
    home = private_loops(tensor, found)
    if not home or tensor.scope is home[-1]:
        return None
    drop = _own_dimensions(tensor, found, {loop.var for loop in home})
    if not drop and tensor.block_shape:
        return None

    def on(access: Access) -> Access:
        index = tuple(e for d, e in enumerate(access.index) if d not in drop)
        return Access(tensor, index, access.shape)

    replace_instrs(kernel.body, lambda instr: None if instr in fills else instr)
    replace_accesses(kernel.body, tensor, on)
    tensor.shape = tuple(n for d, n in enumerate(tensor.shape) if d not in drop)
    tensor.par_dim -= len(drop)
    tensor.scope = home[-1]
    for fill in fills:
        body = home[-1].body
        first = next(k for k, node in enumerate(body) if tensor in uses([node]))
        body.insert(first, fill.replace(dsts=(tensor.whole(),)))
    return home[-1]


_FILLS = ("nl.zeros", "nl.ones", "nl.full")


def _own_dimensions(tensor: Tensor, found: list[Use], own: set[LoopVar]) -> list[int]:
    """Block dimensions that every access indexes alike, by some of the given loops only."""
    drop = []
    for dim in range(tensor.par_dim):
        indices = {use.access.affine[dim] for use in found}
        if len(indices) == 1:
            e = indices.pop()
            if e.terms and not e.axes() and all(v in own for v in e.loops()):
                drop.append(dim)
    return drop
