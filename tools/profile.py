"""What a profiler says of one kernel, under `neuron-profile`'s names and units, and what that means as bounds."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

BackendName = Literal["simulator", "neuron"]

COUNTERS: tuple[str, ...] = (
    "hbm_read_bytes",
    "hbm_write_bytes",
    "psum_read_bytes",
    "psum_write_bytes",
    "sbuf_read_bytes",
    "sbuf_write_bytes",
    "spill_reload_bytes",
    "spill_save_bytes",
    "hardware_flops",
    "transpose_flops",
    "peak_flops_bandwidth_ratio",
    "mm_arithmetic_intensity",
    "hfu_estimated_percent",
    "scalar_engine_active_time_percent",
    "vector_engine_active_time_percent",
    "gpsimd_engine_active_time_percent",
)
"""The fields that a planner is shown beside the latency, by `neuron-profile`'s names."""


class Profile(BaseModel):
    """Latency and counters of one kernel on one core.

    Names and units are those of `neuron-profile view --output-format summary-json`, its peculiarities included: PSUM
    bytes and the engines' part of SBUF bytes are those of one partition, an fp32 matmul counts its FLOPs twice, and
    the fields called percent are fractions from 0 to 1.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    backend: BackendName = Field(description="Who measured: a model of the machine, or the machine")
    target: str = Field(description="The machine: trn1 or trn2")
    latency_ms: float = Field(gt=0, description="Time from start to stop on the device, launch included")
    latency_band_ms: float = Field(
        default=0.03, ge=0, description="Two kernels whose latencies lie within it are a tie"
    )
    hbm_read_bytes: int = Field(ge=0, description="DMA bytes out of HBM")
    hbm_write_bytes: int = Field(ge=0, description="DMA bytes into HBM")
    psum_read_bytes: int = Field(ge=0, description="Bytes that engines read from PSUM, of one partition")
    psum_write_bytes: int = Field(ge=0, description="Bytes that engines write to PSUM, of one partition")
    sbuf_read_bytes: int = Field(
        ge=0, description="Bytes read from SBUF: DMA in full, engines of one partition"
    )
    sbuf_write_bytes: int = Field(
        ge=0, description="Bytes written to SBUF: DMA in full, engines of one partition"
    )
    spill_reload_bytes: int = Field(default=0, ge=0, description="HBM reads of what the compiler had spilled")
    spill_save_bytes: int = Field(default=0, ge=0, description="HBM writes of what the compiler spills")
    hardware_flops: int = Field(
        default=0, ge=0, description="Matmul FLOPs, transposes included, fp32 counted twice"
    )
    transpose_flops: int = Field(
        default=0, ge=0, description="The part of hardware_flops spent on transposes"
    )
    peak_flops_bandwidth_ratio: float = Field(
        default=0.0, ge=0, description="FLOPs per HBM byte at both peaks"
    )
    mm_arithmetic_intensity: float = Field(default=0.0, ge=0, description="Useful matmul FLOPs per HBM byte")
    hfu_estimated_percent: float = Field(
        default=0.0, ge=0, description="hardware_flops over the peak, 0 to 1"
    )
    scalar_engine_active_time_percent: float = Field(
        default=0.0, ge=0, description="Share of the time, 0 to 1"
    )
    vector_engine_active_time_percent: float = Field(
        default=0.0, ge=0, description="Share of the time, 0 to 1"
    )
    gpsimd_engine_active_time_percent: float = Field(
        default=0.0, ge=0, description="Share of the time, 0 to 1"
    )

    @property
    def hbm_bytes(self) -> int:
        """All DMA traffic with HBM."""
        return self.hbm_read_bytes + self.hbm_write_bytes

    def counters(self) -> dict[str, int | float]:
        """The fields of `COUNTERS`, in that order."""
        return {name: getattr(self, name) for name in COUNTERS}


class Bounds(BaseModel):
    """A profile told as lower bounds: how long the kernel would take if only one thing limited it.

    From the whole time down to the unavoidable, each bound drops one kind of waste; the gap between two neighbours is
    what removing that waste could gain.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    total_ms: float = Field(ge=0, description="What the kernel takes")
    memory_bound_ms: float = Field(ge=0, description="Its transfers alone, in the pieces it uses")
    memory_bound_ideal_ms: float = Field(ge=0, description="The same bytes at full DMA bandwidth")
    memory_bound_no_reloads_ms: float = Field(
        ge=0, description="Every input and output once, at full bandwidth"
    )
    compute_bound_ms: float = Field(ge=0, description="Its busiest compute engine alone")
    compute_bound_ideal_ms: float = Field(ge=0, description="The same matmul FLOPs at the array's peak")
    compute_bound_useful_ms: float = Field(ge=0, description="Those FLOPs without transposes, at the peak")
    engine_busy_ms: dict[str, float] = Field(default_factory=dict, description="Busy time of each engine")

    @property
    def limiting(self) -> str:
        """What the time is mostly made of: `memory`, `compute`, or `latency` where neither fills half of it."""
        largest = max(self.memory_bound_ms, self.compute_bound_ms)
        if largest < 0.5 * self.total_ms:
            return "latency"
        return "memory" if self.memory_bound_ms >= self.compute_bound_ms else "compute"

    def digest(self) -> str:
        """The bounds as a few lines of text: each with its share of the total, and the gap that each waste opens."""
        rows = (
            ("total", self.total_ms, ""),
            ("memory_bound", self.memory_bound_ms, "its transfers alone"),
            ("memory_bound_ideal", self.memory_bound_ideal_ms, "same bytes, full bandwidth"),
            ("memory_bound_no_reloads", self.memory_bound_no_reloads_ms, "every input and output once"),
            ("compute_bound", self.compute_bound_ms, "its busiest engine alone"),
            ("compute_bound_ideal", self.compute_bound_ideal_ms, "same matmul FLOPs at peak"),
            ("compute_bound_useful", self.compute_bound_useful_ms, "without transposes, at peak"),
        )
        lines = [f"{name:<24}{_us(value)}{self._share(value)}  {note}".rstrip() for name, value, note in rows]
        gaps = (
            ("not overlapped or idle", self.total_ms - max(self.memory_bound_ms, self.compute_bound_ms)),
            ("small or uneven transfers", self.memory_bound_ms - self.memory_bound_ideal_ms),
            ("reloads and spills", self.memory_bound_ideal_ms - self.memory_bound_no_reloads_ms),
            ("engine inefficiency", self.compute_bound_ms - self.compute_bound_ideal_ms),
            ("transposes", self.compute_bound_ideal_ms - self.compute_bound_useful_ms),
        )
        lines.append("gaps, largest first:")
        for name, gap in sorted(gaps, key=lambda item: -item[1]):
            if gap > 0:
                lines.append(f"  {name:<26}{_us(gap)}{self._share(gap)}")
        busy = sorted(self.engine_busy_ms.items(), key=lambda item: -item[1])
        if busy:
            shares = ", ".join(
                f"{name} {100 * value / self.total_ms:.0f} %" for name, value in busy if self.total_ms
            )
            lines.append(f"busy: {shares}")
        lines.append(f"limited by: {self.limiting}")
        return "\n".join(lines)

    def _share(self, value_ms: float) -> str:
        return f"  {100 * value_ms / self.total_ms:5.1f} %" if self.total_ms else ""


def _us(value_ms: float) -> str:
    return f"{1e3 * value_ms:12.1f} us"


def profile_from_counters(
    counters: Mapping[str, int | float],
    *,
    backend: BackendName,
    target: str,
    latency_ms: float,
    band_ms: float,
) -> Profile:
    """A profile out of a summary's fields; what the summary lacks counts as 0, as `neuron-profile` means it.

    Raises:
        pydantic.ValidationError: a field is negative or not a number.
    """
    known = {name: counters[name] for name in COUNTERS if name in counters}
    for name in known:
        if Profile.model_fields[name].annotation is int:
            known[name] = round(known[name])
    missing = {name: 0 for name in COUNTERS if name not in known}
    return Profile.model_validate(
        {
            **missing,
            **known,
            "backend": backend,
            "target": target,
            "latency_ms": latency_ms,
            "latency_band_ms": band_ms,
        }
    )
