"""The command line: what it prints, what it refuses, and how it says so."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from graph.cli.entry import run
from graph.cli.output import program
from graph.cli.settings import run_context
from memory_store.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def accelopt(home, capsys, monkeypatch):
    """Run a command line; gives exit code, standard output and standard error."""
    monkeypatch.delenv("ACCELOPT_DEBUG", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def refused(said: tuple[int, str, str]) -> str:
    """The one line of a command that failed."""
    code, out, err = said
    assert code not in (0, None), out
    assert err.startswith("error: ") and err.count("\n") == 1, err
    assert "Traceback" not in out + err
    return err.removeprefix("error: ").strip()


def test_help_names_every_command_and_comes_at_once(home):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", "from graph.cli import main; main()", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of the processor's time: others may be at work on it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    for command in (
        "problems",
        "optimize",
        "resume",
        "evaluate",
        "profile",
        "runs",
        "cost",
        "report",
        "doctor",
        "memory",
    ):
        assert command in done.stdout


def test_help_loads_nothing_heavy(home):
    heavy = "langgraph chromadb openai sqlalchemy plotly numpy pydantic".split()
    code = (
        "import sys\nfrom graph.cli.entry import run\nrun(['--help'])\n"
        f"print('LOADED', [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "optimize slu",
        "evaluate {kernel} --problem slu",
        "profile {kernel} --problem slu",
    ],
)
def test_an_unknown_problem_is_answered_with_the_nearest(accelopt, tmp_path, line):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import neuronxcc.nki as nki\n")
    assert "did you mean silu" in refused(accelopt(*line.format(kernel=kernel).split()))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("optimize", "name a problem"),
        ("optimize silu --kernel k.py", "--reference"),
        ("optimize silu --preset fast", "no preset 'fast'; there are paper, quick"),
        ("optimize silu --beam 0", "beam cannot be 0: it should be"),
        ("optimize silu --set beem=3", "no setting beem; did you mean beam?"),
        ("optimize silu --set beem", "NAME=VALUE"),
        ("optimize silu --model boss=x", "no role 'boss'"),
        ("optimize silu --base-url http://127.0.0.1:1/v1", "--base-url needs --model"),
        ("optimize silu --price cheap", "MODEL=IN/OUT"),
        ("optimize silu --target trn9", "'--target': 'trn9' is not one of"),
        ("evaluate", "Missing argument"),
        ("evaluate nothing.py --problem silu", "cannot read the kernel nothing.py: No such file"),
        ("profile . --problem silu", "cannot read the kernel .: Is a directory"),
        ("resume nothing", "no runs yet"),
        ("report nothing", "no runs yet"),
        ("memory show abc", "there is no experience 'abc'"),
        ("optimise silu", "optimise"),
    ],
)
def test_misuse_is_one_line_that_says_what_to_do(accelopt, line, told):
    assert told in refused(accelopt(*line.split()))


def test_a_kernel_needs_something_to_be_measured_by(accelopt, tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("x = 1\n")
    assert "--problem NAME" in refused(accelopt("evaluate", str(kernel)))
    both = ("--problem", "silu", "--reference", str(kernel))
    assert "not both" in refused(accelopt("evaluate", str(kernel), *both))


@pytest.mark.parametrize(
    ("content", "told"), [(b"\xff\xfe\x00", "not a text"), (b"x" * (2 << 20), "1 MiB"), (b" \n", "is empty")]
)
def test_a_file_that_is_no_kernel_is_refused_before_any_work(accelopt, tmp_path, content, told):
    kernel = tmp_path / "kernel.py"
    kernel.write_bytes(content)
    assert told in refused(accelopt("evaluate", str(kernel), "--problem", "silu"))


def test_the_help_that_answers_a_bare_command_is_no_error(accelopt):
    code, out, err = accelopt()
    assert code == 2 and "Usage: accelopt" in out and err == ""


def test_ctrl_c_is_told_wherever_it_falls(accelopt, monkeypatch):
    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr("graph.cli.runs.open_ledger", pressed)
    code, out, err = accelopt("runs")
    assert code == 130 and out == "" and err.startswith("error: interrupted; ")


@pytest.mark.parametrize("command", [("evaluate",), ("optimize", "--kernel")])
def test_a_reference_that_is_none_is_named_by_its_file(accelopt, tmp_path, command):
    kernel, reference = tmp_path / "kernel.py", tmp_path / "my ref.py"
    kernel.write_text("x = 1\n")
    for text, told in (("def forward(x): return x", "defines no function get_inputs()"), ("(", "line 1")):
        reference.write_text(text)
        said = refused(accelopt(*command, str(kernel), "--reference", str(reference)))
        assert str(reference) in said and told in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('problems = ["slu"]', "unknown problem 'slu'"),
        ('problems = ["silu"]\n[variants.a]\nmemry = "off"', "variant a: there is no setting memry"),
        ('problems = ["silu"]\npreset = "fast"', "no preset 'fast'"),
        ('problems = ["silu"]\nvariant = 1', "there is no setting variant; did you mean variants?"),
    ],
)
def test_what_is_wrong_with_an_ablation_is_told_with_its_file(accelopt, tmp_path, text, told):
    spec = tmp_path / "a.toml"
    spec.write_text(f'name = "a"\n{text}\n')
    assert refused(accelopt("ablate", str(spec))).startswith(f"{spec}: {told}")


def test_a_table_that_cannot_be_written_is_told_before_the_runs(accelopt, tmp_path):
    spec = tmp_path / "a.toml"
    spec.write_text('name = "a"\nproblems = ["silu"]\n')
    assert "is a folder" in refused(accelopt("ablate", str(spec), "--csv", str(tmp_path)))


def test_a_refusal_as_json_is_one_document_too(accelopt):
    code, out, err = accelopt("optimize", "slu", "--json")
    assert code == 1 and "did you mean silu" in json.loads(out)["error"] and err.count("\n") == 1


def test_a_home_that_cannot_be_written_is_named_with_the_way_out(accelopt, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("ACCELOPT_HOME", str(blocked / "home"))
    told = refused(accelopt("optimize", "silu", "--small", "--iterations", "0"))
    assert str(blocked) in told and "ACCELOPT_HOME" in told


def test_looking_makes_nothing(accelopt, home, monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELOPT_HOME", str(tmp_path / "elsewhere"))
    assert accelopt("runs", "--json")[:2] == (0, "[]\n")
    assert accelopt("memory", "list", "--json")[:2] == (0, "[]\n")
    assert not (tmp_path / "elsewhere").exists()


def test_runs_tells_what_each_gained(accelopt, recorded):
    code, out, _ = accelopt("runs", "--json")
    (run,) = json.loads(out)
    assert code == 0 and run["run_id"] == "run-of-silu" and run["status"] == "finished"
    (gain,) = run["problems"]
    assert gain["speedup"] == pytest.approx(1.6) and gain["best_percent_of_peak"] == pytest.approx(
        42.7, abs=0.1
    )
    assert "1.60x" in accelopt("runs")[1]


def test_a_runs_id_stays_in_one_piece_on_a_narrow_terminal(accelopt, home, monkeypatch):
    name = "rope_single_freq_apply-20261201-133402-2d78"
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run(name, problems=["silu"], settings={}, seed=0, target="trn1", backend="simulator")
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        _, out, _ = accelopt("runs")
        assert name in out and "running" in out


def test_cost_compares_money_with_gain(accelopt, recorded):
    (row,) = json.loads(accelopt("cost", "last", "--json")[1])
    assert row["usd"] == pytest.approx(0.003)
    assert row["usd_per_percent_gained"] == pytest.approx(0.003 / 60)
    assert {one["role"] for one in row["by_role"]} == {"planner", "executor"}
    for by in ("role", "model", "round"):
        assert sum(one["usd"] for one in row[f"by_{by}"]) == pytest.approx(row["usd"])
        assert sum(one["input_tokens"] for one in row[f"by_{by}"]) == row["input_tokens"]


@pytest.mark.parametrize(("by", "told"), [("role", "planner"), ("round", "round 1")])
def test_cost_can_be_told_apart(accelopt, recorded, by, told):
    assert told in accelopt("cost", "last", "--by", by)[1]
    assert told not in accelopt("cost", "last")[1]


def test_report_writes_into_the_runs_folder(accelopt, recorded, home):
    code, out, _ = accelopt("report", "run-of", "--json")
    path = Path(json.loads(out)["report_path"])
    assert code == 0 and path == home.run_path("run-of-silu") / "report.html" and path.stat().st_size > 1e6


def test_an_unknown_run_is_said_with_where_runs_are_listed(accelopt, recorded):
    assert "accelopt runs" in refused(accelopt("report", "nothing"))


def test_models_prices_and_settings_come_together():
    context = run_context(
        "quick",
        {"beam": 2, "caps.usd": 1.5},
        models=["a", "b", "summarizer=c"],
        base_url="http://127.0.0.1:9/v1",
        api_key_env=None,
        prices=["a=0.15/0.60"],
        assignments=["planner.temperature=0.8", "memory=paper", "fixes=2"],
    )
    assert context.planner.models == ("a", "b") and context.summarizer.models == ("a", "b", "c")
    assert context.executor.base_url == "http://127.0.0.1:9/v1" and context.planner.temperature == 0.8
    assert (context.beam, context.caps.usd, context.memory, context.fixes) == (2, 1.5, "paper", 2)
    assert context.prices["a"].output == 0.60


def test_the_quick_preset_is_the_default_and_paper_is_the_whole_search():
    nothing = {"models": [], "base_url": None, "api_key_env": None, "assignments": []}
    paper = run_context("paper", {}, **nothing)
    assert (paper.beam, paper.plans, paper.samples, paper.iterations) == (6, 12, 2, 16)


def test_a_strangers_package_under_one_of_our_names_is_told_from_ours(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise SystemExit('a stranger ran')\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
         "from graph.cli import main; main()", "runs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "a stranger's package 'tools'" in done.stderr and "Traceback" not in done.stderr


def test_hints_name_the_program_as_the_shell_finds_it(monkeypatch, tmp_path):
    command = tmp_path / ".venv" / "bin" / "accelopt"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(command)])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program() == ".venv/bin/accelopt"
    monkeypatch.setenv("PATH", str(command.parent))
    assert program() == "accelopt"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert program() == "accelopt"
