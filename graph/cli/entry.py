"""Where the `accelopt` script starts: checks the installation, runs a command, tells failures in one line."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .output import (
    DEBUG_VARIABLE,
    INTERRUPTED,
    INTERRUPTED_MESSAGE,
    CommandError,
    print_error,
    wants_traceback,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

ROOMS = ("graph", "nodes", "tools", "memory_store", "nkibench")


def main() -> None:
    """Run the command line and leave with its exit code: 0 done, 1 failed, 2 misused, 130 interrupted."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    Args:
        arguments: what follows `accelopt`. `--debug` may stand anywhere and shows tracebacks.

    Returns:
        The exit code: 0 done, 1 failed, 2 misused, 130 interrupted.
    """
    if "--debug" in arguments:
        os.environ[DEBUG_VARIABLE] = "1"
    arguments = [argument for argument in arguments if argument != "--debug"]
    as_json = "--json" in arguments
    try:
        check_rooms()
        from .app import app

        code = app(args=arguments, prog_name="accelopt", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        print_error(INTERRUPTED_MESSAGE)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; closing stdout here keeps Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as failure:
        if wants_traceback():
            raise
        message, code = describe(failure)
        if not message:
            return code
        if as_json:
            print(json.dumps({"error": message}))
        print_error(message)
        return code


def describe(failure: Exception) -> tuple[str, int]:
    """Say in one line what failed.

    Args:
        failure: any exception a command let through.

    Returns:
        The line (what, where, what to do), empty where enough was said, and the exit code.
    """
    if isinstance(failure, CommandError):
        return str(failure), failure.exit_code
    usage = getattr(failure, "format_message", None)
    if usage is not None:
        context = getattr(failure, "ctx", None)
        where = context.command_path if context is not None else "accelopt"
        code = int(getattr(failure, "exit_code", 2))
        said = _one_line(usage()).replace(": Value error, ", ": ")
        # Without a word where the help itself has just been shown.
        return (f"{said} See: {where} --help" if said else ""), code
    if type(failure).__name__ == "ValidationError" and hasattr(failure, "errors"):
        from nodes.complaint import complaint

        return complaint(cast("ValidationError", failure)), 2
    if isinstance(failure, PermissionError) or (isinstance(failure, OSError) and failure.filename):
        return f"{failure.filename}: {failure.strerror}", 1
    text = _one_line(str(failure)) or "no message"
    if type(failure).__module__.partition(".")[0] in ROOMS:
        return text, 1
    return f"{type(failure).__name__}: {text} (--debug shows where)", 1


def check_rooms() -> None:
    """See that the five packages lie side by side.

    Their names are ordinary words, and distributions of strangers carry two of them. One of those in the
    same environment would be imported instead of ours, or mixed with it, and fail far from the cause.

    Raises:
        CommandError: a package is missing or comes from somewhere else.
    """
    home = Path(__file__).resolve().parents[2]
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        if spec is None:
            raise CommandError(
                f"the package {room!r} is missing beside {home / 'graph'}; "
                "install from a full checkout: make install"
            )
        origin = (
            Path(spec.origin) if spec.origin else Path(next(iter(spec.submodule_search_locations or [""])))
        )
        folder = origin.parent if spec.origin else origin
        if folder.resolve() != home / room:
            raise CommandError(
                f"a stranger's package {room!r} at {folder} hides the one of accelopt at {home / room}; "
                f"uninstall it here, or give accelopt an environment of its own: make install"
            )


def _one_line(text: str) -> str:
    return " ".join(text.split())
