"""Latency, counters and bounds of a kernel, without running it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .compiler import Engine, Program, compile_kernel
from .counters import Totals, profile_fields, total
from .ir import Kernel, TensorKind
from .machine import Machine, machine_for
from .timing.simulate import Simulation


class Estimate(BaseModel):
    """What the machine model says of one kernel."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    target: str = Field(description="The machine")
    latency_ms: float = Field(description="Predicted total time on the device, launch included")
    band_ms: float = Field(description="Two kernels whose latencies differ by less are a tie")
    counters: dict[str, int | float] = Field(
        description="The sixteen fields, by neuron-profile's names and units"
    )
    engine_busy_ms: dict[str, float] = Field(
        description="Working time of every engine; dma: all queues together"
    )
    bounds: dict[str, float] = Field(
        description="Lower bounds on the time, in ms, by style of neuron-profile's analysis"
    )
    notes: list[str] = Field(default_factory=list, description="What the compiler model decided")
    timeline: Any = Field(default=None, description="Executed instructions, if asked for")


def estimate(kernel: Kernel, target: str = "trn1", with_timeline: bool = False) -> Estimate:
    """Predict a kernel's latency and profile on a target.

    Args:
        kernel: as traced.
        target: ``trn1`` or ``trn2``.
        with_timeline: also return every executed instruction with start and end.

    Raises:
        ValueError: for an unknown target.
    """
    machine = machine_for(target)
    return estimate_program(compile_kernel(kernel, machine), machine, with_timeline)


def estimate_program(program: Program, machine: Machine, with_timeline: bool = False) -> Estimate:
    """The same for a program that is already compiled, on any machine."""
    totals = total(program, machine)
    run = Simulation(program, machine, record=with_timeline).run()
    total_ns = run.end_ns + machine.launch_ns
    latency_ms = (total_ns + machine.first_run_offset_ns) * 1e-6
    return Estimate(
        target=machine.name,
        latency_ms=latency_ms,
        band_ms=float(machine.latency_band_ms),
        counters=profile_fields(totals, total_ns, machine),
        engine_busy_ms={
            str(engine): totals.busy_ns[engine] * 1e-6 for engine in Engine if engine is not Engine.SYNC
        },
        bounds=_bounds(program, totals, latency_ms, machine),
        notes=program.notes,
        timeline=run.events if with_timeline else None,
    )


def _bounds(program: Program, totals: Totals, total_ms: float, machine: Machine) -> dict[str, float]:
    rate = machine.dma_engines * machine.dma_bytes_per_ns
    compute = max(totals.busy_ns[e] for e in (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD))
    return {
        "total_ms": total_ms,
        "memory_bound_ms": totals.busy_ns[Engine.DMA] * 1e-6,
        "memory_bound_ideal_ms": totals.dma_bytes / rate * 1e-6,
        "memory_bound_no_reloads_ms": _once_bytes(program.kernel) / rate * 1e-6,
        "compute_bound_ms": compute * 1e-6,
        "compute_bound_ideal_ms": totals.matmul_cycles_ns * 1e-6,
        "compute_bound_useful_ms": (totals.matmul_cycles_ns - totals.transpose_cycles_ns) * 1e-6,
    }


def _once_bytes(kernel: Kernel) -> int:
    """Bytes of every input and output, each moved once."""
    tensors = {t.storage for t in kernel.params if t.kind is TensorKind.INPUT} | {
        t.storage for t in kernel.outputs
    }
    total_bytes = 0
    for t in tensors:
        size = t.dtype.itemsize
        for n in t.shape:
            size *= n
        total_bytes += size
    return total_bytes
