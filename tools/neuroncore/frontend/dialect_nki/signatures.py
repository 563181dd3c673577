"""Functions that both dialects have, under this one's parameters: destinations first, no masks, no keyword-only ones."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from ...errors import NKIError
from ..session import current

BETA1_ONLY = {
    "mask": "slice dst and the operands instead",
    "dtype": "the element type of dst decides the cast",
}
"""Arguments that only Beta 1 has, and what to do instead."""


def signature(parameters: str) -> inspect.Signature:
    """A signature from words: ``data``, or ``reverse0=False`` for parameters that may be left out."""
    listed = []
    for word in parameters.split():
        name, equals, text = word.partition("=")
        default = (ast.literal_eval(text) if text else None) if equals else inspect.Parameter.empty
        listed.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(listed)


def no_beta1(op: str, extra: dict[str, Any]) -> None:
    """Refuse arguments that only Beta 1 has.

    Raises:
        NKIError: `unexpected_argument`, naming the first.
    """
    for name in extra:
        raise NKIError(
            "unexpected_argument",
            f"'{op}' has no argument `{name}` in this dialect",
            line=current().line(),
            remedy=BETA1_ONLY.get(name, "see the signature"),
        )


def under(
    name: str, form: inspect.Signature, body: Callable[[dict[str, Any]], Any], doc: str | None
) -> Callable[..., Any]:
    """A function with a signature of this dialect.

    Args:
        name: its short name.
        form: the signature.
        body: gets the arguments that were given, by name.
        doc: what it does.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        no_beta1(name, {k: v for k, v in kwargs.items() if k in BETA1_ONLY and k not in form.parameters})
        try:
            bound = form.bind(*args, **kwargs)
        except TypeError as error:
            raise NKIError(
                "unexpected_argument",
                f"{name}: {error}",
                line=current().line(),
                remedy=f"the signature is {name}{form}",
            ) from None
        return body(dict(bound.arguments))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__signature__ = form  # type: ignore[attr-defined]
    return function
