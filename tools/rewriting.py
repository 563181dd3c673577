"""Rewrites of kernels that strangers wrote: the text is traced in a confined worker, only text comes back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .backends import ArrayType
from .pool import Lease, WorkerPool

_SERVICE = "tools.rewrite_service"
_TIMEOUT_S = 60.0
_MEMORY_BYTES = 4 << 30


@dataclass(frozen=True)
class RewriteOption:
    """One way in which one rewrite applies to a kernel."""

    rewrite: str
    summary: str
    targets: tuple[str, ...]
    """Bounds that it moves."""
    what: str
    """A sentence that tells it from the kernel's other options."""


@dataclass(frozen=True)
class Rewriting:
    """The rewrites of kernels that take these arguments.

    Every method may raise `worker.Fault` (the kernel is refused, cannot be traced, or the step does not apply),
    `pool.WorkerLost` (it hangs, crashes or takes too much memory) and `pool.PoolBroken`.
    """

    pool: WorkerPool
    arguments: tuple[ArrayType | float, ...]
    target: str

    def options(self, source: str) -> list[RewriteOption]:
        """Every option, in program order."""
        with self._worker() as worker:
            answer = worker.call("list", self._request(), tail=_bytes(source))
        return [
            RewriteOption(item["rewrite"], item["summary"], tuple(item["targets"]), item["what"])
            for item in answer.fields["options"]
        ]

    def apply(self, source: str, number: int) -> str:
        """The kernel's text after the option with that place in the list."""
        with self._worker() as worker:
            return worker.call("apply", self._request(number=number), tail=_bytes(source)).tail.decode()

    def carry_out(self, source: str, steps: Sequence[str]) -> str:
        """The kernel's text after the options with these sentences, one after the other."""
        with self._worker() as worker:
            return worker.call(
                "carry_out", self._request(steps=list(steps)), tail=_bytes(source)
            ).tail.decode()

    @contextmanager
    def _worker(self) -> Iterator[Lease]:
        with self.pool.lease(_SERVICE, timeout_s=_TIMEOUT_S, memory_bytes=_MEMORY_BYTES) as worker:
            yield worker

    def _request(self, **fields: Any) -> dict[str, Any]:
        arguments = [
            {"shape": list(value.shape), "dtype": value.dtype} if isinstance(value, ArrayType) else value
            for value in self.arguments
        ]
        return {**fields, "arguments": arguments, "target": self.target}


def _bytes(source: str) -> bytes:
    return source.encode("utf-8", "surrogatepass")
