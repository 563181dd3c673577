"""`accelopt fidelity`: how near the simulator comes to measured hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsJson
from .output import console, milliseconds, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from tools.fidelity import FidelityReport, Summary


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(fidelity)


def fidelity(
    nkibench: Annotated[
        Path | None,
        typer.Option(help="A checkout's NKIBench folder; its own kernels are then simulated, not ours."),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option(help="Also refit the fitted constants without each kernel and predict it (a minute)."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Compare the simulator with the published trn1 measurements, kernel by kernel and counter by counter."""
    from tools.fidelity import fidelity as compare

    if as_json:
        print_json(compare(nkibench, leave_one_out=leave_one_out).model_dump(mode="json"))
        return
    screen = console()
    with screen.status("simulating") as status:
        report = compare(nkibench, leave_one_out=leave_one_out, progress=status.update)
    if not report.same_kernels:
        screen.print(
            "Other kernels than the measured ones: our first drafts against figures for upstream's. "
            "Give --nkibench for the comparison proper."
        )
    screen.print(_latencies(report))
    screen.print(_summary(report.summary, report.leave_one_out))


def _latencies(report: FidelityReport) -> Table:
    from rich.table import Table

    table = Table(title=f"Latency on {report.target}, measured and simulated", title_justify="left")
    table.add_column("problem", overflow="fold")
    for column in ("measured", "simulated", "error", "left out", "counters within 5 %"):
        table.add_column(column, justify="right")
    for one in report.problems:
        known = [c for c in one.counters if c.error is not None]
        near = sum(abs(c.error or 0.0) <= 0.05 for c in known)
        table.add_row(
            one.problem,
            milliseconds(one.latency_measured_ms),
            milliseconds(one.latency_simulated_ms),
            _signed(one.latency_error),
            _signed(one.latency_error_left_out),
            f"{near} of {len(known)}",
        )
    return table


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"


def _summary(summary: Summary, left_out: Summary | None) -> Table:
    from rich.table import Table

    table = Table(title="In sum", title_justify="left")
    for column in ("", "all constants", "each kernel left out"):
        table.add_column(column, justify="left" if not column else "right")
    for name, field in type(summary).model_fields.items():
        other = "-" if left_out is None else f"{getattr(left_out, name):.3f}"
        table.add_row(field.description or name, f"{getattr(summary, name):.3f}", other)
    return table
