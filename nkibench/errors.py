"""What can be wrong with a problem, a reference or a question about one. Each message fits one line."""

from collections.abc import Sequence


class NKIBenchError(Exception):
    """Anything that this room refuses."""


class InvalidFormula(NKIBenchError):
    """A work formula that is not integer arithmetic over the shape's names."""


class InvalidProblem(NKIBenchError):
    """A problem folder or file that cannot be read as a problem."""


class InvalidReference(NKIBenchError):
    """A reference file that lacks a function, does not run, or returns what it should not."""


class WorkUnknown(NKIBenchError):
    """The work of a problem is asked for before anything is known about it."""


class UnknownProblem(NKIBenchError):
    """No problem of that name; carries the nearest ones that exist."""

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        """Builds the message from the name asked for and those that come nearest to it."""
        advice = f"did you mean {' or '.join(nearest)}?" if nearest else "`accelopt problems` lists all"
        super().__init__(f"unknown problem {name!r}: {advice}")
        self.name = name
        self.nearest = tuple(nearest)


class UnknownTarget(NKIBenchError):
    """No machine of that name; carries those that exist."""

    def __init__(self, target: str, known: Sequence[str]) -> None:
        """Builds the message from the target asked for and the known ones."""
        super().__init__(f"unknown target {target!r}: known are {', '.join(known)}")
        self.target = target
