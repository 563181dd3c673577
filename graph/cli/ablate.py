"""`accelopt ablate`: the same search under several settings, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson, MaxKernels, MaxTime, MaxTokens, MaxUsd
from .output import CommandError, console, percent, print_json

if TYPE_CHECKING:
    from ..ablation import Cell, Row


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(ablate)


def ablate(
    spec: Annotated[
        Path, typer.Argument(help="A TOML file; docs/experiments.md says what is in it.", show_default=False)
    ],
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the table there.")] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxTime = None,
    max_kernels: MaxKernels = None,
    as_json: AsJson = False,
) -> int:
    """Run variants of the settings over problems and seeds, and print the paper's table.

    Stopped, it goes on where it was when it is started again. Limits are for all of its runs together; the table
    has the variants that are whole.
    """
    from memory_store.home import find_home
    from nkibench.errors import NKIBenchError

    from ..ablation import Outcome, as_csv, cells, folder, read_spec, run_all, table, whole
    from ..limits import LimitReached
    from ..run import RunError
    from .settings import other_caps

    wanted = read_spec(spec)
    home = find_home()
    try:
        todo = cells(wanted, home)
    except (RunError, NKIBenchError) as error:
        raise CommandError(f"{spec}: {error}") from error
    if csv is not None:
        # Now, not after a night's work.
        if csv.is_dir():
            raise CommandError(f"{csv} is a folder; name the file to write the table to")
        csv.parent.mkdir(parents=True, exist_ok=True)
    screen = console()

    def announce(number: int, cell: Cell) -> Mapping[str, Any]:
        if not as_json:
            screen.print(
                f"{number + 1}/{len(todo)}  {cell.variant}, seed {cell.seed}, {cell.problem}", markup=False
            )
        return {"handle_signals": True}

    limits = {"usd": max_usd, "tokens": max_tokens, "wall_s": max_seconds, "kernels": max_kernels}
    outcomes: list[Outcome] = []
    stopped: str | None = None
    try:
        for outcome in run_all(todo, announce, other_caps(wanted.caps, limits)):
            outcomes.append(outcome)
    except LimitReached as limit:
        stopped = str(limit)
    rows = table(whole(outcomes, todo))
    written = folder(wanted, home) / "table.csv"
    for path in (written, *([csv] if csv else [])):
        path.write_text(as_csv(rows), encoding="utf-8")
    if as_json:
        print_json(
            {
                "name": wanted.name,
                "rows": [asdict(row) for row in rows],
                "csv_path": str(written),
                "runs": len(todo),
                "runs_done": len(outcomes),
                "stopped": stopped,
            }
        )
    else:
        screen.print()
        if rows:
            screen.print(_table(rows))
        if stopped:
            screen.print(f"ended early: {stopped}", markup=False, soft_wrap=True)
            done = f"{len(outcomes)} of {len(todo)} runs are done"
            screen.print(f"{done}; the same command with a higher limit goes on")
        screen.print(f"table written to {written}", markup=False, soft_wrap=True)
    return 0


def _table(rows: list[Row]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("variant", overflow="fold")
    for column in ("speedup", "peak", "kernels to 95 %", "kernels", "tokens", "USD"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        several = row.seeds > 1
        table.add_row(
            row.variant,
            f"{row.speedup:.3f}x" + (f" ±{row.speedup_spread:.3f}" if several else ""),
            percent(row.percent_of_peak) + (f" ±{row.percent_of_peak_spread:.1f}" if several else ""),
            f"{row.kernels_to_near:.0f}" + (f" ±{row.kernels_to_near_spread:.0f}" if several else ""),
            f"{row.kernels:.0f}",
            f"{row.tokens:,.0f}",
            f"{row.usd:.2f}",
        )
    return table
