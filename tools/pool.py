"""Confined worker processes, as many at a time as the machine has room for.

A worker is a fresh process, forked from a warm nursery in milliseconds; it lives for one `lease` and takes with it
whatever was done in it. A worker that hangs, crashes or eats memory costs that lease and nothing else.
"""

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from .channel import Channel, ChannelClosed, ChannelTimeout, MalformedMessage, SharedArrays, channel_pair
from .sandbox import Confinement, Limits
from .worker import Answer, Fault

_logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
_GRACE_S = 2.0
_SCRATCH_PREFIX = "accelopt-workers-"
_BOOT = (
    "import json,sys; sys.path[:]=json.loads(sys.argv[1]); from tools.nursery import main; main(sys.argv[2])"
)


class WorkerLost(Exception):
    """The worker ended before it answered.

    Attributes:
        timed_out: it was killed at its deadline.
        signal: the signal that ended it, if any.
        peak_memory_bytes: its largest resident size, if known.
    """

    def __init__(
        self, message: str, *, timed_out: bool = False, signal: int | None = None, peak_memory_bytes: int = 0
    ) -> None:
        """See the class attributes."""
        super().__init__(message)
        self.timed_out = timed_out
        self.signal = signal
        self.peak_memory_bytes = peak_memory_bytes


class PoolBroken(Exception):
    """No worker can be started at all; the message says why."""


@dataclass(frozen=True)
class PoolSettings:
    """How workers are made."""

    workers: int = 0
    """Evaluations at the same time; 0 for one a core."""
    preload: tuple[str, ...] = (
        "tools.kernel_service",
        "tools.reference_service",
        "tools.rewrite_service",
    )
    """Service modules that the nursery imports before it forks."""
    hidden: tuple[str, ...] = ()
    """Folders that workers must not read, even where Landlock is missing: the home with keys and results."""

    @property
    def slots(self) -> int:
        """Evaluations at the same time, resolved."""
        return self.workers or available_cores()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Lease:
    """One worker, exclusively; used from one thread at a time."""

    def __init__(self, data: Channel, lease: Channel, deadline: float) -> None:
        """Made by `WorkerPool.lease`."""
        self._data = data
        self._lease = lease
        self.deadline = deadline

    def call(
        self,
        operation: str,
        fields: dict[str, Any] | None = None,
        *,
        tail: bytes = b"",
        arrays: Sequence[SharedArrays] = (),
        writable: Sequence[SharedArrays] = (),
        timeout_s: float | None = None,
    ) -> Answer:
        """Has the worker do one operation.

        Args:
            operation: a name that the worker's service knows.
            fields: plain JSON for it.
            tail: bytes for it.
            arrays: shared with it, not writable there.
            writable: shared with it for its results, after those of `arrays`.
            timeout_s: patience for this operation; the lease's own deadline holds in any case.

        Raises:
            Fault: the operation failed, for a reason of the kernel's or the reference's.
            WorkerLost: the worker is gone: crashed, killed for memory, or too slow.
        """
        deadline = self.deadline if timeout_s is None else min(self.deadline, time.monotonic() + timeout_s)
        read_only = [shared.read_only_fd() for shared in arrays]
        request = {
            **(fields or {}),
            "op": operation,
            "arrays": [shared.describe() for shared in (*arrays, *writable)],
        }
        try:
            self._data.send(request, tail=tail, fds=[*read_only, *(shared.fd for shared in writable)])
            message = self._data.receive(deadline=deadline + _GRACE_S * (timeout_s is None))
        except ChannelTimeout as error:
            self.end()
            seconds = self.deadline if timeout_s is None else timeout_s
            raise WorkerLost(f"no answer within {seconds:g} s", timed_out=True) from error
        except ChannelClosed as error:
            raise self._obituary() from error
        except MalformedMessage as error:
            self.end()
            raise WorkerLost(f"the worker sent {error}") from error
        finally:
            for fd in read_only:
                os.close(fd)
        if "fault" in message.fields:
            raise _fault(message.fields["fault"])
        answer = message.fields.get("ok")
        if not isinstance(answer, dict):
            self.end()
            raise WorkerLost("the worker sent neither an answer nor a fault")
        return Answer(answer, message.tail)

    def end(self) -> None:
        """Kills the worker, if it still lives."""
        self._lease.close()
        self._data.close()

    def abort(self) -> None:
        """Kills the worker from another thread; a call that waits for it raises `WorkerLost`."""
        self._data.shut_down()
        self._lease.shut_down()

    def _obituary(self) -> WorkerLost:
        try:
            report = self._lease.receive(deadline=time.monotonic() + _GRACE_S).fields
        except (ChannelClosed, ChannelTimeout, MalformedMessage):
            return WorkerLost("the worker ended without a word")
        peak = int(report.get("peak_memory_bytes") or 0)
        if report.get("timed_out"):
            return WorkerLost("killed at its deadline", timed_out=True, peak_memory_bytes=peak)
        number = report.get("signal")
        how = f"signal {number}" if number else f"exit code {report.get('exit_code')}"
        return WorkerLost(f"the worker died of {how}", signal=number, peak_memory_bytes=peak)


def _fault(fields: Any) -> Fault:
    """A fault from what an untrusted process says about itself, kept to types and sizes that are safe to show."""
    if not isinstance(fields, dict):
        fields = {}

    def text(key: str, default: str) -> str:
        value = fields.get(key)
        return value[:4000] if isinstance(value, str) else default

    line = fields.get("line")
    return Fault(
        text("status", "runtime_error"),
        text("name", "unknown"),
        text("message", ""),
        line=line if isinstance(line, int) and line > 0 else None,
        remedy=text("remedy", "") or None,
    )


class WorkerPool:
    """Leases workers. Safe to use from several threads and event loops; close it when done."""

    def __init__(self, settings: PoolSettings | None = None) -> None:
        """Starts nothing yet; the nursery starts with the first lease."""
        self.settings = settings or PoolSettings()
        self._lock = threading.Lock()
        self._nursery: _Nursery | None = None
        self._executor = ThreadPoolExecutor(self.settings.slots, thread_name_prefix="evaluate")
        # What a finalizer needs must not be reached through the pool itself.
        self._holder: list[_Nursery | None] = [None]
        self._closer = weakref.finalize(self, _shut_down, self._executor, self._holder)
        self._confinement: Confinement | None = None

    @property
    def executor(self) -> ThreadPoolExecutor:
        """Threads for the work around leases, as many as there are slots: what bounds how many run at a time.

        It bounds them over all event loops and threads that share the pool.
        """
        return self._executor

    def start(self) -> None:
        """Starts the nursery now rather than with the first lease, and says in the log what is not confined.

        Raises:
            PoolBroken: it does not come up.
        """
        self._warm_nursery()
        self.confinement()

    def confinement(self) -> Confinement:
        """What is in force for workers here, found out by the first of them.

        Raises:
            PoolBroken: no worker can be started.
        """
        if self._confinement is None:
            with self.lease(
                self.settings.preload[0], timeout_s=_START_TIMEOUT_S, memory_bytes=1 << 30
            ) as probe:
                self._confinement = Confinement.model_validate(probe.call("confinement").fields)
            if not self._confinement.complete:
                _logger.warning("%s", self._confinement.statement())
        return self._confinement

    @contextlib.contextmanager
    def lease(
        self,
        service: str,
        *,
        timeout_s: float,
        memory_bytes: int,
        shared_bytes: int = 0,
        environment: dict[str, str] | None = None,
    ) -> Iterator[Lease]:
        """A fresh worker running `service`, killed at the end of the block or after `timeout_s`.

        With an `environment` it is a program of its own with those variables, allowed to use devices and compilers;
        without, it is forked warm and fully confined.

        Raises:
            PoolBroken: the nursery does not start.
        """
        lease = self._start_worker(service, timeout_s, memory_bytes, shared_bytes, environment)
        try:
            yield lease
        finally:
            lease.end()

    def _start_worker(
        self,
        service: str,
        timeout_s: float,
        memory_bytes: int,
        shared_bytes: int,
        environment: dict[str, str] | None,
    ) -> Lease:
        limits = Limits(
            memory_bytes=memory_bytes,
            shared_bytes=shared_bytes,
            cpu_s=int(timeout_s * max(2, available_cores())) + 10,
        )
        request = {
            "service": service,
            "timeout_s": timeout_s,
            "limits": asdict(limits),
            "environment": environment,
        }
        for attempt in (1, 2):
            nursery = self._warm_nursery()
            data, data_theirs = channel_pair()
            lease, lease_theirs = channel_pair()
            try:
                nursery.request(request, [data_theirs.fileno(), lease_theirs.fileno()])
                data_theirs.close()
                lease_theirs.close()
                report = lease.receive(deadline=time.monotonic() + _START_TIMEOUT_S).fields
                if report.get("event") == "started":
                    return Lease(data, lease, time.monotonic() + timeout_s)
                why = str(report.get("why"))
            except (ChannelClosed, ChannelTimeout) as error:
                self._drop_nursery(nursery)
                why = nursery.last_words() or str(error)
            finally:
                data_theirs.close()
                lease_theirs.close()
            data.close()
            lease.close()
            if attempt == 2:
                raise PoolBroken(f"no worker can be started: {why}")
        raise AssertionError("unreachable")

    def _warm_nursery(self) -> "_Nursery":
        with self._lock:
            if self._nursery is None or not self._nursery.alive:
                self._nursery = _Nursery(self.settings)
                self._holder[0] = self._nursery
            return self._nursery

    def _drop_nursery(self, nursery: "_Nursery") -> None:
        with self._lock:
            if self._nursery is nursery:
                self._nursery = None
                self._holder[0] = None
        nursery.close()

    def close(self) -> None:
        """Ends the nursery and every worker."""
        self._closer()

    def __enter__(self) -> Self:
        """Closes on exit."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def _shut_down(executor: ThreadPoolExecutor, holder: "list[_Nursery | None]") -> None:
    nursery, holder[0] = holder[0], None
    if nursery is not None:
        nursery.close()
    executor.shutdown(wait=False, cancel_futures=True)


class _Nursery:
    """The caller's handle on the nursery process."""

    def __init__(self, settings: PoolSettings) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._send_lock = threading.Lock()
        _sweep_scratch()
        self._scratch_root = tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # Relative entries mean the caller's folder, which is not the nursery's.
        search_path = [os.path.abspath(path) for path in sys.path]
        threads = str(max(1, available_cores() // settings.slots))
        arguments = {
            "control_fd": theirs.fileno(),
            "preload": list(settings.preload),
            "hidden": list(settings.hidden),
            "scratch_root": self._scratch_root,
        }
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-c",
                    _BOOT,
                    json.dumps(search_path),
                    json.dumps(arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                # Nothing of the caller's environment: it may hold keys.
                env={
                    "LC_ALL": "C.UTF-8",
                    "OPENBLAS_NUM_THREADS": threads,
                    "OMP_NUM_THREADS": threads,
                    "MKL_NUM_THREADS": threads,
                },
                cwd="/",
                start_new_session=True,
            )
        self._control = Channel(ours)
        try:
            self._control.receive(deadline=time.monotonic() + _START_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout, MalformedMessage) as error:
            self.close()
            raise PoolBroken(
                f"the nursery of workers does not start: {self.last_words() or error}"
            ) from error

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def request(self, fields: dict[str, Any], fds: Sequence[int]) -> None:
        with self._send_lock:
            self._control.send(fields, fds=fds)

    def last_words(self) -> str:
        """The end of what the process wrote to stderr."""
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def close(self) -> None:
        """Closing the control channel ends it and its workers; what does not obey is killed."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._scratch_root, ignore_errors=True)


def _sweep_scratch() -> None:
    """Removes the scratch folders of callers that were killed and could not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}[0-9]*-*"):
        pid = folder.name.removeprefix(_SCRATCH_PREFIX).split("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, ValueError):
            continue
