"""What a command line names, brought in: kernels, references, problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .output import CommandError

if TYPE_CHECKING:
    from nkibench.problem import Problem

LARGEST_SOURCE_BYTES = 1 << 20
"""A kernel is a page or two; a megabyte is a mistake."""


def read_source(path: Path, what: str) -> str:
    """The text of a Python file that the user named.

    Args:
        path: the file.
        what: what it is to be, for the message: `kernel`, `reference`.

    Raises:
        CommandError: it is not a readable text of reasonable size.
    """
    try:
        if path.is_file() and path.stat().st_size > LARGEST_SOURCE_BYTES:
            raise CommandError(
                f"the {what} {path} is larger than 1 MiB, so it is no {what}; name a Python file"
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"the {what} {path} is not a text in UTF-8; name a Python file") from None
    except OSError as error:
        raise CommandError(f"cannot read the {what} {path}: {error.strerror}") from None


def chosen_problem(problem: str | None, reference: Path | None, kernel: Path) -> Problem:
    """The problem a kernel is for: one of the benchmark by name, or the one a reference file defines.

    Raises:
        CommandError: both or neither are given, or the reference cannot be read.
        nkibench.errors.NKIBenchError: there is no such problem, or the reference is not one.
    """
    from nkibench.registry import user_problem
    from nodes.problems import named_problem

    if problem and reference:
        raise CommandError("give --problem or --reference, not both", exit_code=2)
    if problem:
        return named_problem(problem)
    if reference is None:
        raise CommandError(
            "say what the kernel must compute: --problem NAME (see: accelopt problems) or --reference FILE",
            exit_code=2,
        )
    # Handed over as text, it is a stranger's and runs confined like the kernel itself.
    text = read_source(reference, "reference")
    return user_problem(text, read_source(kernel, "kernel"), name=problem_name(kernel), measure=False)


def problem_name(path: Path) -> str:
    """A name for a user's own problem, out of a file name: `my kernel.py` gives `my_kernel`."""
    cleaned = "".join(
        character if character.isalnum() or character in "_.-" else "_" for character in path.stem
    )
    return cleaned.strip("_") or "custom"
