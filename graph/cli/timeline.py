"""A kernel's simulated timeline as a file for Chrome's trace viewer or Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from .output import CommandError

if TYPE_CHECKING:
    from nkibench.problem import Problem

_COMPILE_TIMEOUT_S = 60.0
_MEMORY_BYTES = 4 << 30


def write_timeline(source: str, problem: Problem, target: str, small: bool, path: Path) -> int:
    """Write every instruction of a kernel with its engine or queue, start and end; return how many events.

    The kernel's text runs in a confined worker; what comes back is its trace, which is data.

    Raises:
        CommandError: the file cannot be written.
        tools.worker.Fault: the kernel does not compile.
    """
    from tools.backends import ArrayType
    from tools.backends.simulator import SimulatedKernel
    from tools.evaluation import EvaluationSettings, Evaluator
    from tools.neuroncore import estimate
    from tools.neuroncore.machine import machine_for
    from tools.neuroncore.timeline import chrome_trace
    from tools.pool import PoolSettings, WorkerPool

    with (
        WorkerPool(PoolSettings(workers=1)) as pool,
        Evaluator(EvaluationSettings(target=target, small=small), pool) as evaluator,
        pool.lease("tools.kernel_service", timeout_s=_COMPILE_TIMEOUT_S, memory_bytes=_MEMORY_BYTES) as lease,
    ):
        arguments = [
            {"shape": list(value.shape), "dtype": value.dtype} if isinstance(value, ArrayType) else value
            for value in evaluator.argument_types(problem)
        ]
        answer = lease.call("compile", {"arguments": arguments, "target": target}, tail=source.encode())
    kernel = SimulatedKernel.load(answer.tail).ir
    simulated = estimate(kernel, target=target, with_timeline=True).timeline
    trace = chrome_trace(simulated, machine_for(target), problem.name)
    try:
        path.write_text(json.dumps(trace), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write the timeline {path}: {error.strerror}") from None
    return len(trace["traceEvents"])
