"""Each layer of confinement holds by itself, and what a system lacks is said."""

import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import sandbox
from tools.sandbox import Confinement, Layer, Limits, Policy, confine, confine_device_worker, python_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked process; its exception is raised here."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer: Any = (True, work())
        except BaseException as error:
            answer = (False, f"{type(error).__name__}: {error}")
        os.write(write, pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    succeeded, value = pickle.loads(data)
    assert succeeded, value
    return value


def confined(
    scratch: Path, work: Callable[[], Any], **without: Callable[..., Any]
) -> tuple[Confinement, Any]:
    def run() -> tuple[Confinement, Any]:
        for name, replacement in without.items():
            setattr(sandbox, name, replacement)
        # The limit counts what the forked test process has mapped already, and a thread without memory never starts.
        state = confine(Policy(scratch=str(scratch)), Limits(memory_bytes=1 << 40))
        return state, work()

    return in_child(run)


def nothing(*_: Any, **__: Any) -> None:
    """Stands for a layer that this system does not have."""


def outcome(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    except MemoryError:
        return "MemoryError"
    return "done"


def connect() -> None:
    import socket

    with socket.socket() as peer:
        peer.settimeout(0.2)
        peer.connect(("127.0.0.1", 9))


def write_elsewhere() -> None:
    Path("/tmp/accelopt-must-not-exist").write_text("x")


def read_elsewhere() -> None:
    Path("/etc/passwd").read_bytes()


def spawn() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def test_everything_forbidden_is_refused_and_the_scratch_works(tmp_path: Path) -> None:
    def work() -> dict[str, str]:
        (tmp_path / "mine").write_text("x")
        return {f.__name__: outcome(f) for f in (connect, write_elsewhere, read_elsewhere, spawn)}

    state, outcomes = confined(tmp_path, work)
    if state.complete:
        assert "done" not in outcomes.values(), outcomes
    assert not Path("/tmp/accelopt-must-not-exist").exists()


def test_landlock_alone_keeps_files_apart(tmp_path: Path) -> None:
    state, outcomes = confined(
        tmp_path,
        lambda: [outcome(f) for f in (write_elsewhere, read_elsewhere, spawn)],
        _enter_namespaces=nothing,
        _filter_system_calls=nothing,
    )
    if Layer.landlock not in state.in_force:
        pytest.skip("no Landlock here")
    assert outcomes == ["PermissionError", "PermissionError", "done"]


def test_the_filter_alone_keeps_network_and_processes_away(tmp_path: Path) -> None:
    state, outcomes = confined(
        tmp_path,
        lambda: [outcome(f) for f in (connect, spawn)],
        _enter_namespaces=nothing,
        _restrict_files=nothing,
    )
    if Layer.system_calls not in state.in_force:
        pytest.skip("no system call filter here")
    assert outcomes == ["PermissionError", "PermissionError"]


def test_mounts_alone_keep_the_file_system_read_only(tmp_path: Path) -> None:
    def work() -> list[str]:
        (tmp_path / "mine").write_text("x")
        return [outcome(write_elsewhere)]

    state, outcomes = confined(tmp_path, work, _restrict_files=nothing, _filter_system_calls=nothing)
    if Layer.mount_namespace not in state.in_force:
        pytest.skip("no mount namespace here")
    assert outcomes == ["OSError"]
    assert not (tmp_path / "mine").exists(), "the scratch is memory that only the worker sees"


def test_folders_to_hide_are_empty_where_landlock_is_missing(tmp_path: Path) -> None:
    secrets, scratch = tmp_path / "home", tmp_path / "scratch"
    secrets.mkdir()
    scratch.mkdir()
    (secrets / "key").write_text("x")

    def run() -> tuple[Confinement, list[str]]:
        sandbox._restrict_files = nothing  # type: ignore[assignment]
        state = confine(Policy(scratch=str(scratch), hidden=(str(secrets),)), Limits())
        return state, os.listdir(secrets) if Layer.mount_namespace in state.in_force else []

    assert in_child(run)[1] == []


def test_what_a_system_lacks_is_said_and_the_rest_applies(tmp_path: Path) -> None:
    def no_namespaces(policy: Policy, in_force: dict, missing: dict) -> None:
        missing[Layer.user_namespace] = "not here"

    def no_landlock(policy: Policy, in_force: dict, missing: dict) -> None:
        missing[Layer.landlock] = "not here either"

    state, _ = confined(tmp_path, nothing, _enter_namespaces=no_namespaces, _restrict_files=no_landlock)
    assert not state.complete
    statement = state.statement()
    assert "NOT confined: file system" in statement and "not here either" in statement
    assert "no network" in statement


def test_limits_hold(tmp_path: Path) -> None:
    def work() -> list[str]:
        def hoard() -> None:
            bytearray(2 << 30)

        def fill() -> None:
            with (tmp_path / "large").open("wb") as file:
                for _ in range(40):
                    file.write(bytes(1 << 20))

        return [outcome(hoard), outcome(fill)]

    import signal

    def run() -> list[str]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return confined_here(tmp_path, work)

    assert in_child(run) == ["MemoryError", "OSError"]


def confined_here(scratch: Path, work: Callable[[], Any]) -> Any:
    confine(Policy(scratch=str(scratch)), Limits(memory_bytes=1 << 30))
    return work()


def test_arrays_shared_with_a_worker_do_not_count_as_its_memory(tmp_path: Path) -> None:
    import mmap

    def run() -> str:
        fd = os.memfd_create("shared")
        os.ftruncate(fd, 256 << 20)
        confine(Policy(scratch=str(tmp_path)), Limits(memory_bytes=64 << 20, shared_bytes=512 << 20))
        mapping = mmap.mmap(fd, 256 << 20)
        mapping[:4] = b"used"
        return outcome(lambda: bytearray(128 << 20))

    assert in_child(run) == "MemoryError"


def test_the_environment_is_gone(tmp_path: Path) -> None:
    assert confined(tmp_path, lambda: dict(os.environ))[1] == {}


def test_threads_still_start(tmp_path: Path) -> None:
    import threading

    def work() -> list[int]:
        seen: list[int] = []
        thread = threading.Thread(target=seen.append, args=(1,))
        thread.start()
        thread.join()
        return seen

    assert confined(tmp_path, work)[1] == [1]


def test_a_device_worker_may_start_programs_but_not_reach_the_internet(tmp_path: Path) -> None:
    def run() -> tuple[Confinement, list[str]]:
        state = confine_device_worker(Policy(scratch=str(tmp_path)))
        return state, [outcome(spawn), outcome(connect)]

    state, outcomes = in_child(run)
    if Layer.system_calls in state.in_force:
        assert outcomes == ["done", "PermissionError"]


def test_only_python_is_readable() -> None:
    folders = python_folders()
    assert sys.base_prefix in folders
    home = os.path.expanduser("~")
    assert "/" not in folders and home not in folders and "/etc" not in folders and "/tmp" not in folders


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("column", [0, 1])
def test_every_jump_of_the_filter_lands_inside_it(device: bool, column: int) -> None:
    program = sandbox._filter_program(column, 0xC000003E, device=device)
    steps = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    for number, (code, when_true, when_false, _) in enumerate(steps):
        if code & 0x07 == 0x05:
            assert number + 1 + max(when_true, when_false) < len(steps)
    assert steps[-1][0] == 0x06
    assert len(steps) < 4096
