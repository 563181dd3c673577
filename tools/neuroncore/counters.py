"""A profile's counters from a program, as `neuron-profile` counts them.

Its peculiarities were verified to the byte on published trn1 profiles: DMA bytes count in full, engine bytes of one
partition only; TENSOR_TENSOR, scans and memsets are left out, as are [P, 1] scale and bias operands; an fp32 matmul is
two passes and counts twice in bytes and FLOPs, a one-zero broadcast once; a stationary operand that never changes is
read once; a kernel's own HBM scratch tensor counts as spill.
"""

from __future__ import annotations

import dataclasses

from .compiler.program import UNCOUNTED, Engine, Kind, Op, Program, executions
from .ir import Access, Buffer
from .machine import Machine
from .timing.costs import busy_ns, masked_transfer_ns, transfer_ns
from .timing.masks import Mask
from .timing.simulate import triggers_from_gpsimd


@dataclasses.dataclass(slots=True)
class Totals:
    """Sums over all executions of a program.

    Attributes:
        bytes: the eight byte counters and the two FLOP counters, by `neuron-profile`'s names.
        busy_ns: working time of every engine; for DMA, of all queues together.
        matmul_cycles_ns: array time of the matmuls alone, weight loads not counted.
        transpose_cycles_ns: the part of it spent on transposes.
        dma_bytes: all bytes moved by DMA.
        stores: executed output stores.
    """

    bytes: dict[str, float]
    busy_ns: dict[Engine, float]
    matmul_cycles_ns: float = 0.0
    transpose_cycles_ns: float = 0.0
    dma_bytes: float = 0.0
    stores: float = 0.0


_NAMES = (
    "hbm_read_bytes", "hbm_write_bytes", "psum_read_bytes", "psum_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes",
    "spill_reload_bytes", "spill_save_bytes", "hardware_flops", "transpose_flops",
)  # fmt: skip


def total(program: Program, machine: Machine) -> Totals:
    """Count everything, by formula: nothing is replayed."""
    totals = Totals(dict.fromkeys(_NAMES, 0.0), dict.fromkeys(Engine, 0.0))
    resident = False
    for op, loops in program.walk():
        count = executions(op, loops)
        elements, rows, some, walked, inner = _shares(op)
        if op.transfer is not None:
            _count_transfer(op, count * elements, totals)
            totals.busy_ns[Engine.DMA] += _transfer_busy(op, machine, elements, rows, some, inner) * count
            if triggers_from_gpsimd(op):
                totals.stores += count * some
            continue
        totals.busy_ns[op.engine] += _busy(op, machine, walked, some) * count
        if op.engine is Engine.TENSOR:
            resident |= op.stationary_resident
            _count_matmul(op, count, totals, machine)
        elif op.kind not in UNCOUNTED:
            for access in op.reads:
                _add(totals, access, "read", count * walked)
            for access in op.writes:
                _add(totals, access, "write", count * walked)
    if resident:
        totals.bytes["sbuf_read_bytes"] += machine.partitions * 4
    setup = machine.gpsimd_setup_ns if totals.stores else 0.0
    totals.busy_ns[Engine.GPSIMD] += totals.stores * machine.store_trigger_ns + setup
    return totals


def _shares(op: Op) -> tuple[float, float, float, float, float]:
    if not op.mask:
        return 1.0, 1.0, 1.0, 1.0, 1.0
    return Mask(op.mask, op.mask_shape).means()


def _transfer_busy(
    op: Op, machine: Machine, elements: float, rows: float, some: float, inner: float
) -> float:
    """Mean time of all DMA queues; masks make pieces fewer or shorter."""
    assert op.transfer is not None
    free = elements / rows / some if rows and some else 0.0
    if free >= 1.0:
        return transfer_ns(op.transfer, machine)[0] * elements
    return masked_transfer_ns(op.transfer, machine, op.mask_shape, free, inner)[0] * rows * some


def _busy(op: Op, machine: Machine, walked: float, some: float) -> float:
    """Mean engine time; masked-out iterations issue nothing, partial ones walk fewer elements."""
    if not op.mask:
        return busy_ns(op, machine)
    if some <= 0:
        return 0.0
    return some * busy_ns(op, machine, op.elements * min(1.0, walked / some))


def _count_transfer(op: Op, count: float, totals: Totals) -> None:
    transfer = op.transfer
    assert transfer is not None
    nbytes = transfer.nbytes * count
    totals.dma_bytes += nbytes
    if transfer.hbm_read:
        totals.bytes["hbm_read_bytes"] += nbytes
        if transfer.scratch:
            totals.bytes["spill_reload_bytes"] += nbytes
    if transfer.hbm_write:
        totals.bytes["hbm_write_bytes"] += nbytes
        if transfer.scratch:
            totals.bytes["spill_save_bytes"] += nbytes
    if not transfer.hbm_read:
        totals.bytes["sbuf_read_bytes"] += nbytes
    if not transfer.hbm_write:
        totals.bytes["sbuf_write_bytes"] += nbytes


def _count_matmul(op: Op, count: float, totals: Totals, machine: Machine) -> None:
    itemsize = op.reads[0].dtype.itemsize
    moving = op.elements * itemsize
    stationary = 0 if op.stationary_resident else op.stationary_columns * itemsize
    totals.bytes["sbuf_read_bytes"] += count * op.passes * (moving + stationary)
    totals.bytes["psum_write_bytes"] += count * op.passes * op.elements * 4
    flops = 2.0 * op.passes * op.rows_contracted * op.stationary_columns * op.elements * count
    totals.bytes["hardware_flops"] += flops
    array = (
        busy_ns(op, machine) - (0 if op.stationary_resident else op.passes * machine.weight_load_ns)
    ) * count
    totals.matmul_cycles_ns += max(array, 0.0)
    if op.kind is Kind.TRANSPOSE:
        totals.bytes["transpose_flops"] += flops
        totals.transpose_cycles_ns += max(array, 0.0)


def _add(totals: Totals, access: Access, direction: str, count: float) -> None:
    memory = "psum" if access.tensor.buffer is Buffer.PSUM else "sbuf"
    totals.bytes[f"{memory}_{direction}_bytes"] += access.free_size * access.dtype.itemsize * count


def profile_fields(totals: Totals, total_ns: float, machine: Machine) -> dict[str, int | float]:
    """The sixteen fields that a planner is shown, under `neuron-profile`'s names; percents are fractions."""
    fields: dict[str, int | float] = {name: round(totals.bytes[name]) for name in _NAMES}
    hbm = fields["hbm_read_bytes"] + fields["hbm_write_bytes"]
    useful = fields["hardware_flops"] - fields["transpose_flops"]
    fields["peak_flops_bandwidth_ratio"] = float(machine.profiler_peak_flops / machine.hbm_bytes_per_s)
    fields["mm_arithmetic_intensity"] = useful / hbm if hbm else 0.0
    fields["hfu_estimated_percent"] = fields["hardware_flops"] / (
        machine.profiler_peak_flops * total_ns * 1e-9
    )
    for engine in (Engine.SCALAR, Engine.VECTOR, Engine.GPSIMD):
        fields[f"{engine}_engine_active_time_percent"] = min(1.0, totals.busy_ns[engine] / total_ns)
    return fields
