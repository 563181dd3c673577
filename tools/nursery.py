"""The process that workers are forked from.

It has imported once whatever workers need, has one thread, holds no data and no secrets, and runs no kernel itself. For
every request it forks a worker, which confines itself and serves one connection; the worker's life is bound to a lease:
it ends when the lease's other end closes, when its deadline passes, when it has nothing more to do, or with the nursery.

Started by `tools.pool`, as a program of its own and never by forking the caller, who may have threads.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from typing import Any, NoReturn

from .channel import Channel, ChannelClosed
from .sandbox import Limits, Policy, adopt_orphans, confine, confine_device_worker
from .worker import serve

_POLL_S = 1.0
_PARENT_PID = os.getppid()


@dataclass
class _Worker:
    pid: int
    lease: Channel
    deadline: float
    scratch: str
    timed_out: bool = False


class Nursery:
    """Forks workers on request and sees to it that none outlives its lease."""

    def __init__(self, control: Channel, hidden: tuple[str, ...], scratch_root: str) -> None:
        """Serves requests that arrive on `control`.

        Workers never see the `hidden` folders, and get a folder of their own each in `scratch_root`.
        """
        self._control = control
        self._hidden = hidden
        self._scratch_root = scratch_root
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._wakeup, wakeup_write = socket.socketpair()
        for end in (self._wakeup, wakeup_write):
            end.setblocking(False)
        # Kept referenced: the signal handler writes into it when a child ends.
        self._wakeup_write = wakeup_write
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ, None)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Until the caller closes its end or dies."""
        try:
            while self._turn():
                pass
        finally:
            for worker in list(self._workers.values()):
                self._kill(worker.pid)
            while self._workers:
                self._reap(block=True)
            shutil.rmtree(self._scratch_root, ignore_errors=True)

    def _turn(self) -> bool:
        now = time.monotonic()
        next_deadline = min((worker.deadline for worker in self._workers.values()), default=now + _POLL_S)
        for key, _ in self._selector.select(max(0.0, min(next_deadline - now, _POLL_S))):
            if key.fileobj is self._control:
                try:
                    message = self._control.receive(with_fds=True)
                except ChannelClosed:
                    return False
                self._start(message.fields, message.fds)
            elif key.fileobj is self._wakeup:
                with contextlib.suppress(BlockingIOError):
                    self._wakeup.recv(4096)
            elif key.data in self._workers:
                # A lease carries no messages towards us; readable means that its holder let go.
                self._kill(key.data)
                self._selector.unregister(key.fileobj)
        now = time.monotonic()
        for worker in self._workers.values():
            if now >= worker.deadline and not worker.timed_out:
                worker.timed_out = True
                self._kill(worker.pid)
        self._reap()
        return os.getppid() == _PARENT_PID

    def _start(self, request: dict[str, Any], fds: list[int]) -> None:
        data_fd, lease_fd = fds
        lease = Channel(socket.socket(fileno=lease_fd))
        nursery_pid = os.getpid()
        scratch = ""
        try:
            scratch = tempfile.mkdtemp(dir=self._scratch_root)
            pid = os.fork()
        except OSError as error:
            os.close(data_fd)
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(ChannelClosed):
                lease.send({"event": "failed", "why": str(error)})
            lease.close()
            return
        if pid == 0:
            self._be_worker(request, data_fd, scratch, nursery_pid)
        os.close(data_fd)
        self._workers[pid] = _Worker(pid, lease, time.monotonic() + float(request["timeout_s"]), scratch)
        self._selector.register(lease, selectors.EVENT_READ, pid)
        with contextlib.suppress(ChannelClosed):
            lease.send({"event": "started"})

    def _be_worker(self, request: dict[str, Any], data_fd: int, scratch: str, nursery_pid: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.closerange(3, data_fd)
            os.closerange(data_fd + 1, 4096)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.close(null)
            os.setsid()
            policy = Policy(scratch=scratch, hidden=self._hidden, parent=nursery_pid)
            os.chdir(scratch)
            if request["environment"] is not None:
                os.set_inheritable(data_fd, True)
                os.execve(
                    sys.executable, _program(request, data_fd, scratch, nursery_pid), request["environment"]
                )
            confinement = confine(policy, Limits(**request["limits"]))
            # Again, because the scratch may by now be a file system of its own.
            os.chdir(scratch)
            serve(Channel(socket.socket(fileno=data_fd)), request["service"], confinement)
            status = 0
        finally:
            os._exit(status)

    def _kill(self, pid: int) -> None:
        for send in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
            with contextlib.suppress(OSError):
                send()

    def _reap(self, block: bool = False) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._workers.pop(pid, None)
            if worker is None:
                continue
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(worker.lease)
            shutil.rmtree(worker.scratch, ignore_errors=True)
            report = {
                "event": "ended",
                "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
                "timed_out": worker.timed_out,
                "peak_memory_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            }
            with contextlib.suppress(ChannelClosed):
                worker.lease.send(report)
            worker.lease.close()
            self._kill_strays()
            if block:
                return

    def _kill_strays(self) -> None:
        """Whatever a worker left behind has become a child of this process; nothing of it may live on."""
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
        except OSError:
            return
        for pid in children:
            if pid not in self._workers:
                self._kill(pid)


def _program(request: dict[str, Any], data_fd: int, scratch: str, nursery_pid: int) -> list[str]:
    """The command line of a worker that cannot be forked, because it drives a device."""
    boot = "import json,sys; sys.path[:]=json.loads(sys.argv[1]); from tools import nursery"
    boot += "; nursery.main_of_program(sys.argv[2])"
    arguments = {"fd": data_fd, "service": request["service"], "scratch": scratch, "parent": nursery_pid}
    return [sys.executable, "-I", "-c", boot, json.dumps(sys.path), json.dumps(arguments)]


def main_of_program(arguments: str) -> None:
    """Entry of a worker that drives a device: a program of its own with the environment that it was given."""
    settings = json.loads(arguments)
    confinement = confine_device_worker(Policy(scratch=settings["scratch"], parent=settings["parent"]))
    serve(Channel(socket.socket(fileno=settings["fd"])), settings["service"], confinement)


def main(arguments: str) -> None:
    """Entry of the nursery process: imports what workers need, then serves until the caller is gone."""
    settings = json.loads(arguments)
    warnings.simplefilter("ignore")
    adopt_orphans()
    for name in settings["preload"]:
        importlib.import_module(name).preload()
    gc.collect()
    gc.freeze()
    control = Channel(socket.socket(fileno=settings["control_fd"]))
    control.send({"event": "ready"})
    Nursery(control, tuple(settings["hidden"]), settings["scratch_root"]).run()
