"""The one error of the rewrites."""

from __future__ import annotations


class RewriteError(Exception):
    """A rewrite that cannot be carried out: it would change results or break a limit.

    Attributes:
        name: short and stable, for programs: ``dependence``, ``shape``, ``psum``, ``sbuf``, ``scope``, ...
        message: what stands in the way, for people.
    """

    def __init__(self, name: str, message: str) -> None:
        """See the class."""
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
