"""The least time a NeuronCore could take for a problem, and how near a kernel comes to it.

The time is set by whichever resource is busy longest: memory (every input and output moved once), the matmul
array, or the vector and scalar engines together. Transfers and engines are taken to overlap perfectly, so no
kernel reaches it.
"""

from typing import Literal, NamedTuple, Protocol

from .errors import UnknownTarget

Bound = Literal["memory", "matmul", "vector"]


class Peak(NamedTuple):
    """What one NeuronCore can do at best, in fp32."""

    memory_bytes_per_s: float
    matmul_flops_per_s: float
    vector_flops_per_s: float


class CountedWork(Protocol):
    """What the roofline needs to know of a problem; `nkibench.problem.Work` has it."""

    @property
    def vector_flops(self) -> int:
        """Elementwise and reduction operations."""

    @property
    def matmul_flops(self) -> int:
        """Multiplications and additions of the matmuls."""

    @property
    def min_traffic_bytes(self) -> int:
        """Bytes of every input and output, once."""


PEAKS: dict[str, Peak] = {
    # NKIBench's constants (AccelOpt, arXiv 2511.15915). Trn1: 410 GiB/s, half of the device's HBM; a quarter
    # of the bf16 rate for fp32 matmuls; 128 lanes at 1.12 GHz on each of two engines.
    "trn1": Peak(memory_bytes_per_s=410 * 2**30, matmul_flops_per_s=23.75e12, vector_flops_per_s=286.8e9),
    "trn2": Peak(memory_bytes_per_s=640.0e9, matmul_flops_per_s=19.75e12, vector_flops_per_s=550.0e9),
}


# Matmuls of bf16 run at four times the rate of fp32 (what PEAKS is a quarter of); trn2 doubles that again for fp8.
_NARROW_RATE = {"trn1": 4.0, "trn2": 8.0}


def resource_ms(work: CountedWork, target: str, narrow: bool = False) -> dict[Bound, float]:
    """Milliseconds that each resource of `target` needs for `work`, at its peak rate.

    With `narrow`, matmuls may run in the element type that the array is fastest in, not only in fp32.

    Raises:
        UnknownTarget: `target` is not in `PEAKS`.
    """
    if target not in PEAKS:
        raise UnknownTarget(target, list(PEAKS))
    peak = PEAKS[target]
    rate = peak.matmul_flops_per_s * (_NARROW_RATE[target] if narrow else 1.0)
    return {
        "memory": work.min_traffic_bytes / peak.memory_bytes_per_s * 1e3,
        "matmul": work.matmul_flops / rate * 1e3,
        "vector": work.vector_flops / peak.vector_flops_per_s * 1e3,
    }


def peak_ms(work: CountedWork, target: str, narrow: bool = False) -> float:
    """The least latency in milliseconds that `target` could reach: NKIBench's T_peak, unless `narrow`."""
    return max(resource_ms(work, target, narrow).values())


def bound(work: CountedWork, target: str) -> Bound:
    """The resource that sets `peak_ms`."""
    times = resource_ms(work, target)
    return max(times, key=lambda resource: times[resource])


def percent_of_peak(work: CountedWork, latency_ms: float, target: str) -> float:
    """`peak_ms` as a percentage of `latency_ms`: 100 at the roofline, more for the impossible.

    Raises:
        ValueError: the latency is not positive.
        UnknownTarget: `target` is not in `PEAKS`.
    """
    if not latency_ms > 0:
        raise ValueError(f"a latency is a positive number of milliseconds, not {latency_ms}")
    return 100.0 * peak_ms(work, target) / latency_ms
