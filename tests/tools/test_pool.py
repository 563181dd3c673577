"""A worker is fresh, confined and mortal; whatever it does costs its lease and nothing else."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from tools.channel import SharedArrays
from tools.pool import Lease, PoolBroken, PoolSettings, WorkerLost, WorkerPool
from tools.sandbox import Confinement
from tools.worker import Fault

SERVICE = "tests.tools.misbehaving_service"
ROOT = Path(__file__).resolve().parents[2]
Take = Callable[..., AbstractContextManager[Lease]]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(PoolSettings(workers=2, preload=(SERVICE,))) as pool:
        yield pool


@pytest.fixture
def take(pool: WorkerPool) -> Take:
    def lease(timeout_s: float = 20.0, memory_bytes: int = 256 << 20) -> AbstractContextManager[Lease]:
        return pool.lease(SERVICE, timeout_s=timeout_s, memory_bytes=memory_bytes, shared_bytes=64 << 20)

    return lease


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def eventually(condition: Callable[[], bool], patience_s: float = 5.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def nursery_pid(pool: WorkerPool) -> int:
    pool.start()
    assert pool._nursery is not None
    return pool._nursery._process.pid


def test_a_worker_keeps_state_during_its_lease_and_takes_it_along(take: Take) -> None:
    with take() as first:
        first.call("remember", {"what": 1})
        assert first.call("remember", {"what": 2}).fields["memory"] == [1, 2]
    with take() as second:
        assert second.call("remember", {"what": 3}).fields["memory"] == [3]


def test_arrays_and_bytes_reach_the_worker_and_come_back(take: Take) -> None:
    values = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((0, 4)), np.array(3, dtype=np.int32)]
    with take() as worker, SharedArrays.copy_of(values) as source:
        with SharedArrays.allocate([(value.dtype.name, value.shape) for value in values]) as target:
            answer = worker.call("double", tail=b"abc", arrays=[source], writable=[target])
            assert answer.tail == b"cba"
            for value, doubled in zip(values, target.arrays(), strict=True):
                np.testing.assert_array_equal(doubled, value * 2)


def test_a_worker_cannot_write_into_its_inputs(take: Take) -> None:
    with take() as worker, SharedArrays.copy_of([np.zeros(4)]) as source:
        with pytest.raises(Fault):
            worker.call("overwrite_input", arrays=[source])
        assert not source.arrays()[0].any()


def test_a_fault_arrives_in_full(take: Take) -> None:
    with take() as worker, pytest.raises(Fault) as caught:
        worker.call("fail")
    fault = caught.value
    assert (fault.status, fault.name, fault.message) == ("compile_error", "err_example", "a finding")
    assert (fault.line, fault.remedy) == (3, "a remedy")


def test_an_unforeseen_error_is_a_fault_of_one_line(take: Take) -> None:
    with take() as worker, pytest.raises(Fault) as caught:
        worker.call("surprise")
    assert caught.value.name == "internal_error"
    assert caught.value.message == "ZeroDivisionError: nobody expected this"


def test_endless_recursion_is_a_fault(take: Take) -> None:
    with take() as worker, pytest.raises(Fault) as caught:
        worker.call("recurse")
    assert caught.value.name == "nested_too_deeply"


def test_an_endless_loop_is_killed_at_the_deadline(take: Take) -> None:
    started = time.monotonic()
    with take(timeout_s=0.3) as worker, pytest.raises(WorkerLost) as caught:
        worker.call("spin")
    assert caught.value.timed_out
    assert time.monotonic() - started < 3


def test_one_call_may_have_less_patience_than_the_lease(take: Take) -> None:
    started = time.monotonic()
    with take(timeout_s=60) as worker, pytest.raises(WorkerLost) as caught:
        worker.call("spin", timeout_s=0.2)
    assert caught.value.timed_out
    assert time.monotonic() - started < 3


def test_a_worker_that_allocates_without_end_meets_its_limit(take: Take) -> None:
    with take(memory_bytes=128 << 20) as worker, pytest.raises(Fault) as caught:
        worker.call("allocate")
    assert caught.value.name == "memory_limit"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_costs_one_lease(take: Take, number: signal.Signals) -> None:
    with take() as worker, pytest.raises(WorkerLost) as caught:
        worker.call("crash", {"signal": int(number)})
    assert caught.value.signal == number
    with take() as next_worker:
        assert next_worker.call("remember", {"what": 1}).fields["memory"] == [1]


def test_a_worker_that_leaves_is_reported_lost(take: Take) -> None:
    with take() as worker, pytest.raises(WorkerLost, match="exit code 7"):
        worker.call("leave")


def test_another_thread_can_abort_a_call(take: Take) -> None:
    with take() as worker:
        threading.Timer(0.1, worker.abort).start()
        with pytest.raises(WorkerLost):
            worker.call("spin")


def test_a_worker_finds_no_environment_no_open_files_and_an_empty_folder(take: Take) -> None:
    os.environ["SECRET_FOR_THE_TEST"] = "x"
    try:
        with take() as worker:
            seen = worker.call("look_around").fields
    finally:
        del os.environ["SECRET_FOR_THE_TEST"]
    assert seen["environment"] == {}
    assert len(seen["files"]) == 1, "only the connection itself"
    assert eventually(lambda: not Path(seen["folder"]).exists())


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
def test_what_a_worker_must_not_do_is_refused(take: Take) -> None:
    with take() as worker:
        confinement = Confinement.model_validate(worker.call("confinement").fields)
        refused = worker.call("attempt").fields
    if confinement.blocks_network:
        assert refused["open a socket"]
    if confinement.blocks_writes:
        assert refused["write outside"]
    if confinement.blocks_processes:
        assert refused["start a process"] and refused["signal its parent"]


def test_the_scratch_folder_is_small(take: Take) -> None:
    with take() as worker, pytest.raises((Fault, WorkerLost)):
        worker.call("fill_scratch")


def test_leases_leave_no_process_behind(pool: WorkerPool, take: Take) -> None:
    pid = nursery_pid(pool)
    files_before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        with take() as worker:
            worker.call("remember", {"what": number})
    assert eventually(lambda: children_of(pid) == [])
    assert len(os.listdir("/proc/self/fd")) == files_before


def test_a_lease_starts_within_50_ms(pool: WorkerPool, take: Take) -> None:
    pool.start()
    times = []
    for _ in range(7):
        started = time.monotonic()
        with take() as worker:
            worker.call("remember", {"what": 0})
        times.append(time.monotonic() - started)
    assert sorted(times)[3] < 0.05


def test_a_killed_nursery_is_replaced(take: Take, pool: WorkerPool) -> None:
    os.kill(nursery_pid(pool), signal.SIGKILL)
    with take() as worker:
        assert worker.call("remember", {"what": 1}).fields["memory"] == [1]


def test_a_worker_dies_with_its_nursery(take: Take, pool: WorkerPool) -> None:
    with take() as worker:
        pid = worker.call("remember", {"what": 1}).fields["pid"]
        assert Path(f"/proc/{pid}").exists()
        os.kill(nursery_pid(pool), signal.SIGKILL)
        assert eventually(lambda: not alive(pid))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_everything_ends_when_the_caller_is_killed() -> None:
    program = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from tools.pool import PoolSettings, WorkerPool
pool = WorkerPool(PoolSettings(workers=1, preload=({SERVICE!r},)))
with pool.lease({SERVICE!r}, timeout_s=60, memory_bytes=1 << 28) as worker:
    pid = worker.call("remember", {{"what": 0}}).fields["pid"]
    print(pool._nursery._process.pid, pid, flush=True)
    worker.call("spin")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        assert all(alive(pid) for pid in pids)
        caller.kill()
    assert len(pids) == 2
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_a_nursery_that_cannot_start_says_why() -> None:
    with WorkerPool(PoolSettings(workers=1, preload=("tests.tools.no_such_module",))) as broken:
        with pytest.raises(PoolBroken, match="no_such_module"):
            broken.start()
