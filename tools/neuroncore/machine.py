"""The facts of one NeuronCore: clocks, memories, costs, each with its unit and where it comes from.

Nothing else in the simulator holds a hardware number, and nothing branches on a target's name: trn1 and trn2 are two
values of one dataclass. Facts marked ``fitted`` were adjusted to the published trn1 profiles of the fourteen NKIBench
baselines; all others come from documents or are plain readings of a counter.
"""

from __future__ import annotations

import dataclasses
from typing import Self


class Fact(float):
    """A number that knows its unit and its source.

    Attributes:
        unit: of the value.
        source: document and section, or what it was fitted on.
        fitted: whether the value was adjusted to measurements.
    """

    unit: str
    source: str
    fitted: bool

    def __new__(cls, value: float, unit: str, source: str, fitted: bool = False) -> Self:
        """Make one."""
        fact = super().__new__(cls, value)
        fact.unit = unit
        fact.source = source
        fact.fitted = fitted
        return fact

    def __reduce__(self) -> tuple[type[Fact], tuple[float, str, str, bool]]:
        """Pickle with the attributes."""
        return Fact, (float(self), self.unit, self.source, self.fitted)

    def with_value(self, value: float) -> Fact:
        """The same fact with another number, for refits and what-if questions."""
        return Fact(value, self.unit, self.source, self.fitted)


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """One NeuronCore and the compiler limits that go with it.

    Field names carry units. Times are per instruction unless said otherwise; bytes of on-chip memories are per
    partition.
    """

    name: str
    # Clocks
    tensor_clock_ghz: Fact
    vector_clock_ghz: Fact
    scalar_clock_ghz: Fact
    gpsimd_clock_ghz: Fact
    # On-chip memories
    partitions: Fact
    sbuf_bytes: Fact
    sbuf_usable_bytes: Fact
    psum_banks: Fact
    psum_bank_bytes: Fact
    # TensorE
    fp32_passes: Fact
    fp32_cycles_per_row_and_pass: Fact
    transpose_cycles_per_row_and_pass: Fact
    weight_load_ns: Fact
    matmul_min_cycles: Fact
    # VectorE, ScalarE, GpSimd
    vector_overhead_ns: Fact
    scalar_overhead_ns: Fact
    min_cycles: Fact
    gpsimd_start_cycles: Fact
    half_precision_copy_gain: Fact
    strided_port_factor: Fact
    vector_scalar_port_shared: Fact
    vector_gpsimd_port_shared: Fact
    # DMA
    dma_engines: Fact
    dma_rows_per_engine: Fact
    dma_piece_ns: Fact
    dma_bytes_per_ns: Fact
    dma_small_piece_ns: Fact
    dma_small_bytes_per_ns: Fact
    dma_trigger_ns: Fact
    dma_completion_ns: Fact
    dma_element_ns: Fact
    store_trigger_ns: Fact
    gpsimd_setup_ns: Fact
    # Synchronization, launch
    semaphore_ns: Fact
    launch_ns: Fact
    first_run_offset_ns: Fact
    # Overlap
    reorder_window: Fact
    buffer_copies: Fact
    # Peaks used by counters and bounds
    profiler_peak_flops: Fact
    hbm_bytes_per_s: Fact
    latency_band_ms: Fact

    def facts(self) -> list[tuple[str, Fact]]:
        """Every fact by name, in the order of this class."""
        return [
            (field.name, value)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Fact)
        ]

    def fitted(self) -> list[tuple[str, Fact]]:
        """The facts that were adjusted to measurements."""
        return [(name, fact) for name, fact in self.facts() if fact.fitted]

    def replace(self, **values: float) -> Machine:
        """A machine with other numbers for some facts; units and sources stay.

        Raises:
            AttributeError: for a name that is no fact.
        """
        changed = {name: getattr(self, name).with_value(value) for name, value in values.items()}
        return dataclasses.replace(self, **changed)


_ARCH1 = "NeuronCore-v2 architecture guide (SDK 2.26)"
_ARCH2 = "NeuronCore-v3 architecture guide (SDK 2.32)"
_FIT = "fitted on the trn1 profiles of the fourteen NKIBench baselines"

TRN1 = Machine(
    name="trn1",
    tensor_clock_ghz=Fact(2.8, "GHz", _ARCH1),
    vector_clock_ghz=Fact(1.12, "GHz", _ARCH1),
    scalar_clock_ghz=Fact(1.4, "GHz", _ARCH1),
    gpsimd_clock_ghz=Fact(1.4, "GHz", _ARCH1),
    partitions=Fact(128, "partitions", _ARCH1),
    sbuf_bytes=Fact(192 * 1024, "bytes per partition", _ARCH1),
    sbuf_usable_bytes=Fact(
        176 * 1024, "bytes per partition", "direct allocation guide: 16 KiB are the compiler's"
    ),
    psum_banks=Fact(8, "banks", _ARCH1),
    psum_bank_bytes=Fact(2048, "bytes per partition", _ARCH1),
    fp32_passes=Fact(
        2, "passes", "hardware_flops and psum_write of the trn1 profiles count fp32 matmuls twice"
    ),
    fp32_cycles_per_row_and_pass=Fact(
        2, "cycles", "nki.isa.nc_matmul: four cycles a row for fp32, over two passes"
    ),
    transpose_cycles_per_row_and_pass=Fact(
        1, "cycles", "trn1 profiles of the two rmsnorm kernels whose transposes are not hoisted"
    ),
    weight_load_ns=Fact(50, "ns", "128 columns at 2.8 GHz are 45.7 ns; " + _FIT, fitted=True),
    matmul_min_cycles=Fact(64, "cycles", "nki.isa.nc_matmul"),
    vector_overhead_ns=Fact(95, "ns", _FIT, fitted=True),
    scalar_overhead_ns=Fact(48, "ns", _FIT, fitted=True),
    min_cycles=Fact(64, "cycles", "nki.isa cost table, MIN_II"),
    gpsimd_start_cycles=Fact(150, "cycles", "nki.isa cost table, GPSIMD_START"),
    half_precision_copy_gain=Fact(
        1, "times", "nki.isa cost table: copies of bf16 tiles take N cycles on NC-v2"
    ),
    strided_port_factor=Fact(1.5, "times", _ARCH1 + ": innermost stride of 16 bytes or more"),
    vector_scalar_port_shared=Fact(
        1, "yes or no", _ARCH1 + ": VectorE and ScalarE cannot access PSUM together"
    ),
    vector_gpsimd_port_shared=Fact(
        1, "yes or no", _ARCH1 + ": VectorE and GpSimdE cannot access SBUF together"
    ),
    dma_engines=Fact(16, "engines", _ARCH1),
    dma_rows_per_engine=Fact(
        8, "partitions", "DMA introduction of the NKI guide: partition p uses engine p // 8"
    ),
    dma_piece_ns=Fact(59, "ns", _FIT, fitted=True),
    dma_bytes_per_ns=Fact(21.7, "bytes per ns and engine", _FIT, fitted=True),
    dma_small_piece_ns=Fact(7, "ns", "performance guide of SDK 2.26, figure 29: a transfer of 4 bytes"),
    dma_small_bytes_per_ns=Fact(
        2.5,
        "bytes per ns",
        "adaptive pooling sample: windows of 32 to 44 contiguous bytes, at most 22 ns each",
    ),
    dma_trigger_ns=Fact(1300, "ns", "DMA bandwidth guide: semaphore to start of a DMA"),
    dma_completion_ns=Fact(1300, "ns", _FIT, fitted=True),
    dma_element_ns=Fact(
        4, "ns", "an element-granular transfer costs a few ns an element inside one descriptor"
    ),
    store_trigger_ns=Fact(62, "ns", "GpSimd active time over output stores, eight trn1 profiles: 61 to 66"),
    gpsimd_setup_ns=Fact(1000, "ns", "what remains of GpSimd's active time in the same eight profiles"),
    semaphore_ns=Fact(60, "ns", "60 access cycles at about 1 GHz; 60 to 100 fit the profiles equally"),
    launch_ns=Fact(20_000, "ns", "mamba tutorial's profile: first and last instruction against total time"),
    first_run_offset_ns=Fact(90_000, "ns", _FIT, fitted=True),
    reorder_window=Fact(20, "instructions", _FIT, fitted=True),
    buffer_copies=Fact(
        2,
        "copies at least",
        "silu's profile: 1.26 ms with two, 0.93 with three, 1.23 measured; " + _FIT,
        fitted=True,
    ),
    profiler_peak_flops=Fact(
        91.75e12, "FLOP/s", "peak_flops_bandwidth_ratio 223.78 of the trn1 profiles x 410 GB/s"
    ),
    hbm_bytes_per_s=Fact(410e9, "bytes/s", _ARCH1 + ": 820 GB/s for two cores"),
    latency_band_ms=Fact(0.03, "ms", "published trn1 latencies lie on a grid of 1/18 ms"),
)

TRN2 = dataclasses.replace(
    TRN1,
    name="trn2",
    tensor_clock_ghz=Fact(2.4, "GHz", _ARCH2),
    vector_clock_ghz=Fact(0.96, "GHz", _ARCH2),
    scalar_clock_ghz=Fact(1.2, "GHz", _ARCH2),
    gpsimd_clock_ghz=Fact(1.2, "GHz", _ARCH2),
    sbuf_bytes=Fact(224 * 1024, "bytes per partition", _ARCH2),
    sbuf_usable_bytes=Fact(
        212_456, "bytes per partition", "nki-library's bwmm kernel: 224 KiB less 16,384 + 528"
    ),
    weight_load_ns=Fact(53, "ns", "128 columns at 2.4 GHz"),
    vector_overhead_ns=Fact(155, "ns", "PSUM evictions of AWS's trn2 matmul example: 0.69 us for N=512"),
    scalar_overhead_ns=Fact(56, "ns", "trn1's, in cycles"),
    half_precision_copy_gain=Fact(4, "times", _ARCH2 + ": VectorE performance modes"),
    vector_scalar_port_shared=Fact(0, "yes or no", _ARCH2 + ": lifted"),
    vector_gpsimd_port_shared=Fact(0, "yes or no", _ARCH2 + ": lifted"),
    dma_piece_ns=Fact(63, "ns", "AWS's trn2 matmul example: 108 ns for 1 KiB pieces, less 45 ns of bytes"),
    dma_bytes_per_ns=Fact(23, "bytes per ns and engine", "DMA bandwidth guide"),
    first_run_offset_ns=Fact(0, "ns", "a property of the published trn1 latencies"),
    profiler_peak_flops=Fact(78.6e12, "FLOP/s", "AWS's trn2 profile analysis"),
    hbm_bytes_per_s=Fact(435e9, "bytes/s", "AWS's trn2 profile analysis: DMA bandwidth of one core"),
)

MACHINES = {machine.name: machine for machine in (TRN1, TRN2)}


def machine_for(target: str) -> Machine:
    """The machine of a target name.

    Raises:
        ValueError: for an unknown target.
    """
    try:
        return MACHINES[target]
    except KeyError:
        raise ValueError(f"unknown target {target!r}: use one of {', '.join(MACHINES)}") from None
