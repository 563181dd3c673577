"""How long one instruction keeps its engine busy.

Formulas follow the cost tables of `nki.isa` (SDK 2.26) where those agree with the trn1 profiles, and the profiles where
they do not; each deviation names its evidence.
"""

from __future__ import annotations

import dataclasses
import math

from ..compiler.program import Engine, Kind, Op, Transfer
from ..compiler.transfers import strides
from ..ir import Buffer
from ..machine import Machine


def busy_ns(op: Op, machine: Machine, elements: float | None = None) -> float:
    """Engine time of one execution; `elements` overrides the op's own count (a masked tail)."""
    n = float(op.elements if elements is None else elements)
    if op.engine is Engine.TENSOR:
        return _tensor_ns(op, machine, n)
    if op.engine in (Engine.SCALAR, Engine.VECTOR) and _is_strided(op):
        n *= machine.strided_port_factor
    if op.engine is Engine.SCALAR:
        cycles = max(n * (op.per_element or 1.0), machine.min_cycles) + op.extra_cycles
        return float(cycles / machine.scalar_clock_ghz + machine.scalar_overhead_ns)
    if op.engine is Engine.GPSIMD:
        cycles = machine.gpsimd_start_cycles + n * (op.per_element or _gpsimd_cycles(op)) + op.extra_cycles
        return float(cycles / machine.gpsimd_clock_ghz)
    cycles = max(n * vector_cycles(op, machine), machine.min_cycles) + op.extra_cycles
    return float(cycles / machine.vector_clock_ghz + machine.vector_overhead_ns)


_SPARSE_BYTES = 16
"""Neighbours that lie this far apart are fetched at half the rate (`strided_port_factor`)."""


def _is_strided(op: Op) -> bool:
    """Whether an operand or the result runs through its partitions in long steps."""
    for access in (*op.reads, *op.writes):
        if not access.tensor.buffer.on_chip or access.is_indirect or access.free_size < 2:
            continue
        along = access.partition_axis
        steps = strides(access, access.tensor.par_dim)
        moving = [s for axis, s in enumerate(steps) if axis != along and access.shape[axis] > 1]
        if moving and moving[-1] * access.dtype.itemsize >= _SPARSE_BYTES:
            return True
    return False


def overhead_ns(engine: Engine, machine: Machine) -> float:
    """Part of `busy_ns` in which an engine touches no memory."""
    if engine is Engine.VECTOR:
        return float(machine.vector_overhead_ns)
    if engine is Engine.SCALAR:
        return float(machine.scalar_overhead_ns)
    if engine is Engine.GPSIMD:
        return float(machine.gpsimd_start_cycles / machine.gpsimd_clock_ghz)
    return 0.0


def _tensor_ns(op: Op, machine: Machine, n: float) -> float:
    """LoadStationary plus MultiplyMoving, per pass.

    For fp32 the background weight load does not hide: transpose_matmul alone, with nothing else busy, gives 50 to 53 ns
    a pass. Narrower types hide it behind the previous multiply, as the architecture guide describes.
    """
    wide = any(a.dtype.itemsize == 4 for a in op.reads)
    cycles = 1.0
    if op.kind is Kind.TRANSPOSE:
        cycles = float(machine.transpose_cycles_per_row_and_pass)
    elif wide:
        cycles = float(machine.fp32_cycles_per_row_and_pass)
    one = max(n, machine.matmul_min_cycles) * cycles / machine.tensor_clock_ghz
    load = 0.0 if op.stationary_resident or not wide else machine.weight_load_ns
    return float(op.passes * (one + load))


def vector_cycles(op: Op, machine: Machine) -> float:
    """VectorE cycles per element.

    One for one input or when one of two inputs comes from PSUM; two for two SBUF inputs, scans and reciprocals
    (adamw, silu, mamba, the rmsnorm kernels). Types of two bytes are faster where the cost tables say so.
    """
    if op.per_element is not None:
        return op.per_element
    narrow = all(a.dtype.itemsize <= 2 for a in (*op.reads, *op.writes)) and bool(op.reads or op.writes)
    in_sbuf = all(a.tensor.buffer is Buffer.SBUF for a in (*op.reads, *op.writes))
    if op.kind is Kind.SCAN or op.kind is Kind.RECIPROCAL:
        return 2.0
    if op.kind in (Kind.TENSOR_TENSOR, Kind.SELECT):
        both = len(op.reads) + (1 if op.accumulates else 0) > 1
        sources = (*op.reads, *(op.writes[:1] if op.accumulates else ()))
        if not both or any(a.tensor.buffer is Buffer.PSUM for a in sources):
            return 1.0
        return 1.0 if narrow else 2.0
    if op.kind is Kind.REDUCE:
        return 0.5 if narrow else 1.0
    if op.kind is Kind.MEMSET:
        return 0.5 if narrow else 1.0
    if op.kind in (Kind.COPY, Kind.TENSOR_SCALAR) and narrow:
        gain = machine.half_precision_copy_gain
        return float(1.0 / (gain if in_sbuf else max(1.0, gain / 2)))
    return 1.0


def _gpsimd_cycles(op: Op) -> float:
    """Two inputs share GpSimd's one read port."""
    return float(max(1, len(op.reads)))


def piece_ns(transfer: Transfer, machine: Machine) -> float:
    """Time that one contiguous piece keeps one of the DMA engines busy.

    Elements of a transposing transfer move inside one descriptor per row at a few ns each. Pieces below some 150 bytes
    are over before the engine's pipeline is filled, where they belong to one descriptor; pieces at positions that are read
    at run time have one each, and cost its setup.
    """
    if transfer.indirect:
        return float(machine.dma_piece_ns + transfer.piece_bytes / machine.dma_bytes_per_ns)
    if transfer.elementwise:
        return float(machine.dma_element_ns)
    size = transfer.piece_bytes
    small = machine.dma_small_piece_ns + size / machine.dma_small_bytes_per_ns
    return float(min(small, machine.dma_piece_ns + size / machine.dma_bytes_per_ns))


def masked_transfer_ns(
    transfer: Transfer, machine: Machine, tile: tuple[int, ...], free: float, inner: float
) -> tuple[float, float]:
    """`transfer_ns` of all rows of a transfer whose pieces, or whose number of pieces, a mask has made smaller.

    Args:
        transfer: as it is without the mask.
        machine: the machine.
        tile: extents of the tile.
        free: share of the elements per partition that is left.
        inner: share of the innermost axis that is left: what that cuts off makes pieces shorter, not fewer.
    """
    if transfer.elementwise or free <= 0 or inner <= 0:
        work, shortest = transfer_ns(transfer, machine)
        return work * free, shortest * free
    pieces, size = transfer.pieces_per_row, transfer.piece_bytes
    row = pieces * size
    if inner < 1:
        innermost = next((n for n in reversed(tile[1:]) if n > 1), 1)
        along = row * innermost / max(1, math.prod(tile[1:]))
        size = max(1, round(min(size, along) * inner))
    cut = dataclasses.replace(
        transfer,
        pieces_per_row=max(1, round(row * free / size)),
        piece_bytes=min(size, max(1, round(row * free))),
    )
    return transfer_ns(cut, machine)


def transfer_ns(transfer: Transfer, machine: Machine, fraction: float = 1.0) -> tuple[float, float]:
    """Share of all DMA engines that a transfer uses, as time of the whole set, and its shortest duration.

    Eight partitions share an engine, so a transfer of few rows cannot use them all (DMA introduction of the NKI guide).
    """
    each = piece_ns(transfer, machine)
    descriptors = machine.dma_piece_ns if transfer.elementwise and not transfer.indirect else 0.0
    row = transfer.pieces_per_row * each + descriptors
    total = transfer.rows * row * fraction
    lanes = min(float(machine.dma_engines), math.ceil(transfer.rows / machine.dma_rows_per_engine))
    return total / float(machine.dma_engines), total / lanes
