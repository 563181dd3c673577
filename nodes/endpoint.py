"""One model endpoint and its moods: slots, rate, retries, and a breaker that waits while it is down.

Faults come in kinds. A *refusal* (wrong key, unknown model) can never succeed and ends the run; an *unsupported*
request is asked in another way; a *busy* or *broken* answer is tried again after a jittered pause that honours
`retry-after`; when an endpoint fails again and again, everybody waits while one call at a time knocks.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Fault(StrEnum):
    """What kind of trouble an exception from a model call means."""

    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    REJECTED = "rejected"
    BUSY = "busy"
    BROKEN = "broken"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"


TRANSIENT = frozenset({Fault.BUSY, Fault.BROKEN, Fault.UNREACHABLE, Fault.TIMEOUT})
DOWN = frozenset({Fault.BROKEN, Fault.UNREACHABLE, Fault.TIMEOUT})
"""Faults that say the endpoint itself is in trouble; a busy one is well and only asks for patience."""

_OPTIONAL = re.compile(
    r"response_format|json_schema|json_object|tool|function|seed|reasoning|structured|guided|schema",
    re.IGNORECASE,
)


class EndpointError(Exception):
    """A model call that will not succeed. One line: which endpoint, what happened."""

    def __init__(self, fault: Fault, message: str) -> None:
        """Keep the kind beside the line."""
        super().__init__(message)
        self.fault = fault


def fault_of(error: BaseException) -> Fault:
    """The kind of an exception, by its HTTP status where it has one, else by what it is.

    Client libraries wrap each other's exceptions, so the chain of causes is looked through.
    """
    seen: BaseException | None = error
    while seen is not None:
        status = getattr(seen, "status_code", None)
        if isinstance(status, int):
            return _fault_of_status(status, str(seen))
        seen = seen.__cause__
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return Fault.TIMEOUT
    if isinstance(error, OSError) or "Connection" in type(error).__name__:
        return Fault.UNREACHABLE
    # An answer that is not what the protocol promises, such as a body cut short.
    return Fault.BROKEN


def _fault_of_status(status: int, text: str) -> Fault:
    if status in (401, 403, 404):
        return Fault.REFUSED
    if status in (400, 422):
        return Fault.UNSUPPORTED if _OPTIONAL.search(text) else Fault.REJECTED
    if status in (408, 425, 429):
        return Fault.BUSY
    return Fault.BROKEN if status >= 500 else Fault.REJECTED


def retry_after_s(error: BaseException) -> float | None:
    """The pause in seconds that a response asked for, if any."""
    seen: BaseException | None = error
    while seen is not None:
        headers = getattr(getattr(seen, "response", None), "headers", None)
        if headers is not None:
            for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
                try:
                    return max(0.0, float(headers[name]) * unit)
                except (KeyError, ValueError):
                    continue
        seen = seen.__cause__
    return None


@dataclass(frozen=True)
class Patience:
    """How long an endpoint is given."""

    attempts: int = 12
    """Tries of one call. At a fault in every third try, twelve fail together once in half a million."""
    pause_s: float = 1.0
    """The first pause; each further one doubles, with jitter."""
    longest_pause_s: float = 60.0
    failures_to_open: int = 5
    """Failures of the endpoint in a row after which everybody waits."""
    outage_s: float = 6 * 3600.0
    """How long it may stay down before the run ends with what it has."""


class Endpoint:
    """Calls to one endpoint from one event loop."""

    def __init__(
        self,
        name: str,
        *,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        patience: Patience | None = None,
        notify: Callable[[str, str], None] = lambda kind, message: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """Name it as people know it, by its URL.

        Args:
            name: for messages.
            concurrency: most calls in flight.
            requests_per_minute: most calls started in a minute; None for no limit.
            patience: retries and breaker.
            notify: told `paused` and `resumed`, with a message for people.
            clock: monotonic seconds.
            sleep: waits that many seconds.
        """
        self.name = name
        self.calls = 0
        self.faults: dict[str, int] = {}
        self._slots = asyncio.Semaphore(concurrency)
        self._interval_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next_start = 0.0
        self._patience = patience or Patience()
        self._notify = notify
        self._clock = clock
        self._sleep = sleep
        self._failures = 0
        self._down_since: float | None = None
        self._last_error: Exception = ConnectionError()
        self._knocking = asyncio.Lock()
        # Only spreads pauses out in time; nothing that a run keeps depends on it.
        self._jitter = random.Random()

    async def call(
        self,
        request: Callable[[], Awaitable[T]],
        *,
        timeout_s: float,
        time_left_s: Callable[[], float | None],
    ) -> T:
        """Make a call until it succeeds.

        Args:
            request: one try.
            timeout_s: longest wait for one try.
            time_left_s: wall time the run still has; no try starts, and no pause lasts, without any.

        Raises:
            EndpointError: it was refused or rejected, every try failed, or the endpoint stayed down too long.
        """
        failed = 0
        while True:
            if self.is_down:
                # One at a time, each after its pause: an endpoint that comes up again is not trampled.
                async with self._knocking:
                    if not self.is_down:
                        continue
                    await self._wait(self._pause_s(self._last_error, self._failures), time_left_s)
                    result, error = await self._try(request, timeout_s, time_left_s)
                    self._judge(error)
            else:
                async with self._slots:
                    result, error = await self._try(request, timeout_s, time_left_s)
                self._judge(error)
            if error is None:
                return result  # type: ignore[return-value]
            if self.is_down:
                # A failed knock says nothing about this call.
                continue
            failed += 1
            if failed >= self._patience.attempts:
                message = f"{self.name}: {failed} tries failed, the last one: {_line(error)}"
                raise EndpointError(fault_of(error), message) from error
            await self._wait(self._pause_s(error, failed), time_left_s)

    @property
    def is_down(self) -> bool:
        """Whether calls wait for the endpoint to come back."""
        return self._down_since is not None

    async def _try(
        self, request: Callable[[], Awaitable[T]], timeout_s: float, time_left_s: Callable[[], float | None]
    ) -> tuple[T | None, Exception | None]:
        await self._in_turn(time_left_s)
        left_s = self._left_s(time_left_s)
        if left_s is not None:
            timeout_s = min(timeout_s, left_s)
        self.calls += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await request(), None
        except Exception as error:
            return None, error

    def _left_s(self, time_left_s: Callable[[], float | None]) -> float | None:
        """Seconds that the run still has; None without a limit.

        Raises:
            EndpointError: there are none.
        """
        left_s = time_left_s()
        if left_s is not None and left_s <= 0:
            raise EndpointError(Fault.TIMEOUT, f"{self.name}: the run's wall time is used up")
        return left_s

    async def _wait(self, pause_s: float, time_left_s: Callable[[], float | None]) -> None:
        """Sleep, but not beyond the end of the run."""
        left_s = self._left_s(time_left_s)
        await self._sleep(pause_s if left_s is None else min(pause_s, left_s))

    async def _in_turn(self, time_left_s: Callable[[], float | None]) -> None:
        """Wait for this call's place in the rate."""
        if not self._interval_s:
            return
        now = self._clock()
        start = max(now, self._next_start)
        self._next_start = start + self._interval_s
        if start > now:
            await self._wait(start - now, time_left_s)

    def _judge(self, error: Exception | None) -> None:
        """Open or close the breaker after a try.

        Raises:
            EndpointError: trying again is of no use.
        """
        if error is None:
            self._failures = 0
            if self._down_since is not None:
                seconds = self._clock() - self._down_since
                self._down_since = None
                self._notify("resumed", f"{self.name} answers again after {seconds:.0f} s")
            return
        fault = fault_of(error)
        self.faults[fault.value] = self.faults.get(fault.value, 0) + 1
        if fault not in TRANSIENT:
            raise EndpointError(fault, f"{self.name}: {_line(error)}") from error
        if fault not in DOWN:
            return
        self._failures += 1
        self._last_error = error
        hours = f"{self._patience.outage_s / 3600:g} h"
        if self._down_since is None and self._failures >= self._patience.failures_to_open:
            self._down_since = self._clock()
            self._notify(
                "paused",
                f"{self.name} failed {self._failures} times in a row ({_line(error)}); "
                f"waiting for it, up to {hours}",
            )
        elif self._down_since is not None and self._clock() - self._down_since > self._patience.outage_s:
            message = f"{self.name} stayed down for {hours}: {_line(error)}"
            raise EndpointError(Fault.REFUSED, message) from error

    def _pause_s(self, error: Exception, failures: int) -> float:
        asked = retry_after_s(error)
        if asked is not None:
            return min(asked, self._patience.longest_pause_s)
        longest = min(self._patience.longest_pause_s, self._patience.pause_s * 2.0 ** min(failures - 1, 16))
        return longest * self._jitter.uniform(0.5, 1.0)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
