"""`accelopt optimize` with several problems: one bill, one resume. On the real simulator, at the small shapes."""

import json

import pytest

import graph.run
from graph.cli.entry import run
from graph.run import RunStopped
from memory_store.ledger import Ledger, RunStatus

SIZE = ["--small", "--beam", "1", "--plans", "2", "--samples", "1", "--iterations", "2"]
WORK = ["silu", "rmsnorm_matmul", "mamba"]
"""Each tries 2 kernels a round, 4 in all."""


@pytest.fixture(autouse=True)
def quiet(home, monkeypatch):
    """A home of its own, and no tracebacks."""
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)


def said(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_limit_is_for_all_problems_together_and_a_higher_one_takes_up_the_rest(home, capsys):
    assert run(["optimize", *WORK, *SIZE, "--max-kernels", "5", "--json"]) == 0
    first, second, third = said(capsys)
    assert [one["kernels_evaluated"] for one in (first, second)] == [4, 1]
    assert second["stopped"] and third["speedup"] is None
    assert third["stopped"] == "the cap of 5 kernels for all problems together is reached"

    assert run(["resume", "last", "--max-kernels", "12", "--json"]) == 0
    assert [one["kernels_evaluated"] for one in said(capsys)] == [4, 4, 4], "a round was left short"
    with Ledger(home.ledger_url) as ledger:
        assert [one.status for one in reversed(ledger.runs())] == [
            RunStatus.FINISHED,
            RunStatus.FINISHED,
            RunStatus.FINISHED,
        ], "no run was begun twice"

    assert run(["resume", "last", "--iterations", "4", "--json"]) == 0, (
        "the limit is kept, the run that is named goes on"
    )
    assert [one["kernels_evaluated"] for one in said(capsys)] == [4, 4, 4]


def test_what_a_series_cost_is_the_sum_of_its_runs(capsys):
    assert run(["optimize", *WORK, *SIZE, "--json"]) == 0
    each = said(capsys)
    assert run(["cost", *(one["run_id"] for one in each), "--json"]) == 0
    rows = said(capsys)
    assert run(["cost", "series-", "--json"]) == 0
    (whole,) = said(capsys)
    assert whole["problems"] == WORK and whole["calls"] == sum(row["calls"] for row in rows) > 0
    assert whole["input_tokens"] == sum(row["input_tokens"] for row in rows)
    product = each[0]["speedup"] * each[1]["speedup"] * each[2]["speedup"]
    assert whole["speedup"] == pytest.approx(product ** (1 / 3))


def test_a_stopped_command_goes_on_where_it_was(home, capsys, monkeypatch):
    whole = graph.run.optimize

    def pressed(problem, context, **options):
        if problem == "rmsnorm_matmul":
            raise RunStopped("rmsnorm_matmul-1", None)
        return whole(problem, context, **options)

    monkeypatch.setattr(graph.run, "optimize", pressed)
    assert run(["optimize", *WORK, *SIZE]) == 130
    out = capsys.readouterr().out
    assert "2 of 3 problems are still to do: accelopt resume last" in out
    monkeypatch.setattr(graph.run, "optimize", whole)
    assert run(["resume", "last", "--json"]) == 0
    assert [one["kernels_evaluated"] for one in said(capsys)] == [4, 4, 4]
    with Ledger(home.ledger_url) as ledger:
        assert len(ledger.runs()) == 3


def test_an_endpoint_that_is_not_there_is_told_once(home, capsys):
    line = ["--model", "gpt", "--base-url", "http://127.0.0.1:9/v1"]
    assert run(["optimize", *WORK, *SIZE, *line]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "cannot be reached" in error
    with Ledger(home.ledger_url) as ledger:
        assert ledger.runs() == []


def test_a_replay_of_one_of_them_is_no_part_of_them(home, capsys):
    assert run(["optimize", *WORK[:2], *SIZE, "--json"]) == 0
    first, _ = said(capsys)
    assert run(["replay", first["run_id"], "--json"]) == 0
    assert said(capsys)["same"] is True
    assert run(["resume", first["run_id"], "--json"]) == 0
    assert [one["kernels_evaluated"] for one in said(capsys)] == [4, 4]
