"""Where a user's runs live: one folder outside the project tree, and the paths inside it.

The folder is `ACCELOPT_HOME`, or the platform's user data folder. It must not lie inside the project:
`langgraph dev` restarts, and ends its runs, whenever a Python file appears below the project.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import platformdirs
from filelock import FileLock, Timeout

from .errors import HomeError

HOME_VARIABLE = "ACCELOPT_HOME"
POSTGRES_VARIABLE = "ACCELOPT_POSTGRES_URL"

_CLAIM_WAIT_S = 0.3


@dataclass(frozen=True)
class Home:
    """The folder of everything that outlives a run."""

    root: Path
    postgres_url: str | None = None
    """A PostgreSQL server that holds ledger and checkpoints in place of the two SQLite files."""

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        if self.postgres_url:
            return sqlalchemy_url(self.postgres_url)
        return sqlite_url(self.root / "ledger.sqlite")

    @property
    def checkpoints_path(self) -> Path:
        """SQLite file of LangGraph's checkpoints."""
        return self.root / "checkpoints.sqlite"

    @property
    def chroma_path(self) -> Path:
        """Folder of the vector store."""
        return self.root / "chroma"

    @property
    def runs_path(self) -> Path:
        """Folder with one folder a run, for reports and the best kernels."""
        return self.root / "runs"

    @property
    def cache_path(self) -> Path:
        """Folder of things that can be deleted at any time."""
        return self.root / "cache"

    @property
    def llm_cache_path(self) -> Path:
        """SQLite file of the response cache."""
        return self.cache_path / "llm.sqlite"

    def run_path(self, run_id: str) -> Path:
        """The folder of one run, made if need be.

        Raises:
            HomeError: it cannot be made.
        """
        return _made(self.runs_path / run_id)

    @contextmanager
    def claim_run(self, run_id: str) -> Iterator[None]:
        """Hold a run for this process: two that resume the same run would pay for its calls twice.

        Raises:
            HomeError: another process on this machine works on it.
        """
        lock = FileLock(self.run_path(run_id) / "claim", thread_local=False)
        try:
            # Not at once: `is_abandoned` holds it for a moment.
            lock.acquire(timeout=_CLAIM_WAIT_S)
        except Timeout:
            raise HomeError(
                f"another process is working on the run {run_id}; wait for it or stop it"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def is_abandoned(self, run_id: str) -> bool:
        """Whether a process of this machine once worked on the run and none does now: it ended or was killed."""
        path = self.runs_path / run_id / "claim"
        if not path.exists():
            # Nobody claims the runs of a server, which takes them up by itself.
            return False
        try:
            with FileLock(path, thread_local=False).acquire(timeout=0):
                return True
        except (Timeout, OSError):
            return False

    def prepare(self) -> Home:
        """Make the folders and prove that they can be written.

        Raises:
            HomeError: the folder cannot be made or written; says which and why.
        """
        for path in (self.root, self.runs_path, self.cache_path):
            _made(path)
        try:
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise HomeError(
                f"cannot write to {self.root} ({error.strerror}); set {HOME_VARIABLE} to a writable folder"
            ) from error
        return self


def find_home(path: str | os.PathLike[str] | None = None) -> Home:
    """The home at `path`, else at `ACCELOPT_HOME`, else in the user data folder; touches no disk.

    Raises:
        HomeError: `ACCELOPT_POSTGRES_URL` is set to something that is not a PostgreSQL URL.
    """
    chosen = path or os.environ.get(HOME_VARIABLE) or platformdirs.user_data_path("accelopt", appauthor=False)
    postgres_url = os.environ.get(POSTGRES_VARIABLE) or None
    if postgres_url:
        sqlalchemy_url(postgres_url)
    return Home(root=Path(chosen).expanduser().absolute(), postgres_url=postgres_url)


def sqlite_url(path: Path) -> str:
    """SQLAlchemy URL of a SQLite file, whatever characters its path has."""
    return f"sqlite:///{quote(str(path))}"


def sqlalchemy_url(postgres_url: str) -> str:
    """A PostgreSQL URL as SQLAlchemy wants it: with the driver that this product installs, psycopg 3.

    Raises:
        HomeError: not a PostgreSQL URL.
    """
    return _postgres_url(postgres_url, "postgresql+psycopg")


def plain_postgres_url(postgres_url: str) -> str:
    """A PostgreSQL URL as the driver itself wants it: without naming one.

    Raises:
        HomeError: not a PostgreSQL URL.
    """
    return _postgres_url(postgres_url, "postgresql")


def _postgres_url(url: str, scheme: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parts = make_url(url)
    except ArgumentError as error:
        raise HomeError(f"{POSTGRES_VARIABLE} is no database URL; write postgresql://user@host/db") from error
    if parts.get_backend_name() not in ("postgresql", "postgres"):
        raise HomeError(f"{POSTGRES_VARIABLE} names a {parts.get_backend_name()} database, not postgresql")
    return parts.set(drivername=scheme).render_as_string(hide_password=False)


def _made(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(
            f"cannot make the folder {path} ({error.strerror}); set {HOME_VARIABLE} to a writable folder"
        ) from error
    return path
