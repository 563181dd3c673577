"""What pydantic found wrong, in words for whoever wrote the settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_LONGEST_VALUE = 60
_MOST_NAMES = 12


def complaint(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Say in one line which settings are wrong, and for unknown ones which were probably meant.

    Args:
        error: what pydantic raised.
        model: what was to be made; its fields are suggested for unknown names.
    """
    return "; ".join(dict.fromkeys(_one(fault, model) for fault in error.errors()))


def _one(fault: Any, model: type[BaseModel] | None) -> str:
    place = fault["loc"]
    name = ".".join(map(str, place)) or "value"
    if fault["type"] == "extra_forbidden":
        return _unknown(name, place, model)
    if fault["type"] == "missing":
        return f"{name} is missing"
    message = " ".join(fault["msg"].removeprefix("Value error, ").split())
    shown = repr(fault["input"])
    if len(shown) > _LONGEST_VALUE:
        return f"{name}: {message}"
    return f"{name} cannot be {shown}: {message.replace('Input should', 'it should', 1)}"


def _unknown(name: str, place: Sequence[Any], model: type[BaseModel] | None) -> str:
    for part in place[:-1]:
        model = None if model is None else _inner(model, str(part))
    if model is None:
        return f"there is no setting {name}"
    fields = sorted(model.model_fields)
    prefix = "".join(f"{part}." for part in place[:-1])
    near = difflib.get_close_matches(str(place[-1]), fields, n=3)
    if near:
        return f"there is no setting {name}; did you mean {' or '.join(prefix + one for one in near)}?"
    if len(fields) > _MOST_NAMES:
        return f"there is no setting {name}; they are the fields of {model.__name__} in nodes/context.py"
    return f"there is no setting {name}; there are {', '.join(prefix + one for one in fields)}"


def _inner(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """The model that a field holds, if it holds one."""
    found = model.model_fields.get(field)
    return next(_models_in(found.annotation), None) if found is not None else None


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
