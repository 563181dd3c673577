from __future__ import annotations

import asyncio
import contextlib
from typing import TypedDict

import pytest
from blockbuster import blockbuster_ctx
from langgraph.graph import END, START, StateGraph

from memory_store.checkpoint import make_checkpointer, open_checkpointer
from memory_store.errors import HomeError
from memory_store.home import HOME_VARIABLE, POSTGRES_VARIABLE, find_home


class State(TypedDict):
    count: int


def counting() -> StateGraph:
    builder = StateGraph(State)
    builder.add_node("add", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "add")
    builder.add_edge("add", END)
    return builder


@pytest.mark.parametrize("place", ["file", pytest.param("server", marks=pytest.mark.postgres)])
async def test_a_thread_is_there_when_the_checkpoints_are_opened_again(tmp_path, monkeypatch, request, place):
    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)
    if place == "server":
        monkeypatch.setenv(POSTGRES_VARIABLE, request.getfixturevalue("postgres_url"))
    home = find_home(tmp_path).prepare()
    config = {"configurable": {"thread_id": "run-1"}}
    async with open_checkpointer(home) as saver:
        await counting().compile(checkpointer=saver).ainvoke({"count": 1}, config)
    async with open_checkpointer(home) as saver:
        state = await counting().compile(checkpointer=saver).aget_state(config)
    assert state.values == {"count": 2}
    assert home.checkpoints_path.is_file() == (place == "file")


async def test_the_server_gets_the_checkpointer_of_the_home_without_blocking_its_loop(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)
    with blockbuster_ctx():
        async with make_checkpointer() as saver:
            assert await saver.aget({"configurable": {"thread_id": "none"}}) is None
    assert (tmp_path / "home" / "checkpoints.sqlite").is_file()


async def test_a_file_that_holds_no_checkpoints_is_one_line_that_says_which(tmp_path):
    home = find_home(tmp_path).prepare()
    home.checkpoints_path.write_text("no database " * 100)
    with pytest.raises(HomeError, match="cannot open the checkpoints .*checkpoints.sqlite: .*not a database"):
        async with open_checkpointer(home):
            pass


async def test_a_file_that_somebody_holds_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    import sqlite3

    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    home = find_home().prepare()
    with contextlib.closing(sqlite3.connect(home.checkpoints_path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        asyncio.get_running_loop().call_later(0.3, other.execute, "COMMIT")
        async with open_checkpointer(home):
            pass


async def test_a_postgres_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://127.0.0.1:9/none")
    with pytest.raises(HomeError, match="cannot use PostgreSQL") as caught:
        async with open_checkpointer(find_home(tmp_path)):
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.postgres
async def test_servers_that_start_together_make_the_tables_once(tmp_path, monkeypatch, postgres_url):
    monkeypatch.setenv(POSTGRES_VARIABLE, postgres_url)

    async def begin(number: int) -> None:
        async with open_checkpointer(find_home(tmp_path)) as saver:
            config = {"configurable": {"thread_id": f"run-{number}"}}
            await counting().compile(checkpointer=saver).ainvoke({"count": number}, config)

    await asyncio.gather(*(begin(number) for number in range(4)))
