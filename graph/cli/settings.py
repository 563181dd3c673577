"""The settings of a run out of a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .output import CommandError

if TYPE_CHECKING:
    from nodes.context import Caps, RunContext

ROLES = ("planner", "executor", "fixer", "summarizer")


def run_context(
    preset: str,
    options: Mapping[str, Any],
    *,
    models: Sequence[str],
    base_url: str | None,
    api_key_env: str | None,
    prices: Sequence[str] = (),
    assignments: Sequence[str],
) -> RunContext:
    """The settings that a preset, the options and the free assignments make together, the later before the earlier.

    Args:
        preset: the settings to begin with.
        options: settings by dotted name; None means not given.
        models: `MODEL` for every role, or `ROLE=MODEL`.
        base_url: endpoint of every role that names a model.
        api_key_env: the variable with its key.
        prices: `MODEL=IN/OUT`, in USD for a million tokens.
        assignments: `name=value`, the name dotted, the value JSON or plain text.

    Raises:
        CommandError: an assignment or a model is not of that form, there is no such preset, or a setting is
            unknown or out of range.
    """
    from pydantic import ValidationError

    from nodes.complaint import complaint
    from nodes.context import PRESETS, RunContext

    if preset not in PRESETS:
        raise CommandError(f"no preset {preset!r}; there are {', '.join(sorted(PRESETS))}", exit_code=2)
    tree: dict[str, Any] = json.loads(json.dumps(PRESETS[preset]))
    for name, value in options.items():
        if value is not None:
            _put(tree, name, value)
    for role, named in _models(models).items():
        _put(tree, f"{role}.models", named)
    for role in ROLES:
        # Without a model of its own a fixer is the executor, endpoint included.
        if role == "fixer" and "fixer" not in tree:
            continue
        for name, value in (("base_url", base_url), ("api_key_env", api_key_env)):
            if value is not None:
                _put(tree, f"{role}.{name}", value)
    for price in prices:
        tree.setdefault("prices", {}).update(_price(price))
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign or not name:
            raise CommandError(f"--set takes NAME=VALUE, not {assignment!r}", exit_code=2)
        _put(tree, name.strip(), _value(text))
    if base_url and not models and not any(name.endswith(".models") for name in _names(tree)):
        raise CommandError("--base-url needs --model: which model shall answer there?", exit_code=2)
    try:
        return RunContext.model_validate(tree)
    except ValidationError as error:
        raise CommandError(complaint(error, RunContext), exit_code=2) from None


def other_caps(caps: Caps, changes: Mapping[str, float | None]) -> Caps:
    """Limits with some of them changed, by their names in `Caps`; None means not given.

    Raises:
        CommandError: one is out of range.
    """
    from pydantic import ValidationError

    from nodes.complaint import complaint
    from nodes.context import Caps

    given = {name: limit for name, limit in changes.items() if limit is not None}
    try:
        return Caps.model_validate({**caps.model_dump(), **given})
    except ValidationError as error:
        raise CommandError(complaint(error, Caps), exit_code=2) from None


def _models(given: Sequence[str]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for text in given:
        role, sign, model = text.partition("=")
        if not sign:
            roles, model = [one for one in ROLES if one != "fixer"], text
        elif role in ROLES:
            roles = [role]
        else:
            raise CommandError(
                f"--model {text!r}: no role {role!r}; roles are {', '.join(ROLES)}", exit_code=2
            )
        if not model:
            raise CommandError(f"--model {text!r} names no model", exit_code=2)
        for one in roles:
            named.setdefault(one, []).append(model)
    return named


def _price(text: str) -> dict[str, dict[str, float]]:
    model, _, amounts = text.rpartition("=")
    try:
        into, out = (float(amount) for amount in amounts.split("/"))
    except ValueError:
        raise CommandError(
            f"--price takes MODEL=IN/OUT, such as gpt-oss-120b=0.15/0.60, not {text!r}", exit_code=2
        ) from None
    return {model: {"input": into, "output": out}}


def _put(tree: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            raise CommandError(f"the setting {part!r} has no parts, so {name!r} means nothing", exit_code=2)
        tree = inner
    tree[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _names(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in tree.items():
        names += _names(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return names
