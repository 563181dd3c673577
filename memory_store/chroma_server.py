"""One owner for a vector store's folder: a `chroma run` that its users share, started and ended by need.

Chroma's files stand exactly one process. So nobody opens them directly: the first process that needs the
store starts a server on the loopback interface, later ones find its address, and it ends itself soon after
the last of them is gone, however they went. Beside the store's folder lie

    <name>.door       lock, held for moments while somebody looks for the server or starts it
    <name>.owner      lock, held by the server for as long as it lives
    <name>.address    where it listens, written by the server
    <name>.users/     one lock a user, held for as long as the user lives
    <name>.log        what the server printed

All of these are file locks of the kernel, which a killed process gives back at once. A server is alive
exactly if the owner lock is taken, so an address left by a dead one is never believed.

Anyone who can connect to a port of this machine can talk to the server while it lives; it asks for no
password. On a machine shared with people you do not trust, open the store with `shared=False`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .errors import StoreBusy, StoreError

START_TIMEOUT_S = 30.0
"""A server answers after 0.2 s on an idle machine; a loaded one takes longer."""
LINGER_S = 3.0
"""How long a server waits for a next user before it ends; a resumed run finds it warm."""
_LOOPBACK = "127.0.0.1"
_EXCLUSIVE = 0
"""In place of a port: the owner serves nobody."""
_MODULE = "memory_store.chroma_server"


@dataclass(frozen=True)
class Places:
    """The files around a store's folder."""

    path: Path

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")

    def door(self) -> FileLock:
        """Held while looking for a server or starting one."""
        return FileLock(self._beside("door"), thread_local=False)

    def owner(self) -> FileLock:
        """Held by whoever has the folder open."""
        return FileLock(self._beside("owner"), thread_local=False)

    @property
    def address(self) -> Path:
        """Where the server listens."""
        return self._beside("address")

    @property
    def users(self) -> Path:
        """One locked file a user."""
        return self._beside("users")

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self._beside("log")


class Lease:
    """A user's claim on the server: while it is held, the server stays."""

    def __init__(self, places: Places) -> None:
        """Claim; the claim ends with `release` or with the process."""
        places.users.mkdir(parents=True, exist_ok=True)
        while True:
            self._file = places.users / uuid.uuid4().hex
            self._lock = FileLock(self._file, thread_local=False)
            self._lock.acquire(timeout=5.0)
            # A server that looked between making and locking took the file for a dead user's.
            if self._file.exists():
                return
            self._lock.release()

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._lock.is_locked:
            self._file.unlink(missing_ok=True)
            self._lock.release()


def connect(
    path: Path, *, linger_s: float = LINGER_S, timeout_s: float = START_TIMEOUT_S
) -> tuple[str, int, Lease]:
    """Host and port of the server on the store at `path`, started if there is none, and a lease on it.

    Raises:
        StoreBusy: another process has opened the folder for itself alone.
        StoreError: the server does not start; says why.
    """
    places = Places(path)
    deadline = time.monotonic() + timeout_s
    try:
        _make_room(places)
        with places.door().acquire(timeout=timeout_s):
            lease = Lease(places)
            try:
                port = _live_port(places, deadline) or _start(places, linger_s, deadline)
            except BaseException:
                lease.release()
                raise
            return _LOOPBACK, port, lease
    except Timeout as error:
        raise StoreError(f"the vector store {path} was not free for {timeout_s:.0f} s; try again") from error
    except OSError as error:
        raise StoreError(f"cannot open the vector store {path}: {error.strerror or error}") from error


def own(path: Path, *, timeout_s: float = LINGER_S + 2.0) -> Callable[[], None]:
    """Take the store at `path` for this process alone; call what is returned to give it back.

    Waits for a server that nobody uses any more to end, and for nothing else.

    Raises:
        StoreBusy: it is in use.
        StoreError: its folder cannot be made.
    """
    places = Places(path)
    owner = places.owner()
    try:
        _make_room(places)
        owner.acquire(timeout=0 if in_use(places) or _read_address(places) == _EXCLUSIVE else timeout_s)
    except Timeout:
        raise StoreBusy(f"the vector store {path} is in use by another process; wait for it to end") from None
    except OSError as error:
        raise StoreError(f"cannot open the vector store {path}: {error.strerror or error}") from error
    _write_address(places, _EXCLUSIVE)

    def give_back() -> None:
        places.address.unlink(missing_ok=True)
        owner.release()

    return give_back


def _make_room(places: Places) -> None:
    places.path.parent.mkdir(parents=True, exist_ok=True)
    if places.path.exists() and not places.path.is_dir():
        raise StoreError(f"cannot open the vector store {places.path}: it is not a folder")


def _live_port(places: Places, deadline: float) -> int | None:
    """Port of the living server, None if there is none."""
    while True:
        owner = places.owner()
        try:
            owner.acquire(timeout=0)
        except Timeout:
            port = _read_address(places)
            if port is not None and port != _EXCLUSIVE and _listens(port):
                return port
            # A server on its way up or down is worth waiting for.
            if port == _EXCLUSIVE or time.monotonic() > deadline:
                raise StoreBusy(
                    f"another process has the vector store {places.path} for itself; wait for it to end"
                ) from None
            time.sleep(0.05)
        else:
            places.address.unlink(missing_ok=True)
            owner.release()
            return None


def _start(places: Places, linger_s: float, deadline: float) -> int:
    reason = "no reason given"
    root = str(Path(__file__).resolve().parent.parent)
    # A port found free can be taken by someone else before the server has it, hence more than one try.
    for _ in range(3):
        with places.log.open("wb") as log:
            environment = {
                **os.environ,
                "ANONYMIZED_TELEMETRY": "False",
                "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            }
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(places.path), "--linger", str(linger_s)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Out of the reach of a Ctrl-C at the terminal: other runs may be using it.
                start_new_session=True,
                cwd=places.path.parent,
            )
        # Nobody waits for the server later on, so a thread takes note of its end.
        threading.Thread(target=process.wait, daemon=True).start()
        while process.poll() is None and time.monotonic() < deadline:
            port = _read_address(places)
            if port is not None and _listens(port):
                return port
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()
            raise StoreError(f"the server of the vector store {places.path} did not answer; see {places.log}")
        reason = _last_line(places.log) or f"exit status {process.returncode}"
    raise StoreError(f"the server of the vector store {places.path} does not start: {reason}")


def _read_address(places: Places) -> int | None:
    """The port that the owner wrote down, `_EXCLUSIVE` where it serves nobody, None where there is none."""
    try:
        port = json.loads(places.address.read_text())["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) else None


def _write_address(places: Places, port: int) -> None:
    draft = places.address.with_name(f"{places.address.name}.{os.getpid()}")
    draft.write_text(json.dumps({"host": _LOOPBACK, "port": port, "pid": os.getpid()}))
    draft.replace(places.address)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((_LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def _last_line(log: Path) -> str:
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1] if lines else ""


def serve(path: Path, linger_s: float = LINGER_S) -> None:
    """Own the store at `path` and serve it until nobody uses it any more. Does not return.

    Raises:
        filelock.Timeout: it has an owner already.
    """
    import chromadb_rust_bindings

    places = Places(path)
    owner = places.owner()
    owner.acquire(timeout=0)
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port = probe.getsockname()[1]
    places.path.mkdir(exist_ok=True)
    _write_address(places, port)
    threading.Thread(target=_end_when_unused, args=(places, linger_s), daemon=True).start()
    # The same entry as the `chroma` command, without the second that importing chromadb takes. It lets go
    # of the interpreter lock while it serves, so the thread above runs.
    arguments: list[Any] = ["chroma", "run", "--host", _LOOPBACK, "--port", str(port), "--path", str(path)]
    chromadb_rust_bindings.cli(arguments)
    raise SystemExit(f"chroma stopped; port {port} may be taken")


def _end_when_unused(places: Places, linger_s: float) -> None:
    unused_since = time.monotonic()
    while True:
        time.sleep(min(0.25, linger_s / 4))
        if not places.path.is_dir():
            # Deleted under its feet; nothing here is worth staying for, nor to be made anew by a lock.
            os._exit(0)
        if in_use(places):
            unused_since = time.monotonic()
        elif time.monotonic() - unused_since >= linger_s:
            try:
                # Under the door lock nobody can be about to rely on this server.
                with places.door().acquire(timeout=0):
                    if not in_use(places):
                        places.address.unlink(missing_ok=True)
                        # No request can be under way; what a kill may do, this may. The lock goes with it.
                        os._exit(0)
            except Timeout:
                pass


def in_use(places: Places) -> bool:
    """Whether any user lives; clears away what dead ones left."""
    try:
        files = list(places.users.iterdir())
    except OSError:
        return False
    for file in files:
        lock = FileLock(file, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        # Before the release: whoever gets the lock next has to see that the file is gone.
        with suppress(OSError):
            file.unlink()
        lock.release()
    return False


def main() -> None:
    """Serve one store; started by `connect`."""
    parser = argparse.ArgumentParser(description="Serve one vector store until nobody uses it.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--linger", type=float, default=LINGER_S, metavar="SECONDS")
    arguments = parser.parse_args()
    serve(arguments.path, arguments.linger)


if __name__ == "__main__":
    main()
