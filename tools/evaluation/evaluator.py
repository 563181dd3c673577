"""The pipeline: gate, compile, profile, screen, promote."""

import asyncio
import contextlib
import itertools
import math
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from nkibench.errors import WorkUnknown
from nkibench.problem import Problem, Work
from nkibench.regime import Regime
from nkibench.roofline import percent_of_peak

from ..backends import ArrayType, Narrowing
from ..backends.neuron import BackendUnavailable, choose_backend, visible_cores, worker_environment
from ..channel import SharedArrays
from ..kernel import Kernel
from ..pool import Lease, PoolSettings, WorkerLost, WorkerPool, available_cores
from ..profile import Bounds, Profile
from ..verification import (
    Check,
    Comparison,
    Expected,
    Finding,
    compare,
    first_difference,
    impossible,
    inputs_finding,
    precision_finding,
    size_finding,
    traffic_of,
)
from ..worker import Answer, Fault
from .output_memory import OutputMemory
from .references import References, ReferenceSession
from .result import Evaluation, EvaluationError, Failure, RegimeResult, Stage, Status, Verification
from .settings import EvaluationSettings

_SERVICE = "tools.kernel_service"

_LEAST_PATIENCE_S = 0.1
_DOING = {"compile": "tracing", "load": "reading the trace", "profile": "profiling", "run": "running"}
_SHARED_BYTES = 16 << 30
"""Address space for arrays that are shared with a worker and do not count as its own memory."""
_EITHER_STATUS = ("internal_error", "memory_limit")
"""Faults that say nothing of where they happened."""

_REMEDIES = {
    Check.written: "store every element, and initialise what is accumulated into",
    Check.inputs: "store into an output of the kernel's own, and return that",
    Check.precision: "keep every tile in float32, or run with relaxed precision",
    Check.reproducible: "make the kernel depend on nothing but its arguments",
}


class _Verdict(Exception):
    """Ends an evaluation early."""

    def __init__(self, status: Status, error: EvaluationError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


@dataclass
class _Progress:
    """What has been found out so far."""

    profile: Profile | None = None
    bounds: Bounds | None = None
    work: Work | None = None
    verification: Verification | None = None
    runs: list[RegimeResult] = field(default_factory=list)
    narrowings: list[Narrowing] = field(default_factory=list)


class Evaluator:
    """Evaluates kernels with fixed settings. Safe to share between threads and event loops; close it when done."""

    def __init__(self, settings: EvaluationSettings | None = None, pool: WorkerPool | None = None) -> None:
        """With a `pool` of your own, which stays yours to close; without one, a pool with a worker a core.

        Raises:
            BackendUnavailable: the settings ask for a Neuron device and something of it is missing.
        """
        self.settings = settings or EvaluationSettings()
        self._own_pool = pool is None
        self._cores: queue.SimpleQueue[int] = queue.SimpleQueue()
        workers = 0
        if self.settings.backend == "neuron":
            choose_backend("neuron")
            cores = visible_cores()
            for core in cores:
                self._cores.put(core)
            workers = len(cores)
        hidden = (str(self.settings.cache),) if self.settings.cache else ()
        self.pool = pool or WorkerPool(PoolSettings(workers=workers, hidden=hidden))
        # Verdicts are short and rarely fall together, so each may use every core.
        self.threads = available_cores()
        self.outputs = OutputMemory(self.settings.outputs_mb << 20)
        self._references = References(self.settings, self.pool, self.threads)

    def evaluate(self, kernel: Kernel, problem: Problem, stage: Stage | None = None) -> Evaluation:
        """The verdict on one kernel. Whatever the kernel does, this returns.

        Args:
            kernel: what to evaluate.
            problem: what it should compute.
            stage: how far to go; the settings say by default.

        Raises:
            nkibench.InvalidReference: the problem's reference does not work, so no kernel can be judged.
            BackendUnavailable: the device or its tools are missing.
            PoolBroken: no worker can be started.
        """
        return self._submit(kernel, problem, stage, _Cancellation()).result()

    async def aevaluate(self, kernel: Kernel, problem: Problem, stage: Stage | None = None) -> Evaluation:
        """As `evaluate`, without blocking the event loop; cancelling it ends its worker."""
        cancellation = _Cancellation()
        try:
            return await asyncio.wrap_future(self._submit(kernel, problem, stage, cancellation))
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def profile(self, kernel: Kernel, problem: Problem) -> Evaluation:
        """Latency, counters and bounds, without data: `evaluate` up to the first stage."""
        return self.evaluate(kernel, problem, Stage.profile)

    def argument_types(self, problem: Problem) -> list[ArrayType | float]:
        """What kernels for `problem` are called with, tensors without data.

        Raises:
            nkibench.InvalidReference: the reference does not tell.
        """
        with self._references.open(problem) as reference:
            return reference.argument_types()

    @contextlib.contextmanager
    def device_core(self) -> Iterator[int]:
        """A NeuronCore to itself, for as long as the block lasts."""
        core = self._cores.get()
        try:
            yield core
        finally:
            self._cores.put(core)

    def close(self) -> None:
        """Gives up workers and memory."""
        self._references.close()
        self.outputs.close()
        if self._own_pool:
            self.pool.close()

    def __enter__(self) -> Self:
        """Closes on exit."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    def _submit(
        self, kernel: Kernel, problem: Problem, stage: Stage | None, cancellation: "_Cancellation"
    ) -> "Future[Evaluation]":
        asked = stage or self.settings.stage
        return self.pool.executor.submit(self._evaluate, kernel, problem, asked, cancellation)

    def _evaluate(
        self, kernel: Kernel, problem: Problem, stage: Stage, cancellation: "_Cancellation"
    ) -> Evaluation:
        # Once a pool: whoever runs strangers' kernels should read in the log what is not confined.
        # Here and not before, for starting workers blocks, and the caller may be an event loop.
        self.pool.confinement()
        started = time.monotonic()
        progress = _Progress()
        error: EvaluationError | None = None
        status = Status.profiled if stage is Stage.profile else Status.correct
        try:
            with self._references.open(problem) as reference:
                _Run(self, kernel, reference, stage, cancellation, progress).go()
        except _Verdict as verdict:
            status, error = verdict.status, verdict.error
        profile = progress.profile
        percent = None
        if profile and progress.work and progress.work.min_traffic_bytes:
            percent = percent_of_peak(progress.work, profile.latency_ms, profile.target)
        return Evaluation(
            kernel_id=kernel.id,
            problem=problem.name,
            target=self.settings.target,
            backend=self.settings.backend,
            stage=stage,
            status=status,
            error=error,
            verification=progress.verification,
            profile=profile,
            bounds=progress.bounds,
            latency_ms=profile.latency_ms if profile else None,
            percent_of_peak=percent,
            wall_s=time.monotonic() - started,
        )


class _Run:
    """One kernel on its way through the stages."""

    def __init__(
        self,
        evaluator: Evaluator,
        kernel: Kernel,
        reference: ReferenceSession,
        stage: Stage,
        cancellation: "_Cancellation",
        progress: _Progress,
    ) -> None:
        self._evaluator = evaluator
        self._settings = evaluator.settings
        self._pool = evaluator.pool
        self._kernel = kernel
        self._reference = reference
        self._problem = reference.problem
        self._stage = stage
        self._cancellation = cancellation
        self._progress = progress
        # Seconds that the kernel may still take; those of the reference are not its own.
        self._left_s = self._settings.timeout_s
        self._outputs: list[ArrayType] = []
        self._read_bytes: int | None = None

    def go(self) -> None:
        """Fills in the progress, stage after stage.

        Raises:
            _Verdict: at the first thing that is wrong.
        """
        arguments = self._reference.argument_types()
        with contextlib.ExitStack() as memory:
            with self._prepared(arguments) as lease:
                self._progress.work = self._work(arguments)
                self._profile(lease)
                if self._stage is Stage.profile:
                    self._check_physics()
                    return
                screened = memory.enter_context(self._allocate_outputs())
                self._verify(lease, [screened], [(self._settings.seeds[0], Regime.normal)], keep=True)
            if self._stage is Stage.promote:
                self._promote(arguments, screened)
        self._progress.verification = self._verification(None)
        self._check_physics()

    @contextlib.contextmanager
    def _prepared(self, arguments: Sequence[ArrayType | float]) -> Iterator[Lease]:
        """A fresh worker that holds the compiled kernel.

        Where a compiled kernel is data, another worker than the one that ran its text: whatever that text may have
        done to its process, it can only have changed what is compiled, which is what is judged.
        """
        described = [
            {"shape": list(value.shape), "dtype": value.dtype} if isinstance(value, ArrayType) else value
            for value in arguments
        ]
        request: dict[str, object] = {
            "arguments": described,
            "target": self._settings.target,
            "backend": self._settings.backend,
            "artifacts": str(self._settings.artifacts) if self._settings.artifacts else None,
        }
        simulated = self._settings.backend == "simulator"
        source = self._kernel.source.encode("utf-8", "surrogatepass")
        patience = self._settings.compile_timeout_s if simulated else None
        with self._lease() as lease:
            answer = self._call(lease, "compile", request, tail=source, timeout_s=patience)
            if not simulated:
                self._check_compiled(answer)
                yield lease
                return
        with self._lease() as lease:
            # The facts about it come from here too: the other worker could have told anything.
            answer = self._call(lease, "load", {"source": self._kernel.source}, tail=answer.tail)
            self._check_compiled(answer)
            yield lease

    def _check_compiled(self, answer: Answer) -> None:
        self._outputs = [ArrayType(tuple(o["shape"]), o["dtype"]) for o in answer.fields["outputs"]]
        self._read_bytes = answer.fields["read_bytes"]
        self._progress.narrowings = [Narrowing(**item) for item in answer.fields["narrowings"]]
        finding = inputs_finding(answer.fields["written_inputs"])
        if finding is None and self._settings.precision == "strict":
            finding = precision_finding(self._progress.narrowings)
        if finding:
            self._fail(Status.incorrect, finding, None, None)

    def _work(self, arguments: Sequence[ArrayType | float]) -> Work:
        try:
            return self._problem.work(self._settings.small)
        except WorkUnknown:
            # What the reference needs of its inputs is not known; what a right kernel does not read is not needed.
            read = traffic_of(arguments, ())
            if self._read_bytes is not None:
                read = min(read, self._read_bytes)
            moved = read + traffic_of((), self._outputs)
            return self._problem.with_traffic(moved).work(self._settings.small)

    def _profile(self, lease: Lease) -> None:
        answer = self._call(lease, "profile")
        profile = Profile.model_validate(answer.fields["profile"])
        if (profile.backend, profile.target) != (self._settings.backend, self._settings.target):
            raise AssertionError(
                f"measured on {profile.backend} {profile.target}, which is not what was asked for"
            )
        self._progress.profile = profile
        if answer.fields["bounds"]:
            self._progress.bounds = Bounds.model_validate(answer.fields["bounds"])

    def _check_physics(self) -> None:
        assert self._progress.profile is not None and self._progress.work is not None
        finding = impossible(
            self._progress.profile, self._progress.work, narrow=bool(self._progress.narrowings)
        )
        if finding:
            self._fail(Status.suspect, finding, None, None)

    def _promote(self, arguments: Sequence[ArrayType | float], screened: SharedArrays) -> None:
        """Everything once more from the text on, in processes that know nothing of the first time."""
        first, *others = self._settings.seeds
        plan = [(seed, Regime.normal) for seed in others]
        if self._settings.regimes:
            # First, because the inputs that regimes change are those of the seed that was run last.
            plan = [(first, regime) for regime in self._problem.regimes if regime is not Regime.normal] + plan
        with self._prepared(arguments) as lease, self._allocate_outputs() as returned:
            with self._reference.draw(first, Regime.normal).tensors as inputs:
                self._call(lease, "run", arrays=[inputs], writable=[returned])
            finding = first_difference(screened.arrays(), returned.arrays())
            if finding:
                self._fail(Status.incorrect, finding, first, Regime.normal)
            if plan:
                self._verify(lease, [screened, returned], plan)

    def _verify(
        self,
        lease: Lease,
        memories: Sequence[SharedArrays],
        plan: Sequence[tuple[int, Regime]],
        *,
        keep: bool = False,
    ) -> None:
        """Runs on each of the plan's inputs, while the next ones are prepared and the outputs before are judged.

        The outputs of consecutive runs go to `memories` in turn; there are two, or the plan has one run only.
        """

        def prepare(seed: int, regime: Regime) -> tuple[SharedArrays, Expected]:
            drawn = self._reference.draw(seed, regime, keep=keep)
            return drawn.tensors, self._reference.expected(seed, regime)

        judged: Future[None] | None = None
        prepared: Future[tuple[SharedArrays, Expected]] | None = None
        try:
            with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(1) as behind:
                prepared = ahead.submit(prepare, *plan[0])
                for (seed, regime), following, returned in zip(
                    plan, [*plan[1:], None], itertools.cycle(memories), strict=False
                ):
                    inputs, expected = prepared.result()
                    if following is not None:
                        prepared = ahead.submit(prepare, *following)
                    try:
                        with inputs:
                            self._call(lease, "run", arrays=[inputs], writable=[returned])
                    finally:
                        # What was wrong with the run before comes before what is wrong with this one.
                        if judged is not None:
                            judged.result()
                    judged = behind.submit(self._judge, returned, expected, seed, regime)
                if judged is not None:
                    judged.result()
        finally:
            # A future holds its exception, which holds this frame: that ring would keep a gigabyte of outputs mapped.
            judged = prepared = None

    def _judge(self, returned: SharedArrays, expected: Expected, seed: int, regime: Regime) -> None:
        comparison = self._compare(returned, expected)
        self._progress.runs.append(
            RegimeResult(
                seed=seed,
                regime=regime,
                relative_l2=comparison.relative_l2,
                tile_relative_l2=comparison.tile_relative_l2,
            )
        )
        if comparison.finding:
            self._fail(Status.incorrect, comparison.finding, seed, regime)

    def _compare(self, returned: SharedArrays, expected: Expected) -> Comparison:
        finding = size_finding(self._outputs, expected)
        if finding:
            return Comparison(math.inf, math.inf, finding)
        try:
            outputs = self._reference.translate(returned, expected)
        except Fault as fault:
            finding = Finding(Check.shape, 0, None, None, None, fault.message)
            return Comparison(math.inf, math.inf, finding)
        return compare(outputs, expected, self._problem.tolerance, self._evaluator.threads)

    def _verification(self, failure: Failure | None) -> Verification:
        runs = self._progress.runs
        return Verification(
            seeds=list(dict.fromkeys(run.seed for run in runs)),
            regimes=list(dict.fromkeys(run.regime for run in runs)),
            worst_relative_l2=_worst(run.relative_l2 for run in runs),
            worst_tile_relative_l2=_worst(run.tile_relative_l2 for run in runs),
            tolerance=self._problem.tolerance,
            precision=self._settings.precision,
            narrowed=sorted({narrowing.dtype for narrowing in self._progress.narrowings}),
            passed=failure is None,
            failure=failure,
            runs=runs,
        )

    def _fail(self, status: Status, finding: Finding, seed: int | None, regime: Regime | None) -> None:
        where = f" (seed {seed}, {regime} inputs)" if regime else ""
        failure = Failure(
            check=finding.check,
            seed=seed,
            regime=regime,
            output=finding.output if finding.place is not None else None,
            index=finding.place,
            expected=finding.expected,
            got=finding.got,
            message=finding.message + where,
        )
        self._progress.verification = self._verification(failure)
        remedy = _REMEDIES.get(finding.check)
        raise _Verdict(status, EvaluationError(name=finding.check, message=failure.message, remedy=remedy))

    def _allocate_outputs(self) -> contextlib.AbstractContextManager[SharedArrays]:
        return self._evaluator.outputs.borrow([(output.dtype, output.shape) for output in self._outputs])

    @contextlib.contextmanager
    def _lease(self) -> Iterator[Lease]:
        with contextlib.ExitStack() as stack:
            environment = None
            if self._settings.backend == "neuron":
                environment = worker_environment(stack.enter_context(self._evaluator.device_core()))
            lease = stack.enter_context(
                self._pool.lease(
                    _SERVICE,
                    # The calls have their own, shorter patience; this ends what this process can no longer end.
                    timeout_s=self._settings.timeout_s + 2 * self._settings.reference_timeout_s,
                    memory_bytes=self._settings.memory_mb << 20,
                    shared_bytes=_SHARED_BYTES,
                    environment=environment,
                )
            )
            stack.enter_context(self._cancellation.watch(lease))
            yield lease

    def _call(
        self,
        lease: Lease,
        operation: str,
        fields: dict[str, object] | None = None,
        *,
        tail: bytes = b"",
        arrays: Sequence[SharedArrays] = (),
        writable: Sequence[SharedArrays] = (),
        timeout_s: float | None = None,
    ) -> Answer:
        compiling = operation in ("compile", "load")
        failed = Status.compile_error if compiling else Status.runtime_error
        patience = self._left_s if timeout_s is None else min(timeout_s, self._left_s)
        started = time.monotonic()
        try:
            return lease.call(
                operation, fields, tail=tail, arrays=arrays, writable=writable, timeout_s=patience
            )
        except Fault as fault:
            if fault.status == "unavailable":
                raise BackendUnavailable(f"{fault.name}: {fault.message}") from fault
            status = failed if fault.name in _EITHER_STATUS else Status(fault.status)
            error = EvaluationError(
                name=fault.name, message=fault.message, line=fault.line, remedy=fault.remedy
            )
            raise _Verdict(status, error) from fault
        except WorkerLost as lost:
            if lost.timed_out:
                raise _Verdict(Status.timeout, self._timeout(operation, timeout_s)) from lost
            raise _Verdict(failed, EvaluationError(name="worker_died", message=str(lost))) from lost
        finally:
            self._left_s = max(self._left_s - (time.monotonic() - started), _LEAST_PATIENCE_S)

    def _timeout(self, operation: str, timeout_s: float | None) -> EvaluationError:
        if timeout_s is not None and timeout_s < self._settings.timeout_s:
            message = f"{_DOING[operation]} took more than {timeout_s:g} s"
        else:
            message = f"the kernel took more than {self._settings.timeout_s:g} s in all, at last for {_DOING[operation]}"
        return EvaluationError(
            name="timeout",
            message=message,
            remedy="look for loops that do not end, and for loops of very many trips",
        )


class _Cancellation:
    """Ends the workers of an evaluation that nobody waits for any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: list[Lease] = []
        self._cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            for lease in self._leases:
                lease.abort()

    @contextlib.contextmanager
    def watch(self, lease: Lease) -> Iterator[None]:
        with self._lock:
            self._leases.append(lease)
            if self._cancelled:
                lease.abort()
        try:
            yield
        finally:
            with self._lock:
                self._leases.remove(lease)


def _worst(errors: Iterable[float]) -> float:
    """The largest, NaN and infinity as infinity."""
    return max((error if math.isfinite(error) else math.inf for error in errors), default=0.0)
