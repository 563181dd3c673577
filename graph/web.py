"""The dashboard that the LangGraph server carries under /dashboard: every run, read from the ledger.

Handlers are plain functions: they read a database, and Starlette runs such handlers in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from memory_store.errors import MemoryStoreError, UnknownRun
from memory_store.home import find_home
from memory_store.ledger import Ledger, RunStatus

from .report import read_story
from .report.markup import Markup, joined, tag
from .report.page import page, plotly_javascript, report_page
from .report.summary import run_summary

PLOTLY = "/dashboard/plotly.js"
REFRESH_S = 5
RUNS_SHOWN = 200


def runs_page(request: Request) -> Response:
    """All runs, the last first."""
    with _ledger() as ledger:
        found = [run_summary(ledger, run) for run in ledger.runs(limit=RUNS_SHOWN)]
    working = any(run["status"] == RunStatus.RUNNING for run in found)
    body = joined(
        tag("h1", "AccelOpt"),
        _runs_table(found) if found else tag("p", "No runs yet: accelopt optimize silu", class_="quiet"),
    )
    return HTMLResponse(page("AccelOpt", body, PLOTLY, REFRESH_S if working else None))


def run_page(request: Request) -> Response:
    """One run's report, reloaded while the run works."""
    with _ledger() as ledger:
        story = read_story(ledger, request.path_params["run"])
    working = story.run.status is RunStatus.RUNNING
    return HTMLResponse(report_page(story, plotly_url=PLOTLY, refresh_s=REFRESH_S if working else None))


def runs_json(request: Request) -> Response:
    """All runs as JSON."""
    with _ledger() as ledger:
        return JSONResponse([run_summary(ledger, run) for run in ledger.runs(limit=RUNS_SHOWN)])


def run_json(request: Request) -> Response:
    """One run as JSON."""
    with _ledger() as ledger:
        return JSONResponse(run_summary(ledger, ledger.find_run(request.path_params["run"])))


def plotly_js(request: Request) -> Response:
    """The charts' JavaScript, which browsers keep."""
    headers = {"cache-control": "public, max-age=86400"}
    return Response(plotly_javascript(), media_type="text/javascript", headers=headers)


def no_such_run(request: Request, error: Exception) -> Response:
    """A run that the ledger does not have."""
    return PlainTextResponse(f"{error}\n", status_code=404)


def no_ledger(request: Request, error: Exception) -> Response:
    """A ledger that cannot be read."""
    return PlainTextResponse(f"{error}\n", status_code=503)


@contextmanager
def _ledger() -> Iterator[Ledger]:
    with Ledger(find_home().prepare().ledger_url) as ledger:
        yield ledger


def _runs_table(found: list[dict[str, Any]]) -> Markup:
    heads = (
        "run",
        "status",
        "problem",
        "target",
        "models",
        "started (UTC)",
        "baseline",
        "best",
        "speedup",
        "USD",
    )
    rows = [_row(run, gain) for run in found for gain in run["problems"] or [{}]]
    head = tag("thead", tag("tr", *(tag("th", head) for head in heads)))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="wide runs")


def _row(run: dict[str, Any], gain: dict[str, Any]) -> Markup:
    def ms(value: float | None) -> str:
        return f"{value:.4g} ms" if value else "-"

    speedup = gain.get("speedup")
    cells = (
        tag("a", run["run_id"], href=f"/dashboard/runs/{run['run_id']}"),
        tag("span", run["status"], title=run["note"] or None),
        gain.get("problem", "-"),
        run["target"],
        ", ".join(run["models"]),
        run["started_at"][:16].replace("T", " "),
        ms(gain.get("baseline_latency_ms")),
        ms(gain.get("best_latency_ms")),
        f"{speedup:.2f}×" if speedup else "-",
        f"{run['usd']:.2f}",
    )
    return tag("tr", *(tag("td", cell) for cell in cells))


app = Starlette(
    routes=[
        Route("/dashboard", runs_page),
        Route("/dashboard/plotly.js", plotly_js),
        Route("/dashboard/runs.json", runs_json),
        Route("/dashboard/runs/{run}", run_page),
        Route("/dashboard/runs/{run}/summary.json", run_json),
    ],
    exception_handlers={UnknownRun: no_such_run, MemoryStoreError: no_ledger},
)
"""The routes that langgraph.json adds to the server."""
