"""What commands print: one JSON document for machines, Rich for people, one line for errors."""

import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console


class CommandError(Exception):
    """A failure that the user can do something about; its text is the one line they see."""

    def __init__(self, message: str, exit_code: int = 1):
        """Keep the line and the exit code.

        Args:
            message: what was wrong, where, and what to do.
            exit_code: 1 for a failure, 2 for misuse of the command line.
        """
        super().__init__(message)
        self.exit_code = exit_code


INTERRUPTED = 130
INTERRUPTED_MESSAGE = "interrupted; what was found so far is kept, see: accelopt runs"

_WIDTH_OF_A_FILE = 160

DEBUG_VARIABLE = "ACCELOPT_DEBUG"


def wants_traceback() -> bool:
    """Whether failures are to be shown whole, by `--debug` or by the environment."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def console() -> "Console":
    """The console for people, on standard output; a file or a pipe has room for the widest table."""
    from rich.console import Console

    is_narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if is_narrow else _WIDTH_OF_A_FILE)


def program() -> str:
    """What to type to call this program again: its name, or its path where the shell would not find it."""
    called = Path(sys.argv[0])
    if called.name != "accelopt" or shutil.which("accelopt"):
        return "accelopt"
    try:
        return str(called.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(called)


def print_json(document: Any) -> None:
    """Print one JSON document, the only thing on standard output.

    Args:
        document: plain data; infinity and not-a-number, which JSON lacks, become null.
    """
    sys.stdout.write(json.dumps(_finite(document), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def print_error(message: str, mark: Literal["error", "note"] = "error") -> None:
    """Print one line on standard error, its first word in color on a terminal.

    Args:
        message: what was wrong, where, and what to do.
        mark: the first word; `note` is for what is worth knowing and stops nothing.
    """
    color = 31 if mark == "error" else 33
    shown = f"\x1b[{color}m{mark}:\x1b[0m" if sys.stderr.isatty() else f"{mark}:"
    sys.stderr.write(f"{shown} {message}\n")


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural unless it is one: `1 round`, `20 kernels`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def milliseconds(value: float | None) -> str:
    """A latency to four significant digits: `1.333 ms`."""
    return "-" if value is None else f"{value:.4g} ms"


def percent(value: float | None) -> str:
    """A percentage that runs from 0 to 100: `40.0 %`."""
    return "-" if value is None else f"{value:.1f} %"


def duration(seconds: float | None) -> str:
    """A time span for people: `8 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def byte_size(count: float) -> str:
    """A number of bytes in binary units: `112.0 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
