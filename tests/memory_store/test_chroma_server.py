"""One store, several processes, some of which are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memory_store import chroma_server
from memory_store.chroma import ExperienceStore, Where
from memory_store.errors import StoreBusy, StoreError

LINGER_S = 0.4

WRITER = """
import sys
from pathlib import Path
from memory_store.chroma import ExperienceStore
from memory_store.experience import Experience

path, who, number, linger_s = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with ExperienceStore.open(path, "hashing", linger_s=linger_s) as store:
    for i in range(number):
        store.add([
            Experience(
                kind="positive", title=f"{who} {i}", description="as it says", speedup=1.5, run_id=who,
                problem="silu", operator="silu" if i % 2 else "bmm", target="trn1",
            ),
            Experience(
                kind="positive", title=f"everybody {i}", description="as it says", speedup=1.5, run_id=who,
                problem="silu", operator="silu", target="trn1",
            ),
        ])
        print(i, flush=True)
"""


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "chroma"
    # Whatever a test left running ends when nobody uses it; the folder must not vanish before.
    wait_until(lambda: not owned(tmp_path / "chroma"))


def owned(path: Path) -> bool:
    lock = chroma_server.Places(path).owner()
    try:
        lock.acquire(timeout=0)
    except chroma_server.Timeout:
        return True
    lock.release()
    return False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def writer(path: Path, who: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WRITER, str(path), who, str(number), str(LINGER_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def server_pid(path: Path) -> int:
    return json.loads(chroma_server.Places(path).address.read_text())["pid"]


def open_store(path: Path) -> ExperienceStore:
    return ExperienceStore.open(path, "hashing", linger_s=LINGER_S)


def test_processes_that_write_at_once_lose_nothing_and_see_each_other(path):
    writers = [writer(path, who, 15) for who in ("ann", "bob")]
    for process in writers:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    with open_store(path) as store:
        assert store.count() == 45
        for who in ("ann", "bob"):
            # Its own fifteen, and the fifteen that everybody wrote.
            assert store.count(Where(run_id=who)) == 30
            own = [one.experience.title for one in store.query(f"{who} 3", 4)]
            assert f"{who} 3" in own
        assert len(store.query("as it says", 45, Where(operator="bmm"))) == 16
        assert len(store.query("as it says", 60)) == 45


def test_a_killed_writer_leaves_a_whole_store_and_blocks_nobody(path):
    for attempt in range(2):
        victim = writer(path, f"victim{attempt}", 1000)
        assert victim.stdout is not None
        for _ in range(5 + attempt):
            victim.stdout.readline()
        victim.kill()
        victim.wait()
        victim.communicate()
        began = time.monotonic()
        with open_store(path) as store:
            assert time.monotonic() - began < 10
            done = {one.title for one in store.list(Where(run_id=f"victim{attempt}"))}
            assert {f"victim{attempt} {i}" for i in range(5 + attempt)} <= done
            assert store.count() == len(store.query("as it says", 4000))


def test_a_killed_server_is_replaced_under_its_users_feet(path, make_experience):
    with open_store(path) as store, open_store(path) as other:
        store.add([make_experience(1)])
        first = server_pid(path)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not owned(path))
        store.add([make_experience(2)])
        assert server_pid(path) != first
        assert [one.title for one in other.list()] == ["Widen the tile 2", "Widen the tile 1"]
        assert len(other.query("tile", 5, Where(operator="silu"))) == 2


def test_an_address_left_by_a_dead_server_is_not_believed(path, make_experience):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        path.parent.mkdir(exist_ok=True)
        chroma_server.Places(path).address.write_text(json.dumps({"port": port, "pid": 1}))
        with open_store(path) as store:
            store.add([make_experience(1)])
            assert json.loads(chroma_server.Places(path).address.read_text())["port"] != port


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '{"port": "x"}'])
def test_a_spoiled_address_is_not_believed_either(path, rubbish):
    path.parent.mkdir(exist_ok=True)
    chroma_server.Places(path).address.write_text(rubbish)
    with open_store(path) as store:
        assert store.count() == 0


def test_a_server_ends_after_its_last_user_and_takes_its_traces_along(path):
    with open_store(path):
        with open_store(path):
            pid = server_pid(path)
        time.sleep(2 * LINGER_S)
        assert owned(path) and server_pid(path) == pid
    wait_until(lambda: not owned(path))
    places = chroma_server.Places(path)
    assert not places.address.exists()
    assert not list(places.users.iterdir())


def test_a_server_whose_folder_is_deleted_ends_and_leaves_nothing(path):
    home = path.parent / "home"
    store = open_store(home / "chroma")
    pid = server_pid(home / "chroma")
    shutil.rmtree(home)
    wait_until(lambda: not alive(pid))
    assert not home.exists()
    store.close()


def test_a_store_kept_alone_waits_for_a_server_that_nobody_uses(path, make_experience):
    with open_store(path) as store:
        store.add([make_experience(1)])
        with pytest.raises(StoreBusy, match="in use"):
            ExperienceStore.open(path, "hashing", shared=False)
    with ExperienceStore.open(path, "hashing", shared=False) as alone:
        assert alone.count() == 1


def test_a_server_that_cannot_start_says_why(path):
    path.mkdir(parents=True)
    (path / "chroma.sqlite3").write_text("this is no database " * 100)
    with pytest.raises(
        StoreError, match=f"the server of the vector store {path} does not start: .+"
    ) as caught:
        open_store(path)
    assert "\n" not in str(caught.value)


def test_a_file_where_the_folder_should_be_is_refused(path):
    path.write_text("")
    for shared in (True, False):
        with pytest.raises(StoreError, match="it is not a folder"):
            ExperienceStore.open(path, "hashing", shared=shared)


def test_a_proxy_for_the_network_at_large_is_not_asked_for_this_machine(path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.delenv("no_proxy", raising=False)
    with open_store(path) as store:
        assert store.count() == 0
    assert os.environ["NO_PROXY"] == "example.org,127.0.0.1"
