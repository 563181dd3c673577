"""The graph as langgraph.json names it: what LangGraph's server asks for each time that it needs one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.graph.state import CompiledStateGraph
from langgraph_sdk.runtime import ServerRuntime
from pydantic import ValidationError

from nodes.complaint import complaint
from nodes.context import RunContext

from .workflow import graph

_ADDRESSES = frozenset(
    {"thread_id", "run_id", "assistant_id", "graph_id", "user_id", "checkpoint_id", "checkpoint_ns"}
)
"""What clients may say of a run beside its settings, in `configurable`."""


class SettingsError(ValueError):
    """A client's settings make no sense. One line says which, and what was probably meant.

    The server hides the words of exceptions that are of none of Python's own kinds.
    """


def served(runtime: ServerRuntime) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph, always the same one; where a run is to begin, only if its settings can be used.

    This is the one place that sees them as the client wrote them: the server leaves out names that the schema does not
    have before the graph runs, and a misspelt setting would silently be the default.

    Raises:
        SettingsError: a setting is unknown or out of range. The server hands it to the client as the run's error.
    """
    execution = runtime.execution_runtime
    given = execution.context if execution is not None else None
    if isinstance(given, Mapping):
        settings = {name: value for name, value in given.items() if not _is_address(str(name))}
        try:
            RunContext.model_validate(settings)
        except ValidationError as error:
            raise SettingsError(complaint(error, RunContext)) from None
    return graph


def _is_address(name: str) -> bool:
    return name in _ADDRESSES or name.startswith(("__", "langgraph_"))
