"""`accelopt memory`: what was learned in all runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import AsJson
from .output import CommandError, console, print_json

if TYPE_CHECKING:
    from memory_store.chroma import ExperienceStore
    from memory_store.experience import Experience

_SHORT_ID = 12


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(no_args_is_help=True, help="What was learned: experiences of all problems and runs.")
    group.command("list")(list_experiences)
    group.command("show")(show_experience)
    app.add_typer(group, name="memory")


def list_experiences(
    problem: Annotated[str | None, typer.Option("--problem", "-p", help="Of this problem only.")] = None,
    operator: Annotated[str | None, typer.Option(help="Of this operator family only.")] = None,
    kind: Annotated[
        Literal["positive", "negative"] | None, typer.Option(help="What helped, or what hurt.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List experiences, newest first."""
    from memory_store.chroma import Where
    from memory_store.experience import Kind

    where = Where(problem=problem, operator=operator, kind=Kind(kind) if kind else None)
    with _store() as store:
        found = store.list(where, limit=limit) if store is not None else []
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    if not found:
        console().print("no experiences yet; accelopt optimize writes them")
        return
    console().print(_table(found))


def show_experience(
    experience: Annotated[str, typer.Argument(help="The id, or how it begins.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show one experience whole."""
    with _store() as store:
        # Ids are looked up whole; a beginning is looked for among all.
        known = store.list() if store is not None else []
    matching = [one for one in known if one.id.startswith(experience)]
    if len(matching) != 1:
        several = f"{len(matching)} experiences begin with" if matching else "there is no experience"
        raise CommandError(f"{several} {experience!r}; accelopt memory list shows their ids")
    (one,) = matching
    if as_json:
        print_json(one.model_dump(mode="json"))
        return
    screen = console()
    screen.print(f"[bold]{_title(one)}[/]  {_effect(one)}")
    screen.print(
        f"{one.problem} ({one.operator}) on {one.target}, limited by {one.bottleneck or '-'}; "
        f"run {one.run_id}, round {one.round}",
        style="dim",
    )
    screen.print(f"\n{one.description}", markup=False)
    for name, code in (("slow", one.slow_code), ("fast", one.fast_code)):
        if code:
            screen.print(f"\n{name}:", style="bold")
            screen.print(code, markup=False)


@contextmanager
def _store() -> Iterator[ExperienceStore | None]:
    """The store of the home; None where there is none yet, for looking must not make one."""
    from memory_store.home import find_home

    home = find_home()
    if not home.chroma_path.exists():
        yield None
        return
    from memory_store.chroma import ExperienceStore

    with ExperienceStore.open(home.chroma_path) as store:
        yield store


def _table(found: list[Experience]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("id", "effect", "problem", "target", "limited by", "what"):
        table.add_column(column)
    for one in found:
        table.add_row(
            one.id[:_SHORT_ID], _effect(one), one.problem, one.target, one.bottleneck or "-", _title(one)
        )
    return table


def _title(one: Experience) -> str:
    from rich.markup import escape

    return escape(one.title.strip("* "))


def _effect(one: Experience) -> str:
    helped = one.kind.value == "positive"
    return f"[green]helped {one.speedup:.2f}x[/]" if helped else f"[red]hurt {one.speedup:.2f}x[/]"
