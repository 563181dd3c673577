"""`accelopt runs` and `accelopt cost`: what the ledger knows of past and present runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson
from .output import console, percent, print_json

if TYPE_CHECKING:
    from memory_store.ledger import Ledger

_WIDEST = 400

RunName = Annotated[
    str,
    typer.Argument(help="A run's id, how it begins, or `last`; see: accelopt runs", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(runs)
    app.command()(cost)


def runs(
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the last first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, the last first."""
    from ..report.summary import run_summary

    with open_ledger() as ledger:
        found = [] if ledger is None else [run_summary(ledger, run) for run in ledger.runs(limit=limit)]
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("no runs yet; try: accelopt optimize silu")
        return
    screen = console()
    table = _table(found)
    if screen.measure(table, options=screen.options.update(width=_WIDEST)).maximum <= screen.width:
        screen.print(table)
        return
    for run in found:
        screen.print(_two_lines(run), markup=False, soft_wrap=True)


class Part(StrEnum):
    """What spending can be told apart by."""

    ROLE = "role"
    MODEL = "model"
    ROUND = "round"


def cost(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Runs to compare; a series (its id is told by accelopt optimize) counts as one.",
            metavar="RUN",
            show_default=False,
        ),
    ],
    by: Annotated[Part | None, typer.Option(help="Tell each run's spending apart.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare what runs cost and gained: speedup, tokens, USD, and USD for each percent gained."""
    from ..report.summary import runs_cost
    from ..series import find_series, runs_of
    from .output import CommandError

    rows = []
    with open_ledger() as ledger:
        if ledger is None:
            raise CommandError("there are no runs yet; accelopt optimize makes some")
        for name in names:
            series = find_series(ledger, name)
            runs = [ledger.find_run(name)] if series is None else list(runs_of(ledger, series).values())
            rows.append(runs_cost(ledger, series.id if series else runs[0].id, runs))
    if as_json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for column in ("speedup", "tokens in", "out", "calls", "USD", "USD/%"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        each = row["usd_per_percent_gained"]
        table.add_row(
            f"{row['run_id']}\n[dim]  {', '.join(row['models'])}[/]",
            f"{row['speedup']:.3f}x" if row["speedup"] else "-",
            f"{row['input_tokens']:,}",
            f"{row['output_tokens']:,}",
            f"{row['calls']:,}",
            f"{row['usd']:.4f}",
            f"{each:.4f}" if each is not None else "-",
        )
        for part in row[f"by_{by}"] if by else ():
            table.add_row(
                f"  {by} {part[by]}" if by is Part.ROUND else f"  {part[by]}",
                "",
                f"{part['input_tokens']:,}",
                f"{part['output_tokens']:,}",
                f"{part['calls']:,}",
                f"{part['usd']:.4f}",
                "",
            )
    console().print(table)


@contextmanager
def open_ledger() -> Iterator[Ledger | None]:
    """The ledger of the home; None where there is none yet, for looking must not make one.

    Where the home cannot be written, nobody writes meanwhile either: the ledger is read as it lies there.
    """
    from memory_store.home import find_home

    home = find_home()
    if not home.postgres_url and not (home.root / "ledger.sqlite").exists():
        yield None
        return
    from memory_store.ledger import Ledger

    with Ledger(home.ledger_url, readonly=not os.access(home.root, os.W_OK)) as ledger:
        yield ledger


def _table(found: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    paid = any(run["usd"] for run in found)
    table.add_column("run", overflow="fold")
    for column in ("status", "target"):
        table.add_column(column, no_wrap=True)
    for column in ("speedup", "peak", "correct", "worked", *(["USD"] if paid else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for run in found:
        for index, gain in enumerate(run["problems"] or [{}]):
            first = index == 0
            speedup = gain.get("speedup")
            table.add_row(
                run["run_id"] if first else "",
                run["status"] if first else "",
                run["target"],
                f"{speedup:.2f}x" if speedup else "-",
                percent(gain.get("best_percent_of_peak")),
                f"{run['kernels_correct']}/{run['kernels_evaluated']}" if first else "",
                _clock(run["wall_s"]) if first else "",
                *([f"{run['usd']:.2f}" if first else ""] if paid else []),
            )
    return table


def _two_lines(run: dict[str, Any]) -> str:
    """A run where the table has no room: its id in one piece, for copying, and its figures below."""
    gains = [
        f"{gain['speedup']:.2f}x, {percent(gain.get('best_percent_of_peak'))} of peak"
        for gain in run["problems"]
        if gain.get("speedup")
    ]
    paid = [f"{run['usd']:.2f} USD"] if run["usd"] else []
    counts = f"{run['kernels_correct']}/{run['kernels_evaluated']} correct"
    return f"{run['run_id']}\n  " + ", ".join(
        [run["status"], run["target"], *gains, counts, _clock(run["wall_s"]), *paid]
    )


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds, as short as they go: `4:37`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
