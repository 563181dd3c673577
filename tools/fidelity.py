"""Simulated against measured: how well the machine model reproduces published trn1 profiles.

Truth are the latency and the counters of upstream NKIBench's fourteen baseline kernels on one Trn1 core. Given a
checkout of that benchmark, its own kernel files are simulated, which is the comparison proper. Without one, our
baselines for the same problems stand in: other kernels, so the figures say only that the order of magnitude is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nkibench import Problem, load_problem, trn1_profiles, upstream_problems

from . import neuroncore
from .neuroncore.compiler import Program, compile_kernel
from .neuroncore.counters import profile_fields, total
from .neuroncore.machine import TRN1, Fact, Machine
from .neuroncore.timing.simulate import Simulation

BYTE_COUNTERS = (
    "hbm_read_bytes", "hbm_write_bytes", "psum_read_bytes", "psum_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes",
    "spill_save_bytes", "spill_reload_bytes", "hardware_flops", "transpose_flops",
)  # fmt: skip
"""Counters whose share within five percent is reported, cells measured as zero or not at all left out."""

ENGINE_TIMES = tuple(f"{engine}_engine_active_time_percent" for engine in ("scalar", "vector", "gpsimd"))

_CLOSE = 0.05
_GRID = (0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.4)
"""Factors on a fitted constant that a refit considers."""
_SWEEPS = 6


class Comparison(BaseModel):
    """One value, measured and simulated."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="Counter, by neuron-profile's name")
    measured: float
    simulated: float
    error: float | None = Field(description="Relative error; None where nothing was measured")


class KernelFidelity(BaseModel):
    """One kernel against its measurement."""

    model_config = ConfigDict(frozen=True)

    problem: str
    latency_measured_ms: float
    latency_simulated_ms: float
    latency_error: float = Field(description="Relative error of the simulated latency")
    latency_error_left_out: float | None = Field(
        default=None, description="The same with every fitted constant refitted on the other kernels"
    )
    counters: list[Comparison]


class Summary(BaseModel):
    """The report in six numbers."""

    model_config = ConfigDict(frozen=True)

    latency_mape: float = Field(description="Mean absolute relative error of the latency")
    latency_max_error: float = Field(description="Largest absolute relative error of the latency")
    latency_spearman: float = Field(description="Rank correlation of the latencies")
    counters_within_5_percent: float = Field(
        description="Share of measured non-zero byte and FLOP counters within 5 %"
    )
    engine_time_mae: float = Field(description="Mean absolute error of the three active-time fractions")


class FittedConstant(BaseModel):
    """A constant that was adjusted to the measurements."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: float
    unit: str
    source: str
    left_out_low: float | None = Field(default=None, description="Smallest value of the refits")
    left_out_high: float | None = Field(default=None, description="Largest value of the refits")


class FidelityReport(BaseModel):
    """Simulated against measured, kernel by kernel and in sum."""

    model_config = ConfigDict(frozen=True)

    target: str
    kernels: Literal["upstream", "ours"] = Field(description="Whose kernels were simulated")
    same_kernels: bool = Field(
        description="Whether they are the measured ones; if not, read errors with reserve"
    )
    summary: Summary
    leave_one_out: Summary | None = Field(
        description="The same with all fitted constants refitted without each kernel"
    )
    constants: list[FittedConstant]
    problems: list[KernelFidelity]


class _Case:
    """A compiled kernel and its measurement."""

    def __init__(self, problem: str, program: Program, measured: Mapping[str, float]) -> None:
        self.problem = problem
        self.program = program
        self.measured = measured

    def simulate(self, machine: Machine) -> tuple[float, dict[str, int | float]]:
        """Latency in ms and counters on a machine."""
        total_ns = Simulation(self.program, machine).run().end_ns + machine.launch_ns
        fields = profile_fields(total(self.program, machine), total_ns, machine)
        return float(total_ns + machine.first_run_offset_ns) * 1e-6, fields

    def error(self, machine: Machine) -> float:
        """Relative latency error."""
        return self.simulate(machine)[0] / self.measured["latency"] - 1


def fidelity(
    nkibench_dir: Path | None = None,
    *,
    leave_one_out: bool = True,
    progress: Callable[[str], None] | None = None,
) -> FidelityReport:
    """Compare the machine model with the published trn1 profiles.

    Args:
        nkibench_dir: a checkout of upstream NKIBench, whose own baselines are then simulated; None for ours.
        leave_one_out: also refit every fitted constant without each kernel in turn and predict that kernel.
        progress: called with a few words now and then.

    Raises:
        nkibench.InvalidProblem: the folder does not hold NKIBench.
        neuroncore.NKIError: a kernel does not compile.
    """
    say = progress if progress is not None else _silent
    cases = []
    for name, problem in _problems(nkibench_dir):
        say(f"compiling {name}")
        cases.append(_Case(name, _compile(problem), trn1_profiles()[name]))
    results = [case.simulate(TRN1) for case in cases]
    left_out: list[tuple[float, dict[str, int | float]]] | None = None
    refits: list[Machine] = []
    if leave_one_out and len(cases) > 2:
        refits = _refits(cases, say)
        left_out = [case.simulate(machine) for case, machine in zip(cases, refits, strict=True)]
    return FidelityReport(
        target=TRN1.name,
        kernels="upstream" if nkibench_dir is not None else "ours",
        same_kernels=nkibench_dir is not None,
        summary=_summary(cases, results),
        leave_one_out=_summary(cases, left_out) if left_out is not None else None,
        constants=[_constant(name, fact, refits) for name, fact in TRN1.fitted()],
        problems=[
            _kernel(case, result, left_out[k] if left_out is not None else None)
            for k, (case, result) in enumerate(zip(cases, results, strict=True))
        ],
    )


def _silent(_: str) -> None:
    return None


def _problems(nkibench_dir: Path | None) -> Iterator[tuple[str, Problem]]:
    measured = trn1_profiles()
    if nkibench_dir is None:
        for name in measured:
            yield name, load_problem(name)
        return
    for problem in upstream_problems(nkibench_dir):
        name = problem.operation or problem.name
        if name in measured:
            yield name, problem


def _compile(problem: Problem) -> Program:
    arguments = [
        value
        if isinstance(value, float | int)
        else neuroncore.ArraySpec(tuple(value.shape), np.dtype(value.dtype))
        for value in problem.argument_values()
    ]
    kernel = neuroncore.trace(problem.baseline_source(), arguments, target=TRN1.name)
    return compile_kernel(kernel, TRN1)


# -- summaries ------------------------------------------------------------------------------------------------------------


def _kernel(
    case: _Case,
    result: tuple[float, dict[str, int | float]],
    left_out: tuple[float, dict[str, int | float]] | None,
) -> KernelFidelity:
    latency_ms, fields = result
    measured = case.measured["latency"]
    return KernelFidelity(
        problem=case.problem,
        latency_measured_ms=measured,
        latency_simulated_ms=latency_ms,
        latency_error=latency_ms / measured - 1,
        latency_error_left_out=left_out[0] / measured - 1 if left_out is not None else None,
        counters=[
            Comparison(
                name=name,
                measured=case.measured[name],
                simulated=float(fields[name]),
                error=float(fields[name]) / case.measured[name] - 1 if case.measured[name] else None,
            )
            for name in fields
            if name in case.measured
        ],
    )


def _summary(cases: list[_Case], results: list[tuple[float, dict[str, int | float]]]) -> Summary:
    measured = np.array([case.measured["latency"] for case in cases])
    simulated = np.array([latency for latency, _ in results])
    errors = np.abs(simulated / measured - 1)
    close, cells, distances = 0, 0, []
    for case, (_, fields) in zip(cases, results, strict=True):
        for name in BYTE_COUNTERS:
            if case.measured.get(name):
                cells += 1
                close += abs(fields[name] / case.measured[name] - 1) <= _CLOSE
        distances += [
            abs(fields[name] - case.measured[name]) for name in ENGINE_TIMES if name in case.measured
        ]
    return Summary(
        latency_mape=float(errors.mean()),
        latency_max_error=float(errors.max()),
        latency_spearman=_spearman(measured, simulated),
        counters_within_5_percent=close / cells if cells else 1.0,
        engine_time_mae=float(np.mean(distances)),
    )


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; the published latencies have no ties."""
    ranks_a, ranks_b = np.argsort(np.argsort(a)), np.argsort(np.argsort(b))
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _constant(name: str, fact: Fact, refits: list[Machine]) -> FittedConstant:
    values = [float(getattr(machine, name)) for machine in refits]
    return FittedConstant(
        name=name,
        value=float(fact),
        unit=fact.unit,
        source=fact.source,
        left_out_low=min(values) if values else None,
        left_out_high=max(values) if values else None,
    )


# -- leave one out ----------------------------------------------------------------------------------------------------------


def _refits(cases: list[_Case], say: Callable[[str], None]) -> list[Machine]:
    """For every kernel, the machine whose fitted constants minimize the error of the others.

    Every constant is moved over a grid on its own, and the effects are taken as additive: coordinate descent on that
    surrogate gives each fold's constants. The left-out kernel is then simulated with them, not predicted.
    """
    names = [name for name, _ in TRN1.fitted()]
    base = np.array([case.error(TRN1) for case in cases])
    effects: list[np.ndarray] = []
    for name in names:
        say(f"refitting {name}")
        fact = getattr(TRN1, name)
        rows = [
            np.array([case.error(TRN1.replace(**{name: fact * factor})) for case in cases]) - base
            for factor in _GRID
        ]
        effects.append(np.array([np.zeros(len(cases)), *rows]))
    machines = []
    for left in range(len(cases)):
        keep = np.arange(len(cases)) != left
        choice = _descend(base[keep], [effect[:, keep] for effect in effects])
        factors = (1.0, *_GRID)
        changes = {name: getattr(TRN1, name) * factors[k] for name, k in zip(names, choice, strict=True) if k}
        machines.append(TRN1.replace(**changes))
    return machines


def _descend(base: np.ndarray, effects: list[np.ndarray]) -> list[int]:
    """Grid index of every constant that minimizes the mean absolute error under additive effects."""
    choice = [0] * len(effects)
    for _ in range(_SWEEPS):
        before = list(choice)
        for j, effect in enumerate(effects):
            others = base + sum(effects[i][choice[i]] for i in range(len(effects)) if i != j)
            choice[j] = int(np.argmin(np.abs(others + effect).mean(axis=1)))
        if choice == before:
            break
    return choice
