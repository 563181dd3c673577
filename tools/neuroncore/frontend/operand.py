"""Operands of instructions: proper tiles, in scope and within bounds; masks; new tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import Dtype
from ..errors import NKIError
from ..ir import Access, Affine, Buffer, Indirect, LoopVar, Tensor, TensorKind, identity_index
from .index import Condition, shift_axes
from .session import Retrace, current, in_kernel
from .subscript import out_of_bounds
from .tile import Tile

INDEX_TAKERS = frozenset(
    [
        "load",
        "store",
        "dma_copy",
        "dma_compute",
        "atomic_rmw",
        "tensor_copy_dynamic_src",
        "tensor_copy_dynamic_dst",
    ]
)
"""Operations that take a tensor indexed with a tile."""


def operand(value: Tile, *, name: str, op: str, buffers: tuple[Buffer, ...] | None = None) -> Access:
    """The access of a tile used as an operand: in scope, in the right memory, a proper tile.

    Raises:
        NKIError: otherwise.
    """
    session = current()
    access = value.access
    tensor = access.tensor
    if buffers is not None and tensor.buffer not in buffers:
        expected = " or ".join(f"'{b}'" for b in buffers)
        raise NKIError(
            "err_unsupported_memory",
            f"Expected operand '{name}' of '{op}' to be in address space {expected}, but got a tile in "
            f"'{tensor.buffer}' instead.",
            line=session.line(),
        )
    if tensor in session.moved:
        session.assumptions.kept.add(session.moved[tensor])
        raise Retrace(f"{tensor.name} is used after it was assigned into another tensor")
    session.check_scope(access)
    if (
        access.is_indirect
        and op not in INDEX_TAKERS
        and not (session.dialect == "nki" and tensor.buffer.on_chip)
    ):
        raise _indirect_refused(access, name, op)
    if tensor.buffer.on_chip:
        return as_tile(access, name=name, op=op)
    return access


def _indirect_refused(access: Access, name: str, op: str) -> NKIError:
    if access.tensor.buffer.on_chip and op in ("copy", "assignment", "tensor_copy"):
        return NKIError(
            "err_copy_dynamic_indirect_indices_not_natively_supported",
            f"{access.tensor.name} is copied from or to a place that is only known at run time",
            line=current().line(),
        )
    return NKIError(
        "err_indirect_indices_are_not_supported_with_nki_api",
        f"operand '{name}' of '{op}' is {access.tensor.name} indexed with a tile",
        line=current().line(),
    )


def as_tile(access: Access, *, name: str, op: str) -> Access:
    """An on-chip access with its partition axis first, at least two axes, and no axis over a block dimension.

    Raises:
        NKIError: if it is not a tile.
    """
    session = current()
    tensor = access.tensor
    if tensor.par_dim == 0 and len(access.shape) >= 2 and access.index is identity_index(tensor.shape):
        if access.shape == tensor.shape:
            return access
    if len(access.shape) < 2:
        access = Access(tensor, access.index, (*access.shape, *(1,) * (2 - len(access.shape))))
    p = access.index[tensor.par_dim]
    blocks = access.index[: tensor.par_dim]
    free = access.index[tensor.par_dim + 1 :]
    if blocks and any(isinstance(e, Affine) and e.axes() for e in blocks):
        raise NKIError(
            "err_failed_to_infer_tile_from_local_tensor",
            f"operand '{name}' of '{op}' spans block dimensions of {tensor.name}{list(tensor.shape)}; its partition "
            f"dimension is dimension {tensor.par_dim}",
            line=session.line(),
        )
    terms = p.terms if isinstance(p, Affine) else p.offset.terms
    if any(isinstance(s, int) and s for s in terms) or any(
        isinstance(e, Affine) and 0 in e.terms for e in free
    ):
        raise NKIError(
            "err_leading_dimension_of_tensor_must_be_partition",
            f"the first axis of operand '{name}' of '{op}' must run over the partition dimension of {tensor.name}",
            line=session.line(),
        )
    if access.shape[0] > session.machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {access.shape[0]} exceeds architecture limitation of "
            f"{session.machine.partitions}.",
            line=session.line(),
        )
    return access


def check_bounds(access: Access, mask: tuple[Affine, ...]) -> None:
    """Refuse an access whose affine index may leave its tensor where the mask allows it.

    Raises:
        NKIError: `err_tensor_access_out_of_bound`.
    """
    index = access.index
    tensor = access.tensor
    if index is identity_index(tensor.shape) or current().trusts(index):
        return
    if any(condition.is_const and condition.const < 0 for condition in mask):
        return

    def extent(s: LoopVar | int) -> int:
        return access.shape[s] if isinstance(s, int) else s.trips

    for dim, e in enumerate(index):
        if isinstance(e, Indirect):
            continue
        low, high = e.bounds(extent)
        size = tensor.shape[dim]
        if (
            low < 0
            and not _guarded(e, mask, extent)
            or high >= size
            and not _guarded(-e + (size - 1), mask, extent)
        ):
            raise out_of_bounds(tensor, dim, low, high, size)
    if not mask:
        current().trust(index)


DMA_CALLS = frozenset(
    [
        "nl.load",
        "nl.store",
        "nl.load_transpose2d",
        "nl.atomic_rmw",
        "nisa.dma_copy",
        "nisa.dma_transpose",
        "nisa.dma_compute",
    ]
)
"""Calls that DMA engines execute, which reach any partition of SBUF."""

TENSOR_CALLS = frozenset(["nisa.nc_matmul", "nl.matmul", "nl.transpose", "nisa.nc_transpose"])
"""Calls that the tensor engine executes, whose results lie in one bank of PSUM each."""

_QUADRANT = 32
"""Partitions from one on which an engine can start to the next."""

_MOST_STARTS = 1 << 12
"""Places of a tile in different iterations up to which each is looked at."""


def check_place(op: str, access: Access, *, written: bool = False) -> None:
    """Refuse a tile that the engine of a call cannot address where it lies.

    Raises:
        NKIError: `invalid_partition_access`, `psum_bank_crossed`.
    """
    check_partitions(op, access)
    if written and op in TENSOR_CALLS and access.tensor.buffer is Buffer.PSUM:
        check_bank(op, access)


def check_mask(op: str, mask: tuple[Affine, ...], rows: int) -> None:
    """Refuse masks that leave an engine's instruction partitions from one on where it cannot start.

    Args:
        op: canonical API name.
        mask: conditions over the axes of the iteration space, whose first one runs over partitions.
        rows: extent of that axis.

    Raises:
        NKIError: `invalid_partition_access`.
    """
    if op in DMA_CALLS or op in TENSOR_CALLS:
        return
    for condition in mask:
        step = condition.coefficient(0)
        if step <= 0 or condition.axes() != (0,):
            continue
        values = {condition.const}
        for loop in condition.loops():
            if len(values) * loop.trips > _MOST_STARTS:
                return
            values = {v + condition.coefficient(loop) * k for v in values for k in range(loop.trips)}
        starts = {-(v // step) for v in values}
        wrong = [start for start in starts if 0 < start < rows and start % _QUADRANT]
        if wrong:
            raise NKIError(
                "invalid_partition_access",
                f"the mask of '{op.rpartition('.')[2]}' leaves partitions from {min(wrong)} on; the engines start at 0, "
                "32, 64 or 96",
                line=current().line(),
                remedy="mask the load or the store instead (DMA engines reach any partition), or select with nl.where",
            )


def check_bank(op: str, access: Access) -> None:
    """Refuse a matmul's result that lies in two banks of PSUM.

    Raises:
        NKIError: `psum_bank_crossed`.
    """
    tensor = access.tensor
    bank = current().machine.psum_bank_bytes // tensor.dtype.itemsize
    if math.prod(tensor.shape[tensor.par_dim + 1 :]) <= bank:
        return
    place, stride = Affine(0), 1
    for dim in range(len(tensor.shape) - 1, tensor.par_dim, -1):
        e = access.index[dim]
        if not isinstance(e, Affine):
            return
        place = place + e * stride
        stride *= tensor.shape[dim]
    inside = [s for s in place.terms if isinstance(s, int)]
    low = sum(min(0, place.terms[s] * (access.shape[s] - 1)) for s in inside)
    high = sum(max(0, place.terms[s] * (access.shape[s] - 1)) for s in inside)
    starts = {place.const}
    for loop in place.loops():
        step = place.coefficient(loop)
        if step % bank and len(starts) * loop.trips <= _MOST_STARTS:
            starts = {start + step * k for start in starts for k in range(loop.trips)}
    for start in starts:
        if (start + low) // bank != (start + high) // bank:
            raise NKIError(
                "psum_bank_crossed",
                f"'{op.rpartition('.')[2]}' writes elements {start + low} to {start + high} of each partition of "
                f"`{tensor.name}`; a bank of psum ends every {bank}",
                line=current().line(),
                remedy="give every result a bank of its own: a block dimension, or offsets that are multiples of a bank",
            )


def check_partitions(op: str, access: Access) -> None:
    """Refuse a tile whose partitions the engines cannot address: they start at a quadrant, or a half, and follow on.

    Raises:
        NKIError: `invalid_partition_access`; neuronx-cc fails with "Invalid access of n partitions starting at partition
            p" where it verifies its own output.
    """
    tensor = access.tensor
    if access.index is identity_index(tensor.shape) or not tensor.buffer.on_chip:
        return
    if op in DMA_CALLS and tensor.buffer is Buffer.SBUF:
        return
    p = access.index[tensor.par_dim]
    if not isinstance(p, Affine) or not p.terms and not p.const:
        return
    step = p.coefficient(0)
    rows = access.shape[0] if step else 1
    line = current().line()
    if step != 1 and rows > 1:
        raise NKIError(
            "invalid_partition_access",
            f"'{op.rpartition('.')[2]}' takes every {step}th partition of `{tensor.name}`; engines work on neighbours",
            line=line,
            remedy="load the rows in the order in which they are worked on: DMA engines reach any partition",
        )
    grid = next(n for n in (32, 64, 128) if rows <= n)
    starts = [c for s, c in p.terms.items() if not isinstance(s, int) and s.trips > 1]
    if p.const % grid or any(c % grid for c in starts):
        where = f"partition {p.const}" if not starts else f"partitions {p.substitute({0: 0})!r}"
        allowed = {32: "0, 32, 64 or 96", 64: "0 or 64", 128: "0"}[grid]
        raise NKIError(
            "invalid_partition_access",
            f"'{op.rpartition('.')[2]}' takes {rows} partitions of `{tensor.name}` from {where} on; the engines start "
            f"that many at {allowed}",
            line=line,
            remedy="load or store just those rows (DMA engines reach any partition), or move them to the start of a tile",
        )


def _guarded(slack: Affine, mask: tuple[Affine, ...], extent: Callable[[LoopVar | int], int]) -> bool:
    """Whether `slack >= 0` follows from one of the mask's conditions."""
    for given in mask:
        condition = _tightened(given)
        for s, c in slack.terms.items():
            m = condition.coefficient(s)
            if not m or (m > 0) != (c > 0):
                continue
            # slack·|m| - condition·|c| >= 0 everywhere makes slack >= 0 wherever the condition holds.
            difference = slack * abs(m) - condition * abs(c)
            if difference.bounds(extent)[0] > -abs(m):
                return True
    return False


def _tightened(condition: Affine) -> Affine:
    """The same condition with the least constant: the other terms only take multiples of their common divisor.

    ``(2 * i + j) * 128 < 200`` says no less than ``(2 * i + j) * 128 <= 128``.
    """
    step = math.gcd(*condition.terms.values())
    return Affine(condition.const // step * step, condition.terms) if step > 1 else condition


def mask_parts(mask: Any, ndim: int) -> tuple[Affine, ...]:
    """The inequalities of a ``mask=`` argument over the axes of a tile with `ndim` axes.

    Raises:
        NKIError: `err_unsupported_expression_in_mask`.
    """
    if mask is None or mask is True:
        return ()
    if mask is False:
        return (Affine(-1),)  # a comparison of integers in an unrolled loop: the instruction never runs
    if not isinstance(mask, Condition) or mask.negated:
        raise NKIError(
            "err_unsupported_expression_in_mask",
            f"a mask must be comparisons of affine expressions, got {type(mask).__name__}",
            line=current().line(),
        )
    if not mask.is_affine:
        raise NKIError(
            "err_unsupported_expression_in_mask",
            f"a mask compares a value that is not affine in the loop indices: {mask.parts[0]!r}",
            line=current().line(),
        )
    parts = []
    for part in mask.parts:
        shift = ndim - len(part.shape)
        if shift < 0:
            raise NKIError(
                "err_unsupported_expression_in_mask",
                f"a mask with {len(part.shape)} axes is applied to a tile with {ndim}",
                line=current().line(),
            )
        affine = shift_axes(part.affine, shift)
        if affine.is_const and affine.const >= 0:
            continue
        parts.append(affine)
    return tuple(parts)


def new_tile(shape: tuple[int, ...], dtype: Dtype, buffer: Buffer, *, hint: str) -> Tile:
    """A fresh on-chip tensor in the current scope, as a tile, named after the variable that it is assigned to.

    Raises:
        NKIError: if it cannot exist on the target.
    """
    session = in_kernel()
    if len(shape) < 2:
        shape = (*shape, *(1,) * (2 - len(shape)))
    frame = session.frame()
    line = 0
    if frame is not None:
        line = frame.f_lineno
        hint = session.source_map.assigned_name(frame) or hint
    tensor = Tensor(
        session.unique(hint),
        shape,
        dtype,
        buffer,
        kind=TensorKind.LOCAL,
        scope=session.scope,
        line=line,
    )
    check_capacity(tensor)
    return Tile(tensor.whole() if len(shape) <= 2 else laid_out(tensor))


def laid_out(tensor: Tensor) -> Access:
    """A new on-chip tensor as its creator sees it; stored with a single free dimension if the kernel reshapes it."""
    session = current()
    site = session.created[tensor] = session.site()
    if site not in session.assumptions.flattened:
        return tensor.whole()
    seen = tensor.shape
    lead = tensor.par_dim + 1
    tensor.shape = (*seen[:lead], math.prod(seen[lead:]))
    place = Affine(0)
    stride = 1
    for axis in range(len(seen) - 1, lead - 1, -1):
        place = place + Affine(0, {axis: stride} if seen[axis] > 1 else {})
        stride *= seen[axis]
    return Access(tensor, (*identity_index(seen)[:lead], place), seen)


def check_capacity(tensor: Tensor) -> None:
    """Refuse a tensor that the target's memories cannot hold.

    Raises:
        NKIError: too many partitions, a PSUM tile larger than a bank, or an SBUF tile larger than SBUF.
    """
    session = current()
    machine = session.machine
    size = math.prod(tensor.shape) * tensor.dtype.itemsize
    if size > session.limits.tensor_bytes:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"tensor `{tensor.name}` of shape {list(tensor.shape)} takes {size:,} bytes",
            line=session.line(),
        )
    if not tensor.buffer.on_chip:
        return
    partitions = tensor.shape[tensor.par_dim]
    if partitions > machine.partitions:
        raise NKIError(
            "err_num_partition_exceed_arch_limit",
            f"Size of partition dimension {partitions} exceeds architecture limitation of {machine.partitions}.",
            line=session.line(),
        )
    free = tensor.free_bytes_per_partition
    if tensor.buffer is Buffer.PSUM:
        if free > machine.psum_bytes_per_partition:
            raise NKIError(
                "err_size_of_dimension_exceed_arch_limit",
                f"PSUM tensor `{tensor.name}` takes {free} bytes per partition; PSUM has "
                f"{machine.psum_bytes_per_partition}, in banks of {machine.psum_bank_bytes}",
                line=session.line(),
            )
    elif free > machine.sbuf_bytes_per_partition:
        raise NKIError(
            "err_size_of_dimension_exceed_arch_limit",
            f"SBUF tensor `{tensor.name}` takes {free} bytes per partition; SBUF has {machine.sbuf_bytes_per_partition}",
            line=session.line(),
        )
