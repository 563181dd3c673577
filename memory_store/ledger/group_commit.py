"""Writers that wait for the disk together.

A commit that is safe against a power cut waits for the disk, a millisecond on a good one and ten on a bad
one. SQLite has one writer at a time, so a hundred threads with a row each would wait a hundred times. Here
whoever is next in line goes on in the transaction of the one before, and the last of the line commits for all;
nobody returns before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection

_MOST = 64
"""Writers in one transaction: others' processes want a turn too."""


class GroupCommit:
    """A line of writers on one database."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect` gives a connection outside a transaction, whose next one will write."""
        self._connect = connect
        self._counting = threading.Lock()
        self._waiting = 0
        self._turn = threading.Lock()
        self._batch: _Batch | None = None

    @contextmanager
    def join(self) -> Iterator[Connection]:
        """A connection to write on; what was written is on disk when this ends.

        A writer that raises takes back what it wrote and nothing of the others'.
        """
        with self._counting:
            self._waiting += 1
        with self._turn:
            with self._counting:
                self._waiting -= 1
            batch = self._batch = self._batch or _Batch(self._connect())
            batch.members += 1
            try:
                with batch.connection.begin_nested():
                    yield batch.connection
            finally:
                # Whoever waits now is sure to come here after, so the batch is not left open.
                if self._waiting == 0 or batch.members >= _MOST:
                    self._batch = None
                    batch.commit()
        batch.done.wait()
        if batch.error is not None:
            raise batch.error


class _Batch:
    """One transaction and whether it has ended."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.members = 0
        self.done = threading.Event()
        self.error: Exception | None = None
        try:
            self._transaction = connection.begin()
        except BaseException:
            connection.close()
            raise

    def commit(self) -> None:
        """End the transaction; a failure is for every member to raise."""
        try:
            self._transaction.commit()
        except Exception as error:
            self.error = error
            # It may still be inside the transaction: closed for good it takes everything back.
            self.connection.invalidate(error)
        finally:
            self.connection.close()
            self.done.set()
