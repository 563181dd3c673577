"""Problems as a run's input names them, and as the ledger defines them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_store.home import find_home
from nkibench.problem import Problem
from nkibench.registry import load_problem, problem_names, user_problem

from .state import UserProblem


def imported_problems() -> Path:
    """The folder of the problems that people have imported, beside their runs."""
    return find_home().root / "problems"


def known_names() -> list[str]:
    """Names of all problems: the benchmark's, then the imported ones."""
    return problem_names([imported_problems()])


def named_problem(name: str) -> Problem:
    """The problem of that name, the benchmark's or an imported one.

    Raises:
        nkibench.errors.NKIBenchError: there is none; the error carries the nearest names.
    """
    return load_problem(name, [imported_problems()])


def definition_of(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A problem's name, and what the ledger needs to bring it back without anybody's files.

    Raises:
        pydantic.ValidationError: a user's problem lacks a field.
    """
    if isinstance(given, str):
        return given, {"name": given}
    user = UserProblem.model_validate(given)
    return user.name, user.model_dump(mode="json")


def problem_of(definition: Mapping[str, Any]) -> Problem:
    """The problem that a definition stands for.

    Raises:
        nkibench.errors.NKIBenchError: there is none of that name, or the reference does not parse.
    """
    if "kernel" not in definition:
        return named_problem(str(definition["name"]))
    user = UserProblem.model_validate(definition)
    # Its reference may be a stranger's, so it is not run here: workers do that, confined.
    return user_problem(user.reference, user.kernel, name=user.name, measure=False)
