"""`accelopt fidelity` says how near the simulator comes to measured hardware, and on whose kernels."""

import json

from graph.cli.entry import run
from nkibench.registry import problem_names


def test_without_a_checkout_our_baselines_stand_in_and_the_report_says_so(capsys) -> None:
    assert run(["fidelity", "--no-leave-one-out", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kernels"] == "ours" and not report["same_kernels"]
    assert {one["problem"] for one in report["problems"]} == set(problem_names())
    assert set(report["summary"]) == {
        "latency_mape",
        "latency_max_error",
        "latency_spearman",
        "counters_within_5_percent",
        "engine_time_mae",
    }


def test_people_read_a_warning_that_the_kernels_are_not_the_measured_ones(capsys) -> None:
    assert run(["fidelity", "--no-leave-one-out"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Other kernels than the measured ones" in said and "Rank correlation" in said


def test_a_folder_that_is_no_checkout_is_one_line(capsys, tmp_path) -> None:
    assert run(["fidelity", "--nkibench", str(tmp_path), "--no-leave-one-out"]) != 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and str(tmp_path) in said.err
