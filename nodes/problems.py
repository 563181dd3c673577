"""Problems as a run's input names them, and as the ledger defines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nkibench.problem import Problem
from nkibench.registry import load_problem, user_problem

from .state import UserProblem


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
        nkibench.errors.NkibenchError: there is none of that name, or the reference does not parse.
    """
    if "kernel" not in definition:
        return load_problem(str(definition["name"]))
    user = UserProblem.model_validate(definition)
    return user_problem(user.reference, user.kernel, name=user.name)
