"""`accelopt report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson
from .output import CommandError, console, print_json
from .runs import RunName, open_ledger


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(report)


def report(
    run: RunName,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; by default in the run's folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report: one HTML file with everything inside, readable offline."""
    from memory_store.home import find_home

    from ..report import read_story
    from ..report.page import write_report

    with open_ledger() as ledger:
        if ledger is None:
            raise CommandError("there are no runs yet; accelopt optimize makes some")
        story = read_story(ledger, run)
    path = write_report(story, output or find_home().run_path(story.run.id) / "report.html")
    if as_json:
        print_json({"run_id": story.run.id, "report_path": str(path)})
    else:
        console().print(f"report written to {path}", markup=False, soft_wrap=True)
