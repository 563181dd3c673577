"""The worker's side of an evaluation: gate, compile, profile and run one kernel."""

from pathlib import Path
from typing import Any

import numpy as np

from . import gate
from .backends import ArrayType, Backend
from .channel import SharedArrays
from .worker import Answer, Fault, Operation

# One is enough to refuse a kernel; a reader wants to see a few.
_SHOWN_NARROWINGS = 8


def preload() -> None:
    """Has the nursery import the simulator, which forked workers use; one that drives a device does without."""
    from .backends import simulator  # noqa: F401


def operations() -> dict[str, Operation]:
    """The operations of one worker that keeps one compiled kernel."""
    worker = _KernelWorker()
    return {
        "compile": worker.compile,
        "load": worker.load,
        "profile": worker.profile,
        "run": worker.run,
    }


class _KernelWorker:
    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._compiled: Any = None

    def compile(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Gate and compiler; answers with what the kernel returns and how exactly it computes, and the trace."""
        source = tail.decode("utf-8", "surrogatepass")
        refuse(source)
        self._backend = _backend(fields)
        arguments = [
            ArrayType(tuple(argument["shape"]), argument["dtype"]) if isinstance(argument, dict) else argument
            for argument in fields["arguments"]
        ]
        self._compiled = self._backend.compile(source, arguments, fields["target"])
        return Answer(self._facts(), self._compiled.dump())

    def load(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Takes over what another worker compiled; this process never sees the kernel's source run."""
        from .backends.simulator import SimulatedKernel, SimulatorBackend

        self._backend = SimulatorBackend()
        self._compiled = SimulatedKernel.load(tail)
        self._compiled.ir.source = fields["source"]
        return Answer(self._facts())

    def profile(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Latency, counters and bounds."""
        assert self._backend is not None
        profile, bounds = self._backend.profile(self._compiled)
        return Answer(
            {
                "profile": profile.model_dump(mode="json"),
                "bounds": bounds.model_dump(mode="json") if bounds else None,
            }
        )

    def run(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Runs on the first shared arrays; the outputs end up in the second."""
        assert self._backend is not None
        inputs, outputs = arrays
        targets = outputs.arrays(writable=True)
        results = self._backend.run(self._compiled, inputs.arrays(), targets)
        if len(results) != len(targets):
            raise Fault("incorrect", "output_count", f"{len(results)} outputs, compiled for {len(targets)}")
        for target, result in zip(targets, results, strict=True):
            if result.shape != target.shape:
                message = f"{list(result.shape)}, compiled for {list(target.shape)}"
                raise Fault("incorrect", "output_shape", message)
            if not np.may_share_memory(target, result):
                np.copyto(target, result, casting="unsafe")
        return Answer()

    def _facts(self) -> dict[str, Any]:
        return {
            "outputs": [
                {"shape": list(output.shape), "dtype": output.dtype} for output in self._compiled.outputs
            ],
            "narrowings": [
                {"dtype": narrowing.dtype, "tensor": narrowing.tensor, "line": narrowing.line}
                for narrowing in self._compiled.narrowings()[:_SHOWN_NARROWINGS]
            ],
            "written_inputs": self._compiled.written_inputs(),
            "read_bytes": self._compiled.read_bytes(),
        }


def _backend(fields: dict[str, Any]) -> Backend:
    if fields.get("backend") == "neuron":
        from .backends.neuron import NeuronBackend

        artifacts = fields.get("artifacts")
        return NeuronBackend(Path(artifacts) if artifacts else None)
    from .backends.simulator import SimulatorBackend

    return SimulatorBackend()


def refuse(source: str) -> None:
    """Raises what the gate finds in `source`.

    Raises:
        Fault: the first rejection in full, the number of the others.
    """
    rejections = gate.inspect(source)
    if not rejections:
        return
    first = rejections[0]
    others = f" (and {len(rejections) - 1} more)" if len(rejections) > 1 else ""
    status = "compile_error" if first.rule is gate.Rule.syntax else "rejected"
    raise Fault(status, first.rule, first.message + others, line=first.line, remedy=first.advice)
