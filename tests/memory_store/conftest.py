from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory_store.chroma import ExperienceStore
from memory_store.experience import Experience
from memory_store.home import sqlalchemy_url, sqlite_url
from memory_store.ledger import Ledger

MakeExperience = Callable[..., Experience]


@pytest.fixture
def make_experience() -> MakeExperience:
    """Experiences that differ in a number; any field can be given."""

    def make(number: int = 0, **fields: object) -> Experience:
        return Experience.model_validate(
            {
                "kind": "positive",
                "title": f"Widen the tile {number}",
                "description": "Load a longer stretch of the free dimension with each instruction.",
                "slow_code": "for i: load(128)",
                "fast_code": "load(512)",
                "speedup": 1.25,
                "problem": "silu",
                "operator": "silu",
                "target": "trn1",
                "bottleneck": "memory",
                "features": ["loop-depth-2"],
                "run_id": "run-a",
                "round": 1,
                "created_at": f"2026-01-01T00:00:{number:02d}+00:00",
                **fields,
            }
        )

    return make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server of our own, without a database."""
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    search = os.pathsep.join([os.environ.get("PATH", ""), *folders])
    initdb, pg_ctl = shutil.which("initdb", path=search), shutil.which("pg_ctl", path=search)
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # PostgreSQL refuses to run as root, and its user cannot enter root's temporary folders.
    account = {"user": "postgres"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="accelopt-postgres-"))
    folder.chmod(0o700)
    if account:
        shutil.chown(folder, "postgres")

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, **account)
        assert done.returncode == 0, done.stdout + done.stderr

    data, options = str(folder / "data"), f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        run(initdb, "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
        run(pg_ctl, "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        yield f"postgresql://tester@127.0.0.1:{port}"
        run(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of an empty database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{postgres_server}/{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a ledger that is not there yet."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "ledger.sqlite")
    return sqlalchemy_url(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    """A store of this process alone: no server to start."""
    with ExperienceStore.open(tmp_path / "chroma", "hashing", shared=False) as opened:
        yield opened
