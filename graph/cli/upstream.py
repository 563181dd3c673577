"""`accelopt import-nkibench` and `accelopt export`: the original NKIBench's layout, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import AsJson
from .output import CommandError, console, counted, print_json
from .runs import open_ledger


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("import-nkibench")(import_nkibench)
    app.command()(export)


def import_nkibench(
    checkout: Annotated[
        Path, typer.Argument(help="A checkout of NKIBench: the folder with summary.json.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Bring in the problems and kernels of an upstream checkout; every command then takes their names."""
    from nkibench.upstream import import_upstream
    from nodes.problems import imported_problems

    imported = import_upstream(checkout, imported_problems())
    if as_json:
        print_json([{"name": one.name, "operator": one.operator, "shape": one.shape} for one in imported])
        return
    screen = console()
    for one in imported:
        screen.print(one.name, markup=False)
    screen.print(f"{len(imported)} problems imported; accelopt problems lists them with the others")


def export(
    names: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs whose best kernels to write.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    format: Annotated[Literal["nkibench"], typer.Option(help="The layout.")] = "nkibench",
    as_json: AsJson = False,
) -> None:
    """Write the best kernels of runs in upstream NKIBench's layout."""
    from nkibench.upstream import export_upstream
    from nodes.problems import problem_of

    results = []
    with open_ledger() as ledger:
        if ledger is None:
            raise CommandError("there are no runs yet; accelopt optimize makes some")
        for name in names:
            run = ledger.find_run(name)
            for row in ledger.problems(run.id):
                best = ledger.best(run.id, row.problem)
                kernel = ledger.kernel(best.kernel_id) if best else None
                if kernel is not None:
                    results.append((problem_of(row.definition), kernel.source))
    if not results:
        raise CommandError("these runs have found no kernel yet, so there is nothing to write")
    path = export_upstream(results, output)
    if as_json:
        print_json({"summary_path": str(path), "kernels": len(results)})
    else:
        console().print(f"{counted(len(results), 'kernel')} written below {output}", markup=False)
