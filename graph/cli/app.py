"""The command tree."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import ablate, doctor, fidelity, kernels, memory, problems, report, runs, search, upstream
from .output import INTERRUPTED, INTERRUPTED_MESSAGE, CommandError


class _Commands(TyperGroup):
    """Typer turns a Ctrl-C into a silent exit; people are told what became of their work."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise CommandError(INTERRUPTED_MESSAGE, exit_code=INTERRUPTED) from None


app = typer.Typer(
    name="accelopt",
    cls=_Commands,
    help="Makes AWS Trainium kernels faster: agents rewrite, tools judge, memory keeps what helped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Runs, the ledger and the memory live in ACCELOPT_HOME, or else in your user data folder.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"accelopt {version('accelopt')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
) -> None:
    """Makes AWS Trainium kernels faster: agents rewrite, tools judge, memory keeps what helped."""


for module in (problems, search, kernels, runs, report, ablate, upstream, fidelity, doctor):
    module.register(app)
memory.register(app)
