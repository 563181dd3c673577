"""The ledger's database: SQLite file or PostgreSQL, schema version, short transactions, typed errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session

from ..errors import LedgerError, LedgerVersionError
from .group_commit import GroupCommit
from .tables import SCHEMA_VERSION, Meta, Run, Table

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another process's transaction. Transactions last milliseconds."""

_SCHEMA_LOCK = 0x0ACCE107
"""Key of the PostgreSQL advisory lock under which the tables are made."""


class Database:
    """A connection pool on one ledger, with a read and a write transaction.

    Safe for threads and for several processes: SQLite runs in WAL mode, writers take their turn from the
    start of a transaction, and each commit is on disk when it returns (`synchronous=FULL`), because a
    checkpoint may refer to it from then on.
    """

    def __init__(self, url: str, *, readonly: bool = False) -> None:
        """Open, and make the tables where there are none.

        Args:
            url: SQLAlchemy URL.
            readonly: open a SQLite file that nobody writes meanwhile, and leave no trace beside it.

        Raises:
            LedgerVersionError: written by another version of the schema.
            LedgerError: cannot be opened; says why.
        """
        try:
            self.url = make_url(url)
        except ArgumentError as error:
            raise LedgerError(
                f"not a database URL: {url!r}; write sqlite:///file or postgresql://..."
            ) from error
        if self.url.drivername in ("postgresql", "postgres"):
            # Without a name SQLAlchemy takes the previous generation of the driver.
            self.url = self.url.set(drivername="postgresql+psycopg")
        self._is_sqlite = self.url.get_backend_name() == "sqlite"
        self._readonly = readonly and self._is_sqlite
        if self._is_sqlite:
            _check_file(self.url)
        self.engine = self._engine()
        self._writers = GroupCommit(lambda: self.engine.connect().execution_options(write=True))
        with self._errors("open"):
            self._prepare()

    @property
    def place(self) -> str:
        """The ledger's file or server, without a password, for messages."""
        return str(self.url.database) if self._is_sqlite else self.url.render_as_string()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads: one consistent view."""
        with self._errors("read"), Session(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that commits at its end, or not at all.

        Raises:
            LedgerError: it refers to rows that are not there, or the database refused.
        """
        with self._errors("write"):
            if not self._is_sqlite:
                with Session(self.engine) as session, session.begin():
                    yield session
                return
            with self._writers.join() as connection:
                # The transaction belongs to the line of writers; the session only rolls back, if at all.
                with Session(connection, join_transaction_mode="rollback_only") as session:
                    yield session
                    session.flush()

    def insert_once(self, session: Session, table: type[Table], rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows whose key is not there yet; what is there stays as it is."""
        if rows:
            statement = self._insert(table).on_conflict_do_nothing()
            session.execute(statement, [dict(row) for row in rows])

    def upsert(self, session: Session, table: type[Table], row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the named columns of the one that has its primary key."""
        mapper = inspect(table)
        keys = [column.name for column in mapper.primary_key]
        names = {attribute.key: attribute.columns[0].name for attribute in mapper.column_attrs}
        statement = self._insert(table).values(dict(row))
        changed = {names[key]: statement.excluded[names[key]] for key in row if names[key] not in keys}
        if changed:
            session.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))
        else:
            session.execute(statement.on_conflict_do_nothing())

    def close(self) -> None:
        """Close the pool. The object can be used again: connections are opened anew."""
        self.engine.dispose()

    def _insert(self, table: type[Table]) -> Any:
        return sqlite.insert(table) if self._is_sqlite else postgresql.insert(table)

    def _engine(self) -> Engine:
        try:
            if not self._is_sqlite:
                return create_engine(self.url, pool_pre_ping=True, pool_size=8, max_overflow=24)
            url = _immutable(self.url) if self._readonly else self.url
            options = {"timeout": BUSY_TIMEOUT_S}
            engine = create_engine(url, pool_size=8, max_overflow=64, connect_args=options)
        except NoSuchModuleError as error:
            raise LedgerError(
                f"no driver for {self.url.drivername}; only sqlite and postgresql are meant"
            ) from error
        except ImportError as error:
            raise LedgerError(
                f"the driver {self.url.drivername} is not installed; install the extra `postgres`"
            ) from error
        event.listen(engine, "connect", _no_autobegin if self._readonly else _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _prepare(self) -> None:
        with self.engine.connect() as connection:
            found = _stored_version(connection)
        if found is None:
            with self.engine.connect().execution_options(write=True) as connection, connection.begin():
                if not self._is_sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
                # Another process may have made the tables while this one waited for its turn.
                found = _stored_version(connection)
                if found is None:
                    Table.metadata.create_all(connection)
                    connection.execute(insert(Meta).values(key="schema", value=str(SCHEMA_VERSION)))
                    found = SCHEMA_VERSION
        if found != SCHEMA_VERSION:
            age = "an older" if found < SCHEMA_VERSION else "a newer"
            raise LedgerVersionError(
                f"the ledger {self.place} has schema {found}, written by {age} version of accelopt; this one "
                f"reads schema {SCHEMA_VERSION}: use that version, or another ACCELOPT_HOME"
            )

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger {self.place} refused a row that refers to something not in it: {_reason(error)}"
            ) from error
        except SQLAlchemyError as error:
            raise LedgerError(f"cannot {doing} the ledger {self.place}: {_reason(error)}") from error
        except ImportError as error:
            raise LedgerError(f"cannot {doing} the ledger: {error}; install the extra `postgres`") from error


def _reason(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0]


def _check_file(url: URL) -> None:
    """Say plainly what SQLite reports as `unable to open database file`."""
    if not url.database or url.database == ":memory:":
        raise LedgerError("the ledger needs a file: sqlite:////path/to/ledger.sqlite")
    path = Path(url.database)
    if not path.parent.is_dir():
        raise LedgerError(f"cannot open the ledger {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise LedgerError(f"cannot open the ledger {path}: it is a folder")


def _stored_version(connection: Connection) -> int | None:
    """The schema version, None for an empty database, 0 for tables that say no version."""
    tables = set(inspect(connection).get_table_names())
    if Meta.__tablename__ not in tables:
        return 0 if Run.__tablename__ in tables else None
    value = connection.execute(select(Meta.value).where(Meta.key == "schema")).scalar_one_or_none()
    return int(value) if value is not None and value.isdigit() else 0


def _immutable(url: URL) -> URL:
    """The same file, promised not to change: SQLite then needs no lock and no file beside it."""
    path = quote(str(Path(str(url.database)).absolute()))
    return url.set(database=f"file:{path}", query={"mode": "ro", "immutable": "1", "uri": "true"})


def _no_autobegin(connection: Any, _record: Any) -> None:
    # The driver's own transaction control begins transactions too late; `_begin_sqlite` does it.
    connection.isolation_level = None


def _configure_sqlite(connection: Any, record: Any) -> None:
    _no_autobegin(connection, record)
    cursor = connection.cursor()
    try:
        # Turning a new file to WAL wants it alone, and fails at once rather than wait for its turn.
        for attempt in range(50):
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                break
            except Exception as error:
                if "locked" not in str(error) or attempt == 49:
                    raise
                time.sleep(0.02)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer that begins as a reader can find itself unable to become one; so it says so at once.
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
