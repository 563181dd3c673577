"""What a command line names, brought in: kernels, references, problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .output import CommandError, print_error

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
    return own_problem(reference, kernel)


def own_problem(reference: Path, kernel: Path) -> Problem:
    """The problem of a user's own kernel and reference. Neither file is run for it.

    Raises:
        CommandError: a file cannot be read, or the reference is not one; names the file.
    """
    from nkibench.errors import InvalidReference
    from nkibench.registry import user_problem

    # Handed over as text, it is a stranger's and runs confined like the kernel itself.
    text = read_source(reference, "reference")
    try:
        return user_problem(text, read_source(kernel, "kernel"), name=problem_name(kernel), measure=False)
    except InvalidReference as error:
        # It was given as a text, so the message has no file's name.
        raise CommandError(f"the reference {reference}{str(error).removeprefix('reference')}") from error


def tell_which_kernel(path: Path, source: str) -> None:
    """Say which function is the kernel where a file has several; the others can only be its helpers."""
    from tools.gate import kernel_names

    names = kernel_names(source)
    if len(names) > 1:
        print_error(
            f"{path} has several functions under @nki.jit; the last, {names[-1]}, is the kernel", mark="note"
        )


def problem_name(path: Path) -> str:
    """A name for a user's own problem, out of a file name: `my kernel.py` gives `my_kernel`."""
    cleaned = "".join(
        character if character.isalnum() or character in "_.-" else "_" for character in path.stem
    )
    return cleaned.strip("_") or "custom"
