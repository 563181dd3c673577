"""How kernels are evaluated."""

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..profile import BackendName
from .result import Stage

SEEDS = (0, 21, 42, 63, 84)
"""The input seeds of the benchmark (AccelOpt, arXiv 2511.15915)."""


def _half_of_memory_mb() -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 8192
    return max(2048, total // 2 >> 20)


class EvaluationSettings(BaseModel):
    """What an `Evaluator` does; part of the identity of its results."""

    model_config = ConfigDict(frozen=True)

    target: str = Field(default="trn1", description="Machine: trn1 or trn2")
    backend: BackendName = Field(default="simulator", description="The simulator, or a Neuron device")
    stage: Stage = Field(
        default=Stage.promote, description="How far an evaluation goes unless told otherwise"
    )
    seeds: tuple[int, ...] = Field(
        default=SEEDS, min_length=1, description="Input seeds; the first one screens"
    )
    regimes: bool = Field(default=True, description="Whether promotion also runs the problem's input regimes")
    precision: Literal["strict", "relaxed"] = Field(
        default="strict", description="Whether types narrower than the baseline's fp32 are refused"
    )
    small: bool = Field(default=False, description="Use the problem's small shape, for tests")
    timeout_s: float = Field(default=180.0, gt=0, description="Hard limit on one kernel, in seconds")
    compile_timeout_s: float = Field(
        default=30.0, gt=0, description="Limit on its gate and trace, in seconds"
    )
    reference_timeout_s: float = Field(default=600.0, gt=0, description="Limit on computing one reference")
    memory_mb: int = Field(
        default_factory=_half_of_memory_mb, gt=0, description="Memory of one worker, beside the shared arrays"
    )
    artifacts: Path | None = Field(
        default=None, description="Folder for what the device's tools write; None keeps none"
    )
    cache: Path | None = Field(default=None, description="Folder for reference results; None keeps none")
    cache_mb: int = Field(
        default=16384, ge=0, description="Size that the reference results may reach on disk"
    )
    outputs_mb: int = Field(
        default=2560, ge=0, description="Memory for outputs that is kept for the next kernel"
    )
    inputs_mb: int = Field(default=1024, ge=0, description="Memory for inputs that are used again")

    @field_validator("target")
    @classmethod
    def _known_target(cls, value: str) -> str:
        from nkibench.roofline import PEAKS

        if value not in PEAKS:
            raise ValueError(f"unknown target {value!r}: known are {', '.join(PEAKS)}")
        return value
