"""HTML out of nested calls, escaped at the one place where text becomes markup."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


_VOID = frozenset({"meta", "br", "link", "hr"})


def tag(
    name: str, /, *children: Markup | str | int | float | None, **attributes: str | bool | None
) -> Markup:
    """An element.

    Args:
        name: the element's name.
        children: text, which is escaped, or markup; None is left out.
        attributes: a trailing underscore is dropped (`class_`), other underscores become hyphens; True
            gives an attribute without value, None and False none at all.
    """
    parts = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(attribute)
        elif value is not None and value is not False:
            parts.append(f'{attribute}="{escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{joined(*children)}</{name}>")


def joined(*children: Markup | str | int | float | None) -> Markup:
    """Several pieces one after the other; text is escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(str(child))
            for child in children
            if child is not None
        )
    )
