"""Where kernels are compiled, run and measured: the built-in simulator, or a Neuron device.

A backend works inside a worker process. What it makes of a kernel stays there; only profiles, shapes and arrays leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..profile import BackendName, Bounds, Profile


@dataclass(frozen=True)
class ArrayType:
    """Shape and element type of one array."""

    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Narrowing:
    """An element type less exact than fp32, found in a compiled kernel."""

    dtype: str
    tensor: str
    line: int | None


class Compiled(Protocol):
    """A kernel made ready by a backend."""

    @property
    def outputs(self) -> list[ArrayType]:
        """What `run` will return."""

    def narrowings(self) -> list[Narrowing]:
        """Every place where values are kept or multiplied in less than fp32."""

    def written_inputs(self) -> list[str]:
        """Arguments that the kernel is known to write into."""

    def read_bytes(self) -> int | None:
        """Bytes of those parts of its arguments that the kernel reads; None where that cannot be told."""


class Backend(Protocol):
    """What an evaluation needs of a machine."""

    name: BackendName

    def compile(self, source: str, arguments: Sequence[ArrayType | float], target: str) -> Compiled:
        """Makes `source` ready for arguments of these types (numbers are compiled in).

        Raises:
            tools.worker.Fault: the kernel does not compile, or the machine's tools fail.
        """

    def run(
        self, compiled: Any, inputs: Sequence[np.ndarray], into: Sequence[np.ndarray] | None = None
    ) -> list[np.ndarray]:
        """The outputs for the tensor arguments, in order; where it can, in the memory of `into`.

        Raises:
            tools.worker.Fault: it fails while running.
        """

    def profile(self, compiled: Any) -> tuple[Profile, Bounds | None]:
        """Latency and counters, and where the backend can tell, what bounds them.

        Raises:
            tools.worker.Fault: it cannot be measured.
        """


def neuron_available() -> bool:
    """Whether kernels can be compiled, run and measured on a Neuron device here."""
    from .neuron import inspect_host

    return inspect_host().usable
