"""What a confined worker does: answers requests on one connection until the other side closes it.

A service is a table of operations. Each takes the request's fields, its tail of bytes and its shared arrays, and returns
an `Answer`. Whatever it raises travels back as a `Fault`, never as an exception object.
"""

import contextlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .channel import Channel, ChannelClosed, Message, SharedArrays
from .sandbox import Confinement


@dataclass(frozen=True)
class Answer:
    """What an operation returns."""

    fields: dict[str, Any] = field(default_factory=dict)
    tail: bytes = b""


class Fault(Exception):
    """A failure that the caller is told in full.

    Attributes:
        status: the verdict that it means, a value of `tools.evaluation.Status`.
        name: short and stable, for machines and models.
        message: what was found, on one line.
        line: line of the kernel's source, if known.
        remedy: what to do about it, if known.
    """

    def __init__(
        self, status: str, name: str, message: str, *, line: int | None = None, remedy: str | None = None
    ) -> None:
        """See the class attributes."""
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message
        self.line = line
        self.remedy = remedy

    def fields(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "status": self.status,
            "name": self.name,
            "message": self.message,
            "line": self.line,
            "remedy": self.remedy,
        }


Operation = Callable[[dict[str, Any], bytes, list[SharedArrays]], Answer]


class Service(Protocol):
    """What a service module provides."""

    def preload(self) -> None:
        """Imports and warms up, in the nursery, what every worker will use."""

    def operations(self) -> dict[str, Operation]:
        """The operations of one worker, sharing its state."""


def serve(channel: Channel, service: str, confinement: Confinement) -> None:
    """Answers requests with the operations of the module named `service`, until the caller closes."""
    module: Any = importlib.import_module(service)
    operations: dict[str, Operation] = module.operations()
    operations["confinement"] = lambda *_: Answer(confinement.model_dump(mode="json"))
    while True:
        try:
            message = channel.receive(with_fds=True)
        except ChannelClosed:
            return
        answer = _answer(operations, message)
        with contextlib.suppress(ChannelClosed):
            channel.send(answer.fields, tail=answer.tail)


def _answer(operations: dict[str, Operation], message: Message) -> Answer:
    shared: list[SharedArrays] = []
    fds = list(message.fds)
    try:
        for layouts in message.fields.get("arrays", []):
            shared.append(SharedArrays.open(fds.pop(0), layouts))
        answer = operations[message.fields["op"]](message.fields, message.tail, shared)
        return Answer({"ok": answer.fields}, answer.tail)
    except Fault as fault:
        return Answer({"fault": fault.fields()})
    except MemoryError:
        out_of_memory = Fault(
            "runtime_error",
            "memory_limit",
            "the evaluation needs more memory than a worker may use",
            remedy="allocate less at a time",
        )
        return Answer({"fault": out_of_memory.fields()})
    except RecursionError:
        too_deep = Fault(
            "compile_error", "nested_too_deeply", "the kernel nests expressions or calls too deeply"
        )
        return Answer({"fault": too_deep.fields()})
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Answer({"fault": Fault("runtime_error", "internal_error", text[:2000]).fields()})
    finally:
        for arrays in shared:
            arrays.close()
        for fd in fds:
            os.close(fd)
