"""The limits of a target that the front end checks, as integers."""

from __future__ import annotations

import dataclasses
import functools

from ..machine import MACHINES

GENERATIONS = {"trn1": 2, "trn2": 3}
"""NeuronCore version of each target (architecture guides of Trainium and Trainium2)."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What a kernel may ask of one NeuronCore.

    Attributes:
        name: target.
        generation: NeuronCore version (`nisa.nc_version`).
        partitions: partitions of SBUF and PSUM (`nl.tile_size.pmax`).
        sbuf_bytes_per_partition: SBUF.
        sbuf_usable_bytes_per_partition: SBUF without what the compiler keeps for itself.
        psum_banks: banks of PSUM.
        psum_bank_bytes: bytes per partition of one bank: the largest matmul result.
        gemm_stationary_fmax: largest free size of a matmul's stationary operand.
        gemm_moving_fmax: largest free size of a matmul's moving operand.
    """

    name: str
    generation: int
    partitions: int
    sbuf_bytes_per_partition: int
    sbuf_usable_bytes_per_partition: int
    psum_banks: int
    psum_bank_bytes: int
    gemm_stationary_fmax: int = 128
    gemm_moving_fmax: int = 512

    @property
    def psum_bytes_per_partition(self) -> int:
        """All banks."""
        return self.psum_banks * self.psum_bank_bytes


@functools.cache
def architecture(target: str) -> Architecture:
    """The limits of ``trn1`` or ``trn2``."""
    machine = MACHINES[target]
    return Architecture(
        name=target,
        generation=GENERATIONS[target],
        partitions=int(machine.partitions),
        sbuf_bytes_per_partition=int(machine.sbuf_bytes),
        sbuf_usable_bytes_per_partition=int(machine.sbuf_usable_bytes),
        psum_banks=int(machine.psum_banks),
        psum_bank_bytes=int(machine.psum_bank_bytes),
    )
