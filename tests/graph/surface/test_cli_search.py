"""`accelopt optimize` and `resume` over stand-ins: documents, words, exit codes."""

import json
from pathlib import Path

import pytest

from graph.cli.entry import run
from graph.cli.search import RESULT_FIELDS
from memory_store.ledger import Ledger
from nodes.endpoint import EndpointError, Fault

SIZE = ["--beam", "2", "--plans", "3", "--samples", "1", "--iterations", "2"]


@pytest.fixture
def own(home, stand_in, tmp_path, monkeypatch):
    """A kernel of one's own and its reference, as files; and no traceback wanted."""
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)
    kernel, reference = tmp_path / "my kernel.py", tmp_path / "ref.py"
    kernel.write_text(stand_in.problem["kernel"])
    reference.write_text(stand_in.problem["reference"])
    return ["--kernel", str(kernel), "--reference", str(reference)]


def test_the_document_has_every_field_and_its_kernel_is_there(own, capsys):
    assert run(["optimize", *own, *SIZE, "--json"]) == 0
    said = capsys.readouterr()
    (document,) = json.loads(said.out)
    assert set(RESULT_FIELDS) <= set(document) and said.err == ""
    assert document["problem"] == "my_kernel" and document["speedup"] > 1
    assert document["speedup"] == pytest.approx(document["baseline_latency_ms"] / document["best_latency_ms"])
    assert document["kernels_evaluated"] == 3 + 6 and document["iterations"] == 2
    assert Path(document["best_kernel_path"]).read_text().startswith("from neuronxcc")


def test_people_are_told_the_gain_and_where_the_kernel_lies(own, capsys):
    assert run(["optimize", *own, *SIZE]) == 0
    out = capsys.readouterr().out
    assert "x faster" in out and "best kernel" in out and "accelopt report my_kernel-" in out
    assert out.count("\n  round ") == 2


def test_a_finished_run_can_be_taken_further(own, capsys):
    run(["optimize", *own, *SIZE, "--json"])
    (first,) = json.loads(capsys.readouterr().out)
    assert run(["resume", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best_latency_ms"] == first["best_latency_ms"]
    assert run(["resume", first["run_id"], "--iterations", "3", "--json"]) == 0
    further = json.loads(capsys.readouterr().out)
    assert further["iterations"] == 3 and further["best_latency_ms"] <= first["best_latency_ms"]


def test_a_cap_ends_the_run_in_order_and_says_so(own, capsys):
    assert run(["optimize", *own, *SIZE, "--max-kernels", "4"]) == 0
    out = capsys.readouterr().out
    assert "ended early" in out and "round 2/2 cut short: 4 tried" in out and "4 kernels tried" in out
    assert "1 round" in out and "came to nothing" not in out


def test_a_run_that_breaks_off_says_how_to_go_on(own, capsys, monkeypatch):
    from nodes.record import Record

    whole = Record.keep_selection

    async def full(self, round, slots, best):
        if round:
            raise OSError(28, "No space left on device")
        await whole(self, round, slots, best)

    with monkeypatch.context() as patch:
        patch.setattr(Record, "keep_selection", full)
        assert run(["optimize", *own, *SIZE]) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error and "Traceback" not in error
    assert "accelopt resume my_kernel-" in error
    assert run(["resume", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels_evaluated"] == 3 + 6


def test_a_home_that_cannot_be_written_can_be_read(home, own, capsys, monkeypatch, tmp_path):
    import os

    assert run(["optimize", *own, *SIZE, "--json"]) == 0
    (done,) = json.loads(capsys.readouterr().out)
    before = sorted(home.root.iterdir())
    # What it says of a read-only file system, which a test cannot mount.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    for line in (["runs"], ["cost", "last"], ["report", "last", "-o", str(tmp_path / "report.html")]):
        assert run([*line, "--json"]) == 0
        said = capsys.readouterr()
        assert said.err == "" and (done["run_id"] in said.out or "report.html" in said.out)
    assert sorted(home.root.iterdir()) == before, "something was left beside the ledger"


def test_a_run_that_had_not_begun_cannot_be_replayed(home, capsys, monkeypatch):
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("r-1", problems=["silu"], settings={}, seed=0, target="trn1", backend="simulator")
    assert run(["replay", "r-1"]) == 1
    assert "r-1 was cut off before it began: there is nothing to replay" in capsys.readouterr().err


def test_a_capped_run_replays_and_its_round_is_finished_under_a_higher_cap(own, capsys):
    assert run(["optimize", *own, *SIZE, "--max-kernels", "5", "--json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)
    assert run(["replay", first["run_id"], "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["same"] and replayed["kernels_evaluated"] == 5 and replayed["stopped"] == first["stopped"]
    assert run(["resume", first["run_id"], "--max-kernels", "100", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert (resumed["kernels_evaluated"], resumed["iterations"], resumed["stopped"]) == (9, 2, None)
    assert run(["replay", first["run_id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels_evaluated"] == 9


def test_a_problem_that_fails_leaves_the_results_of_the_others(home, stand_in, capsys, monkeypatch):
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)
    import graph.run

    whole = graph.run.optimize

    def one_breaks(problem, context, **options):
        if problem == "bmm":
            raise OSError(28, "No space left on device", "/some/file")
        return whole(stand_in.problem, context, **options)

    monkeypatch.setattr(graph.run, "optimize", one_breaks)
    assert run(["optimize", "silu", "bmm", *SIZE, "--json"]) == 1
    said = capsys.readouterr()
    good, bad = json.loads(said.out)
    assert good["speedup"] > 1 and bad["speedup"] is None
    assert bad["error"] == "/some/file: No space left on device"
    assert said.err == "error: bmm: /some/file: No space left on device\n"


def test_an_endpoint_that_is_not_there_is_named_before_anything_is_spent(own, capsys):
    line = ["--model", "gpt", "--base-url", "http://127.0.0.1:9/v1", "--json"]
    assert run(["optimize", *own, *SIZE, *line]) == 1
    (document,) = json.loads(capsys.readouterr().out)
    assert "http://127.0.0.1:9/v1 cannot be reached" in document["error"]


def test_a_hosted_model_without_a_key_is_refused(own, capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert run(["optimize", *own, *SIZE, "--model", "gpt", "--api-key-env", "NO_SUCH_KEY"]) == 1
    error = capsys.readouterr().err
    assert "NO_SUCH_KEY" in error and error.count("\n") == 1


def test_a_run_that_asks_where_nobody_can_answer_waits(own, capsys):
    assert run(["optimize", *own, *SIZE, "--set", "review_plans=true"]) == 3
    assert "accelopt resume" in capsys.readouterr().err


def test_a_replay_asks_no_model_and_comes_to_the_same_kernels(own, stand_in, capsys):
    run(["optimize", *own, *SIZE, "--json"])
    (first,) = json.loads(capsys.readouterr().out)
    asked = len(stand_in.calls)
    assert run(["replay", first["run_id"], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same"] is True and again["run_id"] != first["run_id"]
    assert again["best_latency_ms"] == first["best_latency_ms"] and len(stand_in.calls) == asked


def test_a_run_that_could_not_start_says_so_and_starts_when_resumed(own, stand_in, capsys, monkeypatch):
    import nodes.prepare

    async def away(settings):
        raise EndpointError(Fault.UNREACHABLE, "http://there cannot be reached")

    answers = nodes.prepare.check_endpoint
    monkeypatch.setattr(nodes.prepare, "check_endpoint", away)
    assert run(["optimize", *own, *SIZE]) == 1
    run(["runs", "--json"])
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["status"] == "failed"
    monkeypatch.setattr(nodes.prepare, "check_endpoint", answers)
    assert run(["resume", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["speedup"] > 1


def test_a_replay_goes_as_far_as_the_run_was_taken(own, capsys):
    run(["optimize", *own, *SIZE, "--max-kernels", "4", "--json"])
    run(["resume", "last", "--max-kernels", "100", "--iterations", "3", "--json"])
    capsys.readouterr()
    assert run(["replay", "last", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same"] is True and again["iterations"] == 3


def test_a_run_whose_device_is_missing_has_failed_and_does_not_work_for_ever(home, capsys):
    assert run(["optimize", "silu", "--small", "--backend", "neuron"]) == 1
    assert "no Neuron device" in capsys.readouterr().err
    run(["runs", "--json"])
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["status"] == "failed" and "no Neuron device" in listed["note"]
    assert [one["problem"] for one in listed["problems"]] == ["silu"]
