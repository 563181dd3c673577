"""The checkpointer that LangGraph saves a run's state with: a SQLite file in the home, or PostgreSQL.

`langgraph.json` names `make_checkpointer`, because the development server's own in-memory default loses up
to ten seconds of finished work when it is killed; the command line opens the same file through
`open_checkpointer`, so that a run begun in one can be read in the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from .errors import HomeError
from .home import Home, find_home, plain_postgres_url

_SETUP_LOCK = 0x0ACCE108
"""Key of the PostgreSQL advisory lock under which the tables are made."""
_LOCK_TIMEOUT_S = 30.0
"""How long a SQLite file may be held by others."""


@asynccontextmanager
async def make_checkpointer() -> AsyncIterator[BaseCheckpointSaver[str]]:
    """The checkpointer of the home that the environment names. LangGraph's server calls this at start.

    Raises:
        HomeError: the home cannot be written, or PostgreSQL cannot be used.
    """
    # Making folders blocks, which the server forbids on its event loop.
    home = await asyncio.to_thread(lambda: find_home().prepare())
    async with open_checkpointer(home) as saver:
        yield saver


@asynccontextmanager
async def open_checkpointer(home: Home) -> AsyncIterator[BaseCheckpointSaver[str]]:
    """The checkpointer of a home, with its tables made.

    Raises:
        HomeError: the file or the server cannot be opened, or the extra `postgres` is not installed.
    """
    if home.postgres_url:
        async with _postgres(plain_postgres_url(home.postgres_url)) as saver:
            yield saver
    else:
        async with _sqlite(home) as saver:
            yield saver


@asynccontextmanager
async def _sqlite(home: Home) -> AsyncIterator[BaseCheckpointSaver[str]]:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    path = home.checkpoints_path
    try:
        connection = await aiosqlite.connect(str(path), timeout=_LOCK_TIMEOUT_S)
    except aiosqlite.Error as error:
        raise HomeError(f"cannot open the checkpoints {path}: {error}") from error
    try:
        saver = AsyncSqliteSaver(connection)
        try:
            await _set_up(saver)
        except aiosqlite.Error as error:
            raise HomeError(f"cannot open the checkpoints {path}: {error}") from error
        yield saver
    finally:
        await connection.close()


async def _set_up(saver: Any) -> None:
    """Make the tables. SQLite does not wait for its lock while the journal's mode changes, whatever the timeout."""
    import aiosqlite

    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return await saver.setup()
        except aiosqlite.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


async def _take_turn(connection: Any) -> None:
    """Hold the lock until the connection ends: two that make the same tables get into each other's way.

    Asked for again and again rather than waited for: an index made concurrently waits for every statement
    that is under way, and one that waits for the lock would be such a statement.
    """
    while True:
        answer = await connection.execute("SELECT pg_try_advisory_lock(%s)", (_SETUP_LOCK,))
        (mine,) = await answer.fetchone()
        if mine:
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[BaseCheckpointSaver[str]]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool
    except ImportError as error:
        raise HomeError(f"PostgreSQL needs the extra `postgres`, which is not installed: {error}") from error
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    # A pool, because it replaces a connection that a restarted server has dropped.
    pool: Any = AsyncConnectionPool(url, min_size=1, max_size=4, open=False, kwargs=options)
    saver = AsyncPostgresSaver(pool)
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=10) as lock:
            await _take_turn(lock)
            await pool.open(wait=True, timeout=10.0)
            await saver.setup()
    except psycopg.Error as error:
        await pool.close()
        raise HomeError(f"cannot use PostgreSQL for the checkpoints: {str(error).splitlines()[0]}") from error
    try:
        yield saver
    finally:
        await pool.close()
