"""The dashboard's routes over a ledger."""

import pytest
from starlette.testclient import TestClient

from graph.web import app
from memory_store.ledger import Ledger, RunStatus


@pytest.fixture
def client(home):
    return TestClient(app)


def test_the_dashboard_lists_runs_and_links_their_reports(client, recorded):
    page = client.get("/dashboard")
    assert page.status_code == 200
    assert 'href="/dashboard/runs/run-of-silu"' in page.text and "1.60×" in page.text
    report = client.get("/dashboard/runs/run-of-silu")
    assert report.status_code == 200 and "Fuse silu" in report.text
    assert 'src="/dashboard/plotly.js"' in report.text


def test_runs_are_there_as_json_too(client, recorded):
    (run,) = client.get("/dashboard/runs.json").json()
    assert run["problems"][0]["speedup"] == pytest.approx(1.6)
    assert client.get("/dashboard/runs/run-of/summary.json").json() == run


def test_an_unknown_run_is_a_404_that_says_so(client, recorded):
    answer = client.get("/dashboard/runs/nothing")
    assert answer.status_code == 404 and "no run nothing" in answer.text


def test_a_home_without_runs_has_a_dashboard(client):
    assert "No runs yet" in client.get("/dashboard").text


def test_the_charts_javascript_comes_from_this_server(client):
    answer = client.get("/dashboard/plotly.js")
    assert (
        answer.headers["content-type"].startswith("text/javascript")
        and "plotly" in answer.text[:2000].lower()
    )


def test_a_run_that_could_not_start_is_listed_with_its_problem_and_the_reason(client, home):
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("r", problems=["mamba"], settings={}, seed=0, target="trn1", backend="neuron")
        ledger.set_run_status("r", RunStatus.FAILED, "no device")
    page = client.get("/dashboard").text
    assert "<td>mamba</td>" in page and '<span title="no device">failed</span>' in page


def test_a_run_whose_process_was_killed_is_not_shown_at_work(client, home):
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("r", problems=["mamba"], settings={}, seed=0, target="trn1", backend="simulator")
    with home.claim_run("r"):
        (run,) = client.get("/dashboard/runs.json").json()
        assert run["status"] == "running" and "refresh" in client.get("/dashboard").text
    (run,) = client.get("/dashboard/runs.json").json()
    assert run["status"] == "stopped" and "accelopt resume r" in run["note"]
    assert "refresh" not in client.get("/dashboard").text
    assert "cut off" in client.get("/dashboard/runs/r").text


def test_a_servers_run_which_nobody_claims_is_at_work(client, home):
    with Ledger(home.ledger_url) as ledger:
        ledger.start_run("r", problems=["mamba"], settings={}, seed=0, target="trn1", backend="simulator")
    assert client.get("/dashboard/runs.json").json()[0]["status"] == "running"
