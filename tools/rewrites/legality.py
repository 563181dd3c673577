"""What every kernel must satisfy after a rewrite, and the tidying that keeps representations comparable."""

from __future__ import annotations

import re

from ..neuroncore.compiler import joined
from ..neuroncore.errors import NKIError
from ..neuroncore.ir import (
    Access,
    Affine,
    Buffer,
    Indirect,
    Instr,
    Kernel,
    Loop,
    LoopKind,
    LoopVar,
    Node,
    Tensor,
    TensorKind,
)
from ..neuroncore.machine import Machine, machine_for
from .capacity import psum_banks, sbuf_bytes_per_partition
from .refusal import RewriteError
from .structure import map_instr, read_accesses, replace_instrs, rescope, substitute

MOVING_FREE = 512
"""``nl.tile_size.gemm_moving_fmax``."""
STATIONARY_FREE = 128
"""``nl.tile_size.gemm_stationary_fmax``."""
SBUF_FREE_ELEMENTS = 1 << 16
"""Largest free size of a Vector or Scalar instruction on SBUF (architecture guide of NeuronCore-v2)."""
PSUM_FREE_ELEMENTS = 1 << 12
"""Largest free size on PSUM (same)."""
_FILLS = ("nl.zeros", "nl.ones", "nl.full")

FREE_DIMENSIONS = 4
"""Dimensions of an engine's access pattern beside the partition (same)."""


def check_kernel(kernel: Kernel, before: Kernel) -> None:
    """Refuse a kernel that the compiler or the hardware would not take.

    Args:
        kernel: the rewritten kernel.
        before: the kernel it came from; a limit that this one breaks already is not held against the rewrite.

    Raises:
        RewriteError: naming the limit.
    """
    machine = machine_for(kernel.target)
    for instr, loops in kernel.walk():
        around = {each.var for each in loops}
        for access in (*read_accesses(instr), *instr.dsts):
            _check_scope(access, loops, around)
            _check_bounds(access, instr)
            _check_tile(access, instr, machine)
        _check_operation(instr)
    repeated = _repeated_writes(kernel)
    if len(repeated) > len(_repeated_writes(before)):
        raise RewriteError(
            "output-dependency", f"iterations of an affine_range would all write `{repeated[-1]}`"
        )
    bank = int(machine.psum_bank_bytes)
    for tensor in kernel.tensors():
        if tensor.buffer is Buffer.PSUM and tensor.free_bytes_per_partition > bank:
            raise RewriteError(
                "psum", f"`{tensor.name}` needs {tensor.free_bytes_per_partition} B of a {bank} B bank"
            )
    banks = psum_banks(kernel, machine)
    if banks > machine.psum_banks and banks > psum_banks(before, machine):
        raise RewriteError(
            "psum", f"{banks} banks of PSUM would be live at once, of {int(machine.psum_banks)}"
        )
    limit = int(machine.sbuf_usable_bytes)
    needed = sbuf_bytes_per_partition(kernel)
    if needed > limit and needed > sbuf_bytes_per_partition(before):
        raise RewriteError(
            "sbuf", f"{needed // 1024} KiB per partition would be live at once, of {limit // 1024}"
        )
    try:
        # What the tiles of the kernel do not show: those in PSUM of transposes and broadcasts that calls imply.
        joined(kernel, machine)
    except NKIError as error:
        raise RewriteError(error.name.partition("_")[0], error.message) from None


def _repeated_writes(kernel: Kernel) -> list[str]:
    """Tensors that every iteration of an `affine_range` writes at one place other than by accumulating.

    The compiler refuses these: iterations may run in any order. It knows accumulation by ``+=`` and `nl.loop_reduce`.
    """
    out = []
    for instr, loops in kernel.walk():
        if _accumulates(instr):
            continue
        for dst in instr.dsts:
            for depth, loop in enumerate(loops):
                outlives = dst.tensor.scope is None or dst.tensor.scope in loops[:depth]
                told_apart = loop.var in dst.loops() or any(loop.var in e.terms for e in instr.mask)
                if loop.kind is LoopKind.AFFINE and loop.trips > 1 and outlives and not told_apart:
                    out.append(dst.tensor.name)
    return out


def _accumulates(instr: Instr) -> bool:
    if instr.attrs.get("accumulate") or instr.op in ("nl.loop_reduce", "nl.atomic_rmw"):
        return True
    return instr.op.startswith("nl.") and instr.dst in (instr.args.get("x"), instr.args.get("y"))


def _check_scope(access: Access, loops: tuple[Loop, ...], around: set[LoopVar]) -> None:
    tensor = access.tensor
    if tensor.scope is not None and tensor.scope not in loops:
        raise RewriteError(
            "scope", f"`{tensor.name}` is used outside of the loop over {tensor.scope.var.name}"
        )
    for var in access.loops():
        if var not in around:
            raise RewriteError("scope", f"the loop index {var.name} is used outside of its loop")


def _check_bounds(access: Access, instr: Instr) -> None:
    if instr.mask:
        return
    for dim, (e, extent) in enumerate(zip(access.index, access.tensor.shape, strict=True)):
        if isinstance(e, Indirect):
            continue
        low, high = e.bounds(lambda s: access.shape[s] if isinstance(s, int) else s.trips)
        if low < 0 or high >= extent:
            raise RewriteError(
                "bounds",
                f"dimension {dim} of `{access.tensor.name}` is indexed from {low} to {high}, of {extent}",
            )


def _check_tile(access: Access, instr: Instr, machine: Machine) -> None:
    buffer = access.tensor.buffer
    if instr.op in _FILLS and access == access.tensor.whole():
        return  # every block of it, each a tile of its own
    if access.shape[0] > machine.partitions and (buffer.on_chip or instr.dst.tensor.buffer.on_chip):
        raise RewriteError("partitions", f"a tile of `{access.tensor.name}` has {access.shape[0]} partitions")
    if not buffer.on_chip:
        return
    if not access.is_indirect:
        _check_axes(access)
    limit = PSUM_FREE_ELEMENTS if buffer is Buffer.PSUM else SBUF_FREE_ELEMENTS
    if access.free_size > limit:
        raise RewriteError(
            "free-size", f"a tile of `{access.tensor.name}` has {access.free_size} elements a partition"
        )
    if sum(1 for n in access.shape[1:] if n > 1) > FREE_DIMENSIONS:
        raise RewriteError(
            "free-size", f"a tile of `{access.tensor.name}` has more than {FREE_DIMENSIONS} free dimensions"
        )


def _check_axes(access: Access) -> None:
    """The first axis of a tile runs over the partitions and nothing else does; no axis runs over blocks."""
    tensor = access.tensor
    blocks, free = access.affine[: tensor.par_dim], access.affine[tensor.par_dim + 1 :]
    if any(e.axes() for e in blocks):
        raise RewriteError("shape", f"a tile would span several blocks of `{tensor.name}`")
    if any(axis != 0 for axis in access.affine[tensor.par_dim].axes()) or any(0 in e.terms for e in free):
        raise RewriteError(
            "partitions", f"the first axis of a tile of `{tensor.name}` does not run over the partitions"
        )


def _check_operation(instr: Instr) -> None:
    if instr.op == "nisa.nc_matmul":
        stationary, moving = instr.args["stationary"], instr.args["moving"]
        assert isinstance(stationary, Access) and isinstance(moving, Access)
        if stationary.free_size > STATIONARY_FREE:
            raise RewriteError(
                "matmul", f"the stationary tile has {stationary.free_size} columns, of {STATIONARY_FREE}"
            )
        if moving.free_size > MOVING_FREE:
            raise RewriteError("matmul", f"the moving tile has {moving.free_size} columns, of {MOVING_FREE}")
    elif instr.op == "nl.matmul":
        x, y = instr.args["x"], instr.args["y"]
        assert isinstance(x, Access) and isinstance(y, Access)
        if max(x.shape) > STATIONARY_FREE or y.free_size > MOVING_FREE:
            raise RewriteError(
                "matmul", f"nl.matmul of {x.shape} and {y.shape} is larger than one matmul instruction"
            )
    elif instr.op in ("nisa.nc_transpose", "nl.transpose"):
        data = instr.args["data" if instr.op == "nisa.nc_transpose" else "x"]
        assert isinstance(data, Access)
        if data.free_size > STATIONARY_FREE:
            raise RewriteError(
                "transpose", f"a tile of {data.free_size} columns cannot be transposed at once"
            )
    elif instr.op == "nisa.bn_stats":
        data = instr.args["data"]
        assert isinstance(data, Access)
        if data.free_size > MOVING_FREE:
            raise RewriteError("bn_stats", f"bn_stats takes at most {MOVING_FREE} elements a partition")


# -- tidying ------------------------------------------------------------------------------------------------------------
def tidy(kernel: Kernel) -> None:
    """Bring a kernel into the form that tracing its source gives.

    Loops of one trip and empty loops go, tile axes of one element leave the index expressions, names become unique.
    """
    _inline_single_trips(kernel, kernel.body, None)
    _fill_whole_tensors(kernel.body, None)
    replace_instrs(kernel.body, lambda instr: map_instr(instr, _without_unit_axes))
    names: set[str] = set()
    for tensor in kernel.tensors():
        if tensor.kind is not TensorKind.INPUT:
            _make_unique(tensor, names)
        names.add(tensor.name)
    _name_loops(kernel.body, set())


def _fill_whole_tensors(body: list[Node], scope: Loop | None) -> None:
    """Loops that do nothing but fill every block of a tensor are one ``nl.zeros`` of the whole tensor."""
    for k, node in enumerate(body):
        if not isinstance(node, Loop):
            continue
        filling = _filled_by(node)
        if filling is not None and filling.dst.tensor.scope is scope:
            body[k] = filling.replace(dsts=(filling.dst.tensor.whole(),))
        else:
            _fill_whole_tensors(node.body, node)


def _filled_by(loop: Loop) -> Instr | None:
    """The fill in the innermost of some perfectly nested loops, if together they reach every block once."""
    variables: list[LoopVar] = []
    node: Node = loop
    while isinstance(node, Loop):
        if len(node.body) != 1:
            return None
        variables.append(node.var)
        node = node.body[0]
    if node.op not in _FILLS or node.mask:
        return None
    tensor = node.dst.tensor
    if node.dst.is_indirect or tensor.block_shape != tuple(v.trips for v in variables):
        return None
    one_block = tuple(Affine.of(v) for v in variables)
    free = tensor.shape[tensor.par_dim :]
    whole_block = tuple(Affine.of(k) if n > 1 else Affine(0) for k, n in enumerate(free))
    reached = node.dst.affine == (*one_block, *whole_block) and node.dst.shape == free
    return node if reached else None


def _inline_single_trips(kernel: Kernel, body: list[Node], scope: Loop | None) -> None:
    for k in range(len(body) - 1, -1, -1):
        node = body[k]
        if not isinstance(node, Loop):
            continue
        _inline_single_trips(kernel, node.body, node)
        if node.trips == 1:
            substitute(node.body, {node.var: 0})
            rescope(node.body, node, scope)
            body[k : k + 1] = node.body
        elif not node.body:
            del body[k]
    if scope is None:
        replace_instrs(body, _without_empty_reductions)


def _without_empty_reductions(instr: Instr) -> Instr:
    """A reduction over no loop is a copy."""
    if instr.op == "nl.loop_reduce" and not instr.attrs["loops"]:
        return Instr("nl.copy", instr.dsts, {"src": instr.args["x"]}, {}, instr.mask, instr.line)
    return instr


def _without_unit_axes(access: Access) -> Access:
    return access.substitute({k: 0 for k, n in enumerate(access.shape) if n == 1})


def _name_loops(body: list[Node], names: set[str]) -> None:
    """Give every loop an index name of its own, as tracing does: ``n``, ``n_1``, ``n_2``."""
    for node in body:
        if not isinstance(node, Loop):
            continue
        stem, n = re.sub(r"_\d+$", "", node.var.name), 0
        name = stem
        while name in names:
            n += 1
            name = f"{stem}_{n}"
        node.var.name = name
        names.add(name)
        _name_loops(node.body, names)


def _make_unique(tensor: Tensor, names: set[str]) -> None:
    stem, n = tensor.name, 1
    while tensor.name in names:
        n += 1
        tensor.name = f"{stem}_{n}"
