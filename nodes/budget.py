"""Tokens, dollars, wall time and kernels: what they cost, and that no cap is ever passed.

A call reserves its worst case before it starts and settles with what it really used. While others are in
flight a reservation that does not fit waits for them to settle; when nothing is in flight and it still does not
fit, the cap is reached and the run ends in order.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .context import OFFLINE, Caps, Price
from .state import Frozen, Stop

FREE = Price(input=0, output=0)

NOT_EVALUATED = "not_evaluated"
"""Status in the ledger of a kernel that a cap kept from evaluation."""

CHAT_OVERHEAD_TOKENS = 64
"""Room for the tokens that chat templates add around the messages of one call."""


class CapReached(Exception):
    """Starting this would pass a cap, or the run is ending. It is still to be done once the run may go on."""


class Usage(Frozen):
    """Tokens of one call. Cached tokens are part of the input, reasoning tokens part of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def of(cls, metadata: Mapping[str, Any] | None) -> Usage:
        """From LangChain's usage metadata, which every chat model fills in the same way."""
        if not metadata:
            return cls()
        ins, outs = metadata.get("input_token_details") or {}, metadata.get("output_token_details") or {}
        return cls(
            input_tokens=metadata.get("input_tokens") or 0,
            output_tokens=metadata.get("output_tokens") or 0,
            cached_tokens=ins.get("cache_read") or 0,
            reasoning_tokens=outs.get("reasoning") or 0,
        )


def cost_usd(usage: Usage, price: Price) -> float:
    """Dollars for the tokens of one call, cached and reasoning ones at their own price where there is one."""
    cached = price.input if price.cached_input is None else price.cached_input
    reasoning = price.output if price.reasoning is None else price.reasoning
    return (
        (usage.input_tokens - usage.cached_tokens) * price.input
        + usage.cached_tokens * cached
        + (usage.output_tokens - usage.reasoning_tokens) * price.output
        + usage.reasoning_tokens * reasoning
    ) / 1e6


def _read_prices() -> Mapping[str, Price]:
    tables = tomllib.loads(importlib.resources.files(__package__).joinpath("prices.toml").read_text("utf-8"))
    return {
        name.lower(): Price.model_validate(value)
        for table in tables["table"]
        for name, value in table.items()
        if isinstance(value, dict)
    }


PRICES = _read_prices()
"""The dated table of `prices.toml`, by model name in lower case."""


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """What a model costs: the run's own prices first, then the table; None if neither knows it."""
    if model in own:
        return own[model]
    if model == OFFLINE:
        return FREE
    return PRICES.get(model.rsplit("/", 1)[-1].lower())


def most_prompt_tokens(texts: Iterable[str]) -> int:
    """An upper bound of the tokens in a prompt: no tokenizer makes more tokens than there are bytes."""
    return sum(len(text.encode()) for text in texts) + CHAT_OVERHEAD_TOKENS


_UNITS = {"usd": "USD", "tokens": "tokens", "wall_s": "s wall time", "kernels": "kernels"}


def cap_text(name: str, limit: float) -> str:
    """A limit in words, by its name in `Caps`: `5 USD`, `1000000 tokens`, `1 kernel`."""
    if isinstance(limit, int):
        return f"{limit} {_UNITS[name] if limit != 1 else _UNITS[name].removesuffix('s')}"
    return f"{limit:g} {_UNITS[name]}"


@dataclass
class Spent:
    """What a run has used so far."""

    usd: float = 0.0
    tokens: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True)
class Reservation:
    """The worst case of one call in flight."""

    tokens: int
    usd: float
    price: Price


def slot(candidate_index: int, plan_index: int, sample: int) -> str:
    """A draft's place in its round."""
    return f"{candidate_index}.{plan_index}.{sample}"


def admission(round: int, slot: str, fixes: int = 0) -> str:
    """Names a kernel that is sent to evaluation by its place in the search."""
    return f"{round}/{slot}/{fixes}"


@dataclass(frozen=True)
class Recording:
    """What kept the run that is replayed, so that it keeps the replay too."""

    refused: frozenset[str] = frozenset()
    """Kernels that it did not evaluate (`admission`)."""
    unchecked: frozenset[str] = frozenset()
    """Kernels, by id, that it had no time left to check in full."""
    cut_round: int | None = None
    """The round that it did not finish and ended in."""
    stop: str = ""
    """Why it did not."""
    stop_kind: str = ""
    """Which kind of reason that is (`Stop`)."""


class Budget:
    """The purse of one run, shared by all its tasks on one event loop."""

    def __init__(
        self,
        caps: Caps,
        prices: Mapping[str, Price],
        spent: Spent | None = None,
        kernels: Iterable[str] = (),
        recording: Recording | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with what earlier sessions of the run have spent and the kernels they evaluated (`admission`).

        `recording` is what kept the run that is replayed.
        """
        self._caps = caps
        self._prices = prices
        self._spent = spent or Spent()
        self._kernels = set(kernels)
        self.recording = recording or Recording()
        self._promised: set[str] = set()
        self._forgone: set[str] = set()
        self._clock = clock
        self._began = clock()
        self._reserved: list[Reservation] = []
        self._settled = asyncio.Condition()
        self.stop: str = ""
        """The first cap that refused something, or the fault that ends the run; empty while all is well."""
        self.stop_kind: str = ""
        """Which of these it is (`Stop`)."""

    @property
    def spent(self) -> Spent:
        """Used so far, calls in flight not counted."""
        return Spent(self._spent.usd, self._spent.tokens, self._spent.wall_s + self._clock() - self._began)

    def remaining_s(self) -> float | None:
        """Wall time left, in seconds; None without a cap."""
        return None if self._caps.wall_s is None else max(0.0, self._caps.wall_s - self.spent.wall_s)

    def end(self, reason: str, kind: Stop = Stop.CAP) -> None:
        """Let nothing more start; the first reason is kept."""
        if not self.stop:
            self.stop, self.stop_kind = reason, kind.value

    def out_of_time(self) -> CapReached:
        """End for want of wall time."""
        self.end(self._reached("wall_s"))
        return CapReached(self.stop)

    async def reserve(self, model: str, prompt: Iterable[str], most_output_tokens: int) -> Reservation:
        """Set aside the worst case of a call.

        Raises:
            CapReached: the call does not fit, even with nothing else in flight, or the run is ending.
        """
        price = price_of(model, self._prices)
        if price is None and self._caps.usd is not None:
            self.end(f"no price is known for model {model}, so the cap in USD cannot be kept")
        usage = Usage(input_tokens=most_prompt_tokens(prompt), output_tokens=most_output_tokens)
        price = price or FREE
        dearest = price.model_copy(
            update={
                "cached_input": max(price.input, price.cached_input or 0.0),
                "reasoning": max(price.output, price.reasoning or 0.0),
            }
        )
        worst = max(
            cost_usd(usage, dearest),
            cost_usd(
                usage.model_copy(
                    update={"cached_tokens": usage.input_tokens, "reasoning_tokens": usage.output_tokens}
                ),
                dearest,
            ),
        )
        reservation = Reservation(usage.total, worst, price)
        async with self._settled:
            await self._settled.wait_for(lambda: self.stop or self._fits(reservation) or not self._reserved)
            if not self.stop and not self._fits(reservation):
                self.end(self._reason(reservation))
            if self.stop:
                self._settled.notify_all()
                raise CapReached(self.stop)
            self._reserved.append(reservation)
        return reservation

    async def settle(self, reservation: Reservation, usage: Usage | None) -> float:
        """Book what a call really used and return its cost in USD; None for a call that used nothing."""
        usd = cost_usd(usage, reservation.price) if usage else 0.0
        async with self._settled:
            self._reserved.remove(reservation)
            self._spent.usd += usd
            self._spent.tokens += usage.total if usage else 0
            self._settled.notify_all()
        return usd

    def book(self, usage: Usage, usd: float) -> None:
        """Count what a replayed call cost when it was made, so that a replay tells the figures of its original."""
        self._spent.usd += usd
        self._spent.tokens += usage.total

    def promise_kernels(self, places: Iterable[str]) -> list[str]:
        """Set aside evaluations before a model is paid to plan or write what will be evaluated.

        Returns those of the places for which there is room; `forgo_kernels` gives back what is not needed.

        Raises:
            CapReached: there is room for none.
        """
        # A place that came to nothing will again, when its round is taken up again; it must not keep others out.
        granted = [place for place in places if place in self._forgone or self._has_room(place)]
        if not granted:
            raise CapReached(self._kernels_reached())
        return granted

    def forgo_kernels(self, places: Iterable[str]) -> None:
        """Give back evaluations that were promised and will not be made."""
        given = set(places)
        self._promised -= given
        self._forgone |= given - self._kernels

    def admit_kernel(self, place: str) -> None:
        """Count a kernel before it is evaluated; a place in the search that was counted before is free.

        Raises:
            CapReached: there are as many kernels as the cap allows, or the time is up.
        """
        if place in self._kernels:
            return
        if place in self.recording.refused:
            raise CapReached(self.recording.stop)
        if self.remaining_s() == 0.0:
            raise self.out_of_time()
        if self.stop:
            raise CapReached(self.stop)
        if not self._has_room(place):
            raise CapReached(self._kernels_reached())
        self._promised.discard(place)
        self._kernels.add(place)

    def no_more_kernels(self) -> str:
        """Why no further kernel can be evaluated, for the end of a round; empty where one can."""
        # Nothing is under way then: a promise that is still open was broken by an error.
        self.forgo_kernels(self._promised)
        full = self._caps.kernels is not None and len(self._kernels) >= self._caps.kernels
        return self._kernels_reached() if full else ""

    def _has_room(self, place: str) -> bool:
        """Whether a kernel is, or now can be, counted or promised."""
        if place in self._kernels or place in self._promised:
            return True
        most = self._caps.kernels
        if most is not None and len(self._kernels) + len(self._promised) >= most:
            return False
        self._promised.add(place)
        return True

    def _kernels_reached(self) -> str:
        return self._reached("kernels")

    def _reached(self, name: str) -> str:
        return f"the cap of {cap_text(name, getattr(self._caps, name))} is reached"

    def _fits(self, new: Reservation) -> bool:
        tokens = self._spent.tokens + sum(r.tokens for r in self._reserved) + new.tokens
        usd = self._spent.usd + sum(r.usd for r in self._reserved) + new.usd
        caps = self._caps
        return (
            (caps.tokens is None or tokens <= caps.tokens)
            and (caps.usd is None or usd <= caps.usd)
            and self.remaining_s() != 0.0
        )

    def _reason(self, new: Reservation) -> str:
        caps, spent = self._caps, self.spent
        if caps.tokens is not None and spent.tokens + new.tokens > caps.tokens:
            worst = f"{spent.tokens} used, the next call takes {new.tokens} at worst"
            return f"the cap of {cap_text('tokens', caps.tokens)}: {worst}"
        if caps.usd is not None and spent.usd + new.usd > caps.usd:
            worst = f"{spent.usd:.4f} spent, the next call costs {new.usd:.4f} at worst"
            return f"the cap of {cap_text('usd', caps.usd)}: {worst}"
        return self._reached("wall_s")
