"""The report of a run, read from a ledger."""

import re

import pytest

from graph.report import figures, read_story
from graph.report.difference import difference
from graph.report.markup import joined, tag
from graph.report.page import _beyond, _prose, report_page, write_report


@pytest.fixture
def story(recorded):
    return read_story(recorded, "last")


def test_a_story_tells_the_gain_and_the_way_to_it(story):
    (problem,) = story.problems
    assert problem.speedup == pytest.approx(1.6)
    assert [step.title for step in problem.lineage] == ["baseline", "Widen <tiles>", "Fuse silu"]
    assert problem.best_by_round == {0: 2.0, 1: 1.6, 2: 1.25}
    assert problem.baseline.percent_of_peak == pytest.approx(26.7, abs=0.1)
    assert problem.counts.evaluated == 3
    assert problem.spending.tokens == 3700
    assert [one.title for one in problem.learned] == ["**Widen tiles**"]


def test_a_report_is_one_file_that_asks_no_network(story, tmp_path):
    page = write_report(story, tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)=["']?http""", page)
    assert "Plotly.newPlot" in page
    for told in ("1.60×", "2 → 1.25", "no such API", "compile error", "Fuse silu", "# version 2"):
        assert told in page


def test_what_a_model_wrote_cannot_become_markup(story):
    assert "Widen &lt;tiles&gt;" in report_page(story, plotly_url="/plotly.js")
    # Inside a figure's JSON, a closing tag would end the script it stands in.
    assert "Widen <tiles>" not in report_page(story, plotly_url="/plotly.js")


def test_a_served_page_shares_one_copy_of_plotly(story):
    assert len(report_page(story, plotly_url="/plotly.js")) < 200_000


def test_a_run_without_an_evaluated_baseline_has_a_report(home):
    from memory_store.ledger import Ledger

    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("new", problems=["silu"], settings={}, seed=0, target="trn1", backend="simulator")
        ledger.put_problem("new", "silu", definition={"name": "silu"})
        page = report_page(read_story(ledger, "new"), plotly_url="/plotly.js")
    assert "No kernel faster than the baseline was found." in page


def test_a_users_reference_is_not_run_to_tell_of_it(home):
    from memory_store.ledger import Ledger

    stranger = {"name": "mine", "kernel": "k = 1", "reference": "raise SystemExit('it ran')"}
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("own", problems=["mine"], settings={}, seed=0, target="trn1", backend="simulator")
        ledger.put_problem("own", "mine", definition=stranger)
        assert read_story(ledger, "own").problems[0].work is None


def test_attributes_and_text_are_escaped():
    assert tag("a", "<b>", joined("&"), href='"x"', hidden=True, title=None) == (
        '<a href="&quot;x&quot;" hidden>&lt;b&gt;&amp;</a>'
    )


def test_equal_kernels_have_no_difference():
    assert "no difference" in difference("a\nb\n", "a\nb\n")
    assert 'class="added"' in difference("a\n", "a\nc\n")


def test_a_plan_that_begins_with_its_title_says_it_once():
    assert _beyond("Fuse silu", "Fuse silu. One instruction for two.") == "One instruction for two."
    assert _beyond("Fuse silu", "Fuse silu") == ""
    assert _beyond("Fuse silu", "Fuse silu, then widen.") == "Fuse silu, then widen."


def test_names_in_backticks_are_set_as_code_and_a_lone_backtick_is_kept():
    assert _prose("load `x<y` once") == "load <code>x&lt;y</code> once"
    assert _prose("a ` alone") == "a ` alone"


def test_bounds_that_do_not_apply_have_no_row(story):
    (problem,) = story.problems
    chart = figures.bounds(problem)
    assert "same matmuls at peak" not in chart.data[0].y and "total" in chart.data[0].y
    # The figure at the end of the longest bar has room.
    assert chart.layout.xaxis.range[1] > 1.2 * max(chart.data[0].x)
