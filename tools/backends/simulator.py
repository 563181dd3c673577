"""The built-in NeuronCore simulator as a backend."""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import gate, neuroncore
from ..neuroncore import dtypes, ir
from ..neuroncore.errors import KernelHostError, NKIError, RuntimeAccessError
from ..neuroncore.estimate import estimate
from ..neuroncore.footprint import read_bytes
from ..neuroncore.interpreter import Plan
from ..profile import BackendName, Bounds, Profile, profile_from_counters
from ..worker import Fault
from . import ArrayType, Narrowing


class SimulatedKernel:
    """A traced kernel: data that the interpreter and the machine model read."""

    def __init__(self, kernel: ir.Kernel) -> None:
        """Wraps a trace."""
        self.ir = kernel
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """How it is executed; made once for all inputs."""
        if self._plan is None:
            self._plan = neuroncore.compile_plan(self.ir)
        return self._plan

    @property
    def outputs(self) -> list[ArrayType]:
        """Shapes and types of what it returns."""
        return [ArrayType(tuple(tensor.shape), tensor.dtype.name) for tensor in self.ir.outputs]

    def narrowings(self) -> list[Narrowing]:
        """Tensors of a floating type below fp32, each once; and the types that the trace keeps as fp32."""
        found = [
            Narrowing(tensor.dtype.name, tensor.name, tensor.line or None)
            for tensor in self.ir.tensors()
            if dtypes.is_float(tensor.dtype) and tensor.dtype.itemsize < 4
        ]
        named = gate.narrow_types(self.ir.source)
        return found + [
            Narrowing(name, f"nl.{name}", line) for name, line in named if name in dtypes.KEPT_AS_FLOAT32
        ]

    def written_inputs(self) -> list[str]:
        """Arguments that the kernel stores into, which it may where it declares them mutable."""
        inputs = {id(tensor): tensor.name for tensor in self.ir.params}
        written = {
            inputs[id(access.tensor.storage)]
            for instruction, _ in self.ir.walk()
            for access in instruction.dsts
            if id(access.tensor.storage) in inputs
        }
        return sorted(written)

    def read_bytes(self) -> int:
        """What the accesses of the trace reach."""
        return sum(read_bytes(self.ir))

    def dump(self) -> bytes:
        """The trace as bytes that `load` accepts."""
        return pickle.dumps(self.ir, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def load(cls, data: bytes) -> "SimulatedKernel":
        """A trace out of the hands of an untrusted process.

        Raises:
            Fault: the bytes are not such a trace; nothing but the IR's own classes is ever instantiated.
        """
        try:
            kernel = _TraceReader(io.BytesIO(data)).load()
        except Exception as error:
            raise Fault(
                "rejected", "malformed_trace", f"the traced kernel is not readable: {error}"
            ) from error
        if not isinstance(kernel, ir.Kernel):
            raise Fault("rejected", "malformed_trace", "the traced kernel is something else")
        return cls(kernel)


class _TraceReader(pickle.Unpickler):
    """Reads traces: the IR's classes, NumPy arrays and types, nothing callable besides."""

    _NUMPY = {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Resolves a class by name, if it is one that a trace consists of."""
        if module == ir.__name__ and isinstance(getattr(ir, name, None), type):
            return getattr(ir, name)
        if (module, name) in self._NUMPY or (module == "ml_dtypes" and name in dtypes.BY_NAME):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a trace")


class SimulatorBackend:
    """Traces kernels, interprets the trace with NumPy, and estimates its time on a model of the machine."""

    name: BackendName = "simulator"

    def compile(self, source: str, arguments: Sequence[ArrayType | float], target: str) -> SimulatedKernel:
        """Traces `source`. See `Backend.compile`."""
        specs = [
            neuroncore.ArraySpec(a.shape, np.dtype(a.dtype)) if isinstance(a, ArrayType) else a
            for a in arguments
        ]
        try:
            return SimulatedKernel(neuroncore.trace(source, specs, target=target))
        except NKIError as error:
            raise _compile_fault(error) from error

    def run(
        self,
        compiled: SimulatedKernel,
        inputs: Sequence[np.ndarray],
        into: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Interprets the trace. See `Backend.run`."""
        try:
            return compiled.plan.run(list(inputs), into)
        except NKIError as error:
            raise Fault(
                "runtime_error", error.name, error.message, line=error.line or None, remedy=error.remedy
            ) from error

    def profile(self, compiled: SimulatedKernel) -> tuple[Profile, Bounds | None]:
        """Estimates latency and counters. See `Backend.profile`."""
        try:
            found = estimate(compiled.ir, target=compiled.ir.target)
        except NKIError as error:
            raise _compile_fault(error) from error
        profile = profile_from_counters(
            found.counters,
            backend=self.name,
            target=compiled.ir.target,
            latency_ms=found.latency_ms,
            band_ms=found.band_ms,
        )
        bounds = Bounds.model_validate({**found.bounds, "engine_busy_ms": dict(found.engine_busy_ms)})
        return profile, bounds


def _compile_fault(error: NKIError) -> Fault:
    # What fails only with data in hand is not the compiler's to say.
    status = "runtime_error" if isinstance(error, RuntimeAccessError) else "compile_error"
    name = "host_error" if isinstance(error, KernelHostError) and not error.name else error.name
    return Fault(status, name, error.message, line=error.line or None, remedy=error.remedy)
