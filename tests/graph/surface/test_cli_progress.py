"""What a person sees while a search works."""

import io

import pytest
from rich.console import Console

from graph.cli.progress import Progress

STARTED = {
    "event": "run_started",
    "run_id": "r1",
    "problem": "silu",
    "target": "trn1",
    "baseline_latency_ms": 2.0,
    "baseline_percent_of_peak": 26.7,
    "iterations": 2,
}
DRAFT = {"event": "evaluated", "round": 1, "candidate": 0, "plan": 0, "sample": 0, "kernel_id": "k"}
GOOD = {**DRAFT, "status": "correct", "latency_ms": 1.6, "speedup": 1.25, "error": None}
BAD = {
    **DRAFT,
    "plan": 1,
    "status": "compile_error",
    "latency_ms": None,
    "speedup": None,
    "error": "line 3: no [such] API",
}
FINISHED = {
    "event": "round_finished",
    "round": 1,
    "best_kernel_id": "k",
    "best_latency_ms": 1.6,
    "best_percent_of_peak": 33.3,
    "tried": 2,
    "correct": 1,
}


def shown(console: Console, thing: object) -> str:
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


@pytest.fixture
def paper():
    """A file, as far as Rich is concerned."""
    return Console(file=io.StringIO(), width=100)


def test_a_file_gets_a_line_a_round(paper):
    with Progress(paper, beam=1, plans=2, samples=1) as progress:
        for event in (STARTED, {"event": "round_started", "round": 1, "candidates": 1}, GOOD, BAD, FINISHED):
            progress(event)
    lines = paper.file.getvalue().splitlines()
    assert lines[0] == "silu on trn1: baseline 2 ms, 26.7 % of peak; run r1"
    assert lines[1].strip().startswith("round 1/2: 2 tried, 1 correct, best 1.6 ms (1.25x), 33.3 % of peak")
    assert len(lines) == 2


def test_a_terminal_shows_round_counts_best_and_time_left(paper):
    progress = Progress(paper, beam=1, plans=2, samples=1)
    assert "first kernel" in shown(paper, progress)
    for event in (STARTED, {"event": "round_started", "round": 1, "candidates": 1}, GOOD, BAD):
        progress(event)
    panel = shown(paper, progress)
    assert "round 1/2" in panel and "2 kernels tried, 1 correct" in panel
    assert "1.6 ms (1.25x" in panel and "left" in panel
    # Text of a model or a compiler is text, square brackets included.
    assert "no [such] API" in panel


def test_a_notice_is_shown_wherever_people_look(paper):
    progress = Progress(paper, beam=1, plans=2, samples=1)
    progress(STARTED)
    progress({"event": "paused", "message": "the endpoint is down, waiting"})
    assert "waiting" in shown(paper, progress) and "waiting" in paper.file.getvalue()


def test_events_of_a_later_version_are_passed_over(paper):
    Progress(paper, beam=1, plans=1, samples=1)({"event": "something_new"})


def test_a_resumed_run_needs_no_start_to_be_shown(paper):
    progress = Progress(paper, beam=1, plans=1, samples=1)
    progress({"event": "round_started", "round": 3, "candidates": 1})
    progress(GOOD)
    progress(FINISHED)
    assert "1 kernel tried" in shown(paper, progress)


def test_the_head_of_the_panel_stays_one_line_on_a_narrow_terminal():
    for width in (72, 80, 200):
        narrow = Console(file=io.StringIO(), width=width)
        progress = Progress(narrow, beam=1, plans=2, samples=1)
        progress({**STARTED, "problem": "rope_single_freq_apply"})
        progress({"event": "round_started", "round": 1, "candidates": 1})
        head, figures, *_ = shown(narrow, progress).splitlines()
        assert "round 1/2" in head and "time left: not known yet" in head and "kernels tried" in figures


def test_a_run_taken_up_again_is_shown_from_where_it_stood(paper):
    facts = {
        **STARTED,
        "round": 1,
        "best_latency_ms": 1.6,
        "tried": [(1, "0.0.0", True), (1, "0.1.0", False)],
    }
    progress = Progress(paper, beam=1, plans=2, samples=1, facts=facts)
    panel = shown(paper, progress)
    assert "round 1/2" in panel and "2 kernels tried, 1 correct" in panel and "1.6 ms (1.25x)" in panel
    # A kernel of the interrupted round that is told again counts once.
    progress({"event": "round_started", "round": 1, "candidates": 1})
    progress(GOOD)
    assert "2 kernels tried, 1 correct" in shown(paper, progress)
    progress({**GOOD, "round": 2})
    assert "3 kernels tried, 2 correct" in shown(paper, progress)
