from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest

from memory_store.errors import LedgerError, LedgerVersionError, UnknownRun
from memory_store.home import sqlite_url
from memory_store.ledger import (
    CandidateRecord,
    Direction,
    Ledger,
    ModelCall,
    PlanRecord,
    RunStatus,
    Spending,
)

RUN = {"problems": ["silu"], "settings": {"beam": 6}, "seed": 7, "target": "trn1", "backend": "simulator"}
CONDITIONS = {"problem": "silu@1", "backend": "simulator", "settings_digest": "d", "stage": "full"}


@pytest.fixture
def run(ledger):
    """A run of one problem, with a baseline and two generations of kernels."""
    ledger.start_run("run-1", **RUN)
    kernels = {name: ledger.put_kernel(f"# {name}", dialect="nki") for name in ("base", "a", "b", "c", "bad")}
    ledger.put_problem("run-1", "silu", baseline_kernel_id=kernels["base"], baseline_latency_ms=4.0)
    candidates = [
        (0, "baseline", "base", None, "correct", 4.0),
        (1, "0.0.0", "a", "base", "correct", 3.0),
        (1, "0.0.1", "bad", "base", "compile_error", None),
        (1, "0.1.0", None, "base", "rejected", None),
        (2, "0.0.0", "b", "a", "correct", 2.0),
        (2, "0.0.1", "c", "a", "suspect", 0.1),
        (2, "0.1.0", "a", "b", "correct", 3.0),
    ]
    for round_number, slot, kernel, parent, status, latency_ms in candidates:
        ledger.put_candidate(
            CandidateRecord(
                run_id="run-1",
                problem="silu",
                round=round_number,
                slot=slot,
                kernel_id=kernels.get(kernel),
                parent_id=kernels.get(parent),
                status=status,
                latency_ms=latency_ms,
                repairs=1 if status == "compile_error" else 0,
            )
        )
    return kernels


def call(key: str, **fields) -> ModelCall:
    return ModelCall(run_id="run-1", key=key, **{"role": "planner", "model": "m", **fields})


# Runs


def test_starting_a_run_twice_keeps_the_first(ledger):
    first = ledger.start_run("run-1", **RUN)
    again = ledger.start_run("run-1", **{**RUN, "seed": 8})
    assert again == first
    assert first.seed == 7
    assert first.settings == {"beam": 6}
    assert first.status is RunStatus.RUNNING
    assert first.started_at.tzinfo is UTC


def test_a_run_is_found_by_the_beginning_of_its_id_or_as_the_last(ledger):
    for name in ("abc-1", "abd-2", "xyz-3"):
        ledger.start_run(name, **RUN)
    assert ledger.find_run("abd").id == "abd-2"
    assert ledger.find_run("abc-1").id == "abc-1"
    assert ledger.find_run("last").id == "xyz-3"
    assert [run.id for run in ledger.runs(limit=2)] == ["xyz-3", "abd-2"]
    with pytest.raises(UnknownRun, match="several runs begin with ab: abc-1, abd-2"):
        ledger.find_run("ab")
    for nothing in ("nope", "", "%"):
        with pytest.raises(UnknownRun, match="no run"):
            ledger.find_run(nothing)


def test_an_empty_ledger_has_no_last_run(ledger):
    with pytest.raises(UnknownRun, match="no run yet"):
        ledger.find_run("last")


def test_a_run_ends_and_can_be_taken_up_again(ledger):
    ledger.start_run("run-1", **RUN)
    ledger.set_run_status("run-1", RunStatus.CAPPED, "2 USD spent of 2")
    ended = ledger.run("run-1")
    assert (ended.status, ended.note) == (RunStatus.CAPPED, "2 USD spent of 2")
    assert ended.ended_at is not None
    ledger.set_run_status("run-1", RunStatus.RUNNING)
    assert ledger.run("run-1").ended_at is None
    assert ledger.runs(status=RunStatus.CAPPED) == []
    with pytest.raises(UnknownRun):
        ledger.set_run_status("run-2", RunStatus.FINISHED)
    with pytest.raises(UnknownRun):
        ledger.run("run-2")


def test_the_time_worked_adds_up_over_the_periods_of_a_run_whatever_the_clock_says(ledger, monkeypatch):
    ledger.start_run("run-1", **RUN)
    first = ledger.begin_period("run-1")
    second = ledger.begin_period("run-1")
    assert first != second
    assert ledger.wall_s("run-1") < 1.0
    monkeypatch.setattr("memory_store.ledger.runs.now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    ledger.touch_period(first, 4.0)
    ledger.touch_period(first, 10.0)
    ledger.touch_period(second, 40.0)
    assert ledger.wall_s("run-1") == pytest.approx(50.0)
    assert ledger.wall_s("unknown") == 0.0


# Kernels and evaluations


def test_a_kernel_is_kept_once_under_the_hash_of_its_content(ledger):
    first = ledger.put_kernel("import nki\n", dialect="nki")
    assert ledger.put_kernel("import nki\n", dialect="other") == first
    assert len(first) == 16
    kept = ledger.kernel(first)
    assert (kept.source, kept.dialect) == ("import nki\n", "nki")
    assert ledger.kernel("unknown") is None
    assert set(ledger.kernels([first, "unknown", first])) == {first}


def test_a_text_with_anything_in_it_comes_back_as_it_was(ledger):
    odd = "tab\t nul\x00 ümlaut 🙂 lone \ud800 end"
    ledger.start_run("run-1", **RUN)
    kernel = ledger.put_kernel(odd)
    assert ledger.kernel(kernel).source == odd
    ledger.put_model_call(call("k", answer=odd, prompt=[{"role": "user", "content": odd}], error=odd))
    kept = ledger.model_call("run-1", "k")
    assert kept.answer == odd
    assert kept.prompt[0]["content"] == odd
    assert "ümlaut" in kept.error


def test_of_two_evaluations_under_the_same_conditions_the_first_counts(ledger):
    kernel = ledger.put_kernel("k")
    assert ledger.evaluation(kernel, **CONDITIONS) is None
    first = ledger.put_evaluation(kernel, **CONDITIONS, status="correct", latency_ms=1.0, result={"n": 1})
    again = ledger.put_evaluation(kernel, **CONDITIONS, status="timeout", latency_ms=None, result={"n": 2})
    assert again == first
    assert ledger.evaluation(kernel, **CONDITIONS).result == {"n": 1}


@pytest.mark.parametrize("changed", list(CONDITIONS))
def test_other_conditions_are_another_evaluation(ledger, changed):
    kernel = ledger.put_kernel("k")
    ledger.put_evaluation(kernel, **CONDITIONS, status="correct", latency_ms=1.0, result={})
    assert ledger.evaluation(kernel, **{**CONDITIONS, changed: "other"}) is None


def test_an_evaluation_of_a_kernel_that_is_not_kept_is_refused(ledger):
    with pytest.raises(LedgerError, match="refers to something not in it"):
        ledger.put_evaluation("unknown", **CONDITIONS, status="correct", latency_ms=1.0, result={})


# The search


def test_the_lineage_of_a_kernel_goes_back_to_the_baseline_by_its_first_way(ledger, run):
    steps = ledger.lineage("run-1", "silu", run["b"])
    assert [step.kernel_id for step in steps] == [run["base"], run["a"], run["b"]]
    assert [step.round for step in steps] == [0, 1, 2]
    # `a` was reached again from `b` in round 2: that is not how it came about.
    assert [step.kernel_id for step in ledger.lineage("run-1", "silu", run["a"])] == [run["base"], run["a"]]
    assert ledger.lineage("run-1", "silu", "unknown") == []


def test_the_best_kernel_is_the_fastest_correct_one_until_one_is_written_down(ledger, run):
    best = ledger.best("run-1", "silu")
    assert (best.kernel_id, best.latency_ms, best.round) == (run["b"], 2.0, 2)
    ledger.set_best("run-1", "silu", kernel_id=run["a"], latency_ms=3.0, round=1, rounds_done=1)
    assert ledger.best("run-1", "silu").kernel_id == run["a"]
    kept = ledger.problem("run-1", "silu")
    assert (kept.baseline_latency_ms, kept.rounds_done) == (4.0, 1)
    assert ledger.best("run-1", "other") is None
    assert ledger.problem("run-1", "other") is None


def test_counts_leave_the_baseline_and_empty_answers_out_and_tell_repairs_apart(ledger, run):
    counts = ledger.counts("run-1")
    assert (counts.evaluated, counts.correct, counts.repairs) == (5, 3, 1)
    assert counts.by_status == {"compile_error": 1, "correct": 3, "rejected": 1, "suspect": 1}
    assert ledger.counts("run-1", problem="other").evaluated == 0


def test_a_place_written_again_is_one_row_and_the_later_one_counts(ledger, run):
    before = ledger.candidates("run-1", round=1)
    ledger.put_candidate(before[0].model_copy(update={"latency_ms": 2.9}))
    after = ledger.candidates("run-1", round=1)
    assert len(after) == len(before)
    assert after[0].latency_ms == 2.9
    assert [one.status for one in ledger.candidates("run-1", status="suspect")] == ["suspect"]


def test_selecting_again_unselects_what_was_selected_before(ledger, run):
    ledger.mark_selected("run-1", "silu", 1, ["0.0.0", "0.0.1"])
    ledger.mark_selected("run-1", "silu", 1, ["0.1.0"])
    assert [one.slot for one in ledger.candidates("run-1") if one.selected] == ["0.1.0"]


def test_a_plan_is_kept_once(ledger, run):
    plan = PlanRecord(run_id="run-1", problem="silu", round=1, parent_id=run["base"], index=0, plan={"t": 1})
    ledger.put_plan(plan)
    ledger.put_plan(plan.model_copy(update={"plan": {"t": 2}}))
    assert ledger.plans("run-1") == [plan]
    assert ledger.plans("run-1", round=2) == []


def test_problems_of_a_run_keep_what_they_were_defined_by(ledger):
    ledger.start_run("run-1", **RUN)
    ledger.put_problem("run-1", "mine", definition={"reference": "def forward(x): return x"})
    ledger.put_problem("run-1", "mine", definition={"reference": "other"})
    (kept,) = ledger.problems("run-1")
    assert kept.definition == {"reference": "def forward(x): return x"}
    assert kept.best_kernel_id is None


# Model calls


def test_a_call_answered_twice_is_paid_once_and_keeps_its_first_answer(ledger):
    ledger.start_run("run-1", **RUN)
    first = ledger.put_model_call(call("planner/1/0", answer="one", input_tokens=10, usd=0.5))
    again = ledger.put_model_call(call("planner/1/0", answer="two", input_tokens=99, usd=9.0))
    assert again == first
    assert ledger.total_spending("run-1").usd == 0.5


def test_a_call_comes_back_word_for_word(ledger):
    prompt = [
        {"role": "system", "content": "# Rules\n" + "be short\n" * 200 + "## More\n" + "x" * 900},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "profile", "args": {"k": 1}}]},
        {"role": "tool", "content": [{"type": "text", "text": "parts"}], "tool_call_id": "1"},
    ]
    asked = call(
        "k", prompt=prompt, answer="yes", reasoning="because", extra={"tool_calls": [1]}, latency_s=0.25
    )
    ledger.start_run("run-1", **RUN)
    ledger.put_model_call(asked)
    assert ledger.model_call("run-1", "k") == asked
    assert ledger.model_calls("run-1") == [asked]
    assert ledger.model_call("run-1", "other") is None


def test_spending_adds_up_by_any_grouping(ledger):
    ledger.start_run("run-1", **RUN)
    ledger.start_run("run-2", **RUN)
    rows = [
        ("a", "planner", "big", 1, 100, 10, 0.4, ""),
        ("b", "planner", "big", 2, 200, 20, 0.8, ""),
        ("c", "executor", "small", 1, 1000, 500, 0.1, "empty"),
    ]
    for key, role, model, round_number, tokens_in, tokens_out, usd, error in rows:
        ledger.put_model_call(
            call(
                key,
                role=role,
                model=model,
                round=round_number,
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                cached_tokens=5,
                reasoning_tokens=2,
                usd=usd,
                error=error,
            )
        )
    total = ledger.total_spending("run-1")
    assert (total.calls, total.failed_calls, total.tokens) == (3, 1, 1830)
    assert (total.cached_tokens, total.reasoning_tokens, total.usd) == (15, 6, pytest.approx(1.3))
    by_role = {one.role: one for one in ledger.spending("run-1", by=("role",))}
    assert by_role["planner"].input_tokens == 300
    assert by_role["executor"].usd == pytest.approx(0.1)
    grid = [
        (one.role, one.model, one.round) for one in ledger.spending("run-1", by=("role", "model", "round"))
    ]
    assert grid == [("executor", "small", 1), ("planner", "big", 1), ("planner", "big", 2)]
    assert ledger.total_spending("run-2") == Spending()
    assert ledger.spending("run-2", by=("role",)) == []


def test_prompts_that_share_sections_take_little_more_room_than_one(ledger):
    ledger.start_run("run-1", **RUN)
    sections = "".join(f"# Section {i}\n{'words that repeat ' * i * 40}\n" for i in range(1, 12))
    for i in range(50):
        messages = [{"role": "user", "content": f"{sections}# Plan\nstep {i}\n"}]
        ledger.put_model_call(call(f"k{i}", prompt=messages))
    with ledger._database.read() as session:
        count = session.connection().exec_driver_sql("SELECT count(*) FROM text_blocks").scalar_one()
    assert count <= 11 + 50
    assert ledger.model_call("run-1", "k7").prompt[0]["content"].endswith("# Plan\nstep 7\n")


# Experiences and events


def test_a_round_that_runs_again_sees_the_experiences_it_saw_first(ledger, make_experience):
    ledger.start_run("run-1", **RUN)
    seen, later = [make_experience(2), make_experience(1)], [make_experience(3)]
    key = ("run-1", "silu", 1, Direction.USED)
    assert ledger.experience_list(*key) is None
    ids = [one.id for one in seen]
    assert ledger.put_experience_list(*key, seen) == ids
    assert ledger.put_experience_list(*key, later) == ids
    assert ledger.experience_list(*key) == seen
    assert ledger.put_experience_list(*key, [], scope="candidate-2") == []
    assert ledger.experience_list(*key, scope="candidate-2") == []
    assert ledger.experience_ids("run-1", Direction.USED) == {
        ("silu", 1, ""): ids,
        ("silu", 1, "candidate-2"): [],
    }
    assert ledger.experience_ids("run-1", Direction.WRITTEN) == {}
    assert ledger.experiences([ids[1], "unknown", ids[0]]) == seen[::-1]


def test_an_event_is_told_once_and_in_order(ledger):
    ledger.start_run("run-1", **RUN)
    ledger.add_event("run-1", "round/1", "round", round=1, payload={"best_ms": 3.0})
    ledger.add_event("run-1", "round/1", "round", round=1, payload={"best_ms": 9.0})
    ledger.add_event("run-1", "round/2", "round", round=2)
    ledger.add_event("run-1", "pause", "notice")
    told = ledger.events("run-1")
    assert [one.payload for one in told] == [{"best_ms": 3.0}, {}, {}]
    assert [one.round for one in ledger.events("run-1", kind="round", after_id=told[0].id)] == [2]


# Several threads and processes


def test_threads_write_at_once_without_losing_anything(ledger):
    ledger.start_run("run-1", **RUN)

    def work(thread: int) -> None:
        for i in range(8):
            kernel = ledger.put_kernel(f"{thread}/{i}")
            ledger.put_model_call(call(f"{thread}/{i}", input_tokens=1))
            ledger.put_evaluation(kernel, **CONDITIONS, status="correct", latency_ms=1.0, result={})
            ledger.put_kernel("everybody's")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.total_spending("run-1").input_tokens == 64


def test_processes_make_and_write_one_ledger_at_once(ledger_url):
    script = """
import sys
from memory_store.ledger import Ledger, ModelCall
with Ledger(sys.argv[1]) as ledger:
    ledger.start_run("run-1", problems=[], settings={}, seed=0, target="trn1", backend="simulator")
    for i in range(12):
        for key in (f"{sys.argv[2]}/{i}", f"both/{i}"):
            ledger.put_model_call(ModelCall(run_id="run-1", key=key, role="r", model="m", input_tokens=1))
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, ledger_url, who], stderr=subprocess.PIPE, env={"PYTHONPATH": "."}
        )
        for who in ("ann", "bob", "cy")
    ]
    for process in writers:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    with Ledger(ledger_url) as ledger:
        assert ledger.total_spending("run-1").input_tokens == 48


def test_a_killed_writer_leaves_every_call_it_reported(ledger_url):
    script = """
import sys
from memory_store.ledger import Ledger, ModelCall
ledger = Ledger(sys.argv[1])
ledger.start_run("run-1", problems=[], settings={}, seed=0, target="trn1", backend="simulator")
for i in range(100000):
    ledger.put_model_call(ModelCall(run_id="run-1", key=str(i), role="r", model="m", answer="x" * 5000))
    print(i, flush=True)
"""
    victim = subprocess.Popen(
        [sys.executable, "-c", script, ledger_url], stdout=subprocess.PIPE, env={"PYTHONPATH": "."}
    )
    for _ in range(40):
        victim.stdout.readline()
    victim.kill()
    reported = 39 + len(victim.communicate()[0].split())
    with Ledger(ledger_url) as ledger:
        keys = {int(one.key) for one in ledger.model_calls("run-1")}
        assert set(range(reported + 1)) <= keys
        assert len(keys) - (reported + 1) <= 1


# Copies


def test_a_copied_run_is_whole_and_copying_again_changes_nothing(ledger, run, tmp_path, make_experience):
    ledger.put_model_call(call("k", prompt=[{"role": "user", "content": "# A\n" + "a" * 999}], usd=0.5))
    ledger.put_experience_list("run-1", "silu", 1, Direction.WRITTEN, [make_experience(1)])
    ledger.add_event("run-1", "round/1", "round", round=1)
    ledger.begin_period("run-1")
    ledger.put_evaluation(run["a"], **CONDITIONS, status="correct", latency_ms=3.0, result={"n": 1})
    ledger.set_best("run-1", "silu", kernel_id=run["b"], latency_ms=2.0, round=2, rounds_done=2)
    ledger.start_run("run-2", **RUN)
    with Ledger(f"sqlite:///{tmp_path / 'copy.sqlite'}") as copy:
        for _ in range(2):
            ledger.copy_run("run-1", copy)
        assert [one.id for one in copy.runs()] == ["run-1"]
        assert copy.run("run-1") == ledger.run("run-1")
        assert copy.problems("run-1") == ledger.problems("run-1")
        assert copy.candidates("run-1") == ledger.candidates("run-1")
        assert copy.model_calls("run-1") == ledger.model_calls("run-1")
        assert copy.evaluation(run["a"], **CONDITIONS) == ledger.evaluation(run["a"], **CONDITIONS)
        assert copy.kernels(run.values()) == ledger.kernels(run.values())
        assert [one.key for one in copy.model_calls("run-1")] == ["k"]
        assert len(copy.events("run-1")) == 1
        assert copy.experience_list("run-1", "silu", 1, Direction.WRITTEN) == [make_experience(1)]
        with pytest.raises(UnknownRun):
            ledger.copy_run("run-9", copy)


# What cannot be opened


def test_a_ledger_of_another_version_is_refused(ledger, ledger_url):
    for version, age in (("0", "an older"), ("999", "a newer")):
        with ledger._database.write() as session:
            session.connection().exec_driver_sql(f"UPDATE ledger_meta SET value = '{version}'")
        with pytest.raises(LedgerVersionError, match=f"schema {version}, written by {age} version") as caught:
            Ledger(ledger_url)
        assert "\n" not in str(caught.value)


def test_tables_of_the_same_names_without_a_version_are_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "ledger.sqlite") as raw:
        raw.execute("CREATE TABLE runs (x)")
    with pytest.raises(LedgerVersionError):
        Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")


def test_what_cannot_be_opened_is_one_line_that_says_where_and_why(tmp_path):
    (tmp_path / "text").write_text("this is not a database, but long enough to look like one " * 50)
    cases = {
        f"sqlite:///{tmp_path / 'missing' / 'ledger.sqlite'}": "does not exist",
        f"sqlite:///{tmp_path}": "it is a folder",
        f"sqlite:///{tmp_path / 'text'}": "not a database",
        "sqlite://": "needs a file",
        "mysql+nothing://host/db": "only sqlite and postgresql",
        "no url": "not a database URL",
    }
    for url, reason in cases.items():
        with pytest.raises(LedgerError, match=reason) as caught:
            Ledger(url)
        assert "\n" not in str(caught.value)


def test_a_ledger_opened_to_be_read_is_left_as_it_was(tmp_path):
    kept = tmp_path / "kept 100% #here?"
    kept.mkdir()
    url = sqlite_url(kept / "ledger.sqlite")
    with Ledger(url) as ledger:
        ledger.start_run("run-1", **RUN)
    before = (kept / "ledger.sqlite").read_bytes()
    with Ledger(url, readonly=True) as ledger:
        assert ledger.run("run-1").seed == 7
        with pytest.raises(LedgerError, match="readonly"):
            ledger.put_kernel("x")
    assert (kept / "ledger.sqlite").read_bytes() == before
    assert [file.name for file in kept.iterdir()] == ["ledger.sqlite"]
    with pytest.raises(LedgerError, match="unable to open"):
        Ledger(f"sqlite:///{tmp_path / 'none.sqlite'}", readonly=True)
