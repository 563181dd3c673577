from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, event, text

from memory_store.errors import LedgerError
from memory_store.ledger.group_commit import GroupCommit


@pytest.fixture
def engine(tmp_path):
    made = create_engine(f"sqlite:///{tmp_path / 'rows.sqlite'}")

    @event.listens_for(made, "connect")
    def connect(connection, _record):
        connection.isolation_level = None

    @event.listens_for(made, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with made.begin() as connection:
        connection.execute(text("CREATE TABLE kept (value INTEGER PRIMARY KEY)"))
    yield made
    made.dispose()


def at_once(number: int, work: Callable[[int], None]) -> list[BaseException]:
    """Let threads go together; what they raised."""
    start, raised = threading.Barrier(number), []

    def run(i: int) -> None:
        start.wait()
        try:
            work(i)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    return raised


def kept(engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT value FROM kept ORDER BY value")).scalars())


def test_writers_in_line_share_commits_and_each_finds_its_row_when_it_returns(engine):
    writers, commits = GroupCommit(engine.connect), []
    event.listen(engine, "commit", commits.append)
    first_in, everybody_waits = threading.Event(), threading.Event()
    missing: list[int] = []

    def work(i: int) -> None:
        if i != 0:
            first_in.wait(10)
        with writers.join() as connection:
            if i == 0:
                first_in.set()
                everybody_waits.wait(10)
            connection.execute(text("INSERT INTO kept VALUES (:value)"), {"value": i})
        if i not in kept(engine):
            missing.append(i)

    def release() -> None:
        first_in.wait(10)
        while writers._waiting < 11:
            threading.Event().wait(0.001)
        everybody_waits.set()

    watcher = threading.Thread(target=release)
    watcher.start()
    assert at_once(12, work) == []
    watcher.join()
    assert missing == []
    assert kept(engine) == list(range(12))
    assert len(commits) == 1


def test_a_writer_that_fails_takes_back_its_own_rows_and_no_others(engine):
    writers = GroupCommit(engine.connect)

    def work(i: int) -> None:
        with writers.join() as connection:
            connection.execute(text("INSERT INTO kept VALUES (:value)"), {"value": i})
            if i % 3 == 0:
                raise LedgerError(f"refused {i}")

    raised = at_once(12, work)
    assert sorted(str(error) for error in raised) == sorted(f"refused {i}" for i in (0, 3, 6, 9))
    assert kept(engine) == [i for i in range(12) if i % 3]


def test_a_commit_that_fails_is_everybody_s_failure_and_the_next_ones_begin_anew(engine):
    writers, failing = GroupCommit(engine.connect), [True]

    @event.listens_for(engine, "commit")
    def refuse(connection):
        if failing[0]:
            raise OSError("disk full")

    def work(i: int) -> None:
        with writers.join() as connection:
            connection.execute(text("INSERT INTO kept VALUES (:value)"), {"value": i})

    raised = at_once(6, work)
    assert [str(error) for error in raised] == ["disk full"] * 6
    failing[0] = False
    assert kept(engine) == []
    assert at_once(6, work) == []
    assert kept(engine) == list(range(6))


def test_a_database_that_is_busy_fails_one_writer_and_leaves_the_line_usable(tmp_path, engine):
    busy = create_engine(f"sqlite:///{tmp_path / 'rows.sqlite'}", connect_args={"timeout": 0})
    event.listen(busy, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(busy, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    writers = GroupCommit(busy.connect)
    with engine.begin(), pytest.raises(Exception, match="locked"), writers.join():
        pass
    with writers.join() as connection:
        connection.execute(text("INSERT INTO kept VALUES (1)"))
    assert kept(engine) == [1]
    busy.dispose()
