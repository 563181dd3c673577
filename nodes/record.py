"""A run's part of the ledger, for nodes: the same facts, without blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memory_store.experience import Experience
from memory_store.ledger import (
    CandidateRecord,
    Counts,
    Direction,
    EvaluationRecord,
    Ledger,
    ModelCall,
    PlanRecord,
    RunStatus,
)

from .budget import Usage
from .calls import RecordedCall
from .context import Role
from .state import Stop

ENDED = {
    Stop.CAP: RunStatus.CAPPED,
    Stop.FAULT: RunStatus.FAILED,
    Stop.PERSON: RunStatus.STOPPED,
}
"""How the ledger names a run that ended before its last round."""

TIMED_EVERY_S = 2.0
"""A killed run forgets at most so much of its wall time."""


class Record:
    """What one run on one problem writes down and looks up."""

    def __init__(self, ledger: Ledger, run_id: str, problem: str, period: int) -> None:
        """The ledger must already know the run, and the period of work that this is."""
        self._ledger = ledger
        self.run_id = run_id
        self.problem = problem
        self._period = period
        self._began = self._timed = time.monotonic()

    async def find_call(self, key: str, run_id: str | None = None) -> RecordedCall | None:
        """The call with that key in this run, or in another one."""
        found = await asyncio.to_thread(self._ledger.model_call, run_id or self.run_id, key)
        return None if found is None else _from_ledger(found)

    async def keep_call(self, call: RecordedCall) -> None:
        """Keep a finished call for good."""
        row = ModelCall(
            run_id=self.run_id,
            key=call.key,
            role=call.role.value,
            model=call.model,
            problem=self.problem,
            round=call.round,
            prompt=list(call.prompt),
            answer=call.content,
            reasoning=call.reasoning or "",
            extra={
                "tool_calls": list(call.tool_calls),
                "finish_reason": call.finish_reason,
                "from_cache": call.from_cache,
                "oddities": list(call.oddities),
            },
            error=call.oddities[-1] if call.oddities and not call.is_usable else "",
            input_tokens=call.usage.input_tokens,
            output_tokens=call.usage.output_tokens,
            cached_tokens=call.usage.cached_tokens,
            reasoning_tokens=call.usage.reasoning_tokens,
            usd=call.usd,
            latency_s=call.latency_s,
        )
        await asyncio.to_thread(self._ledger.put_model_call, row)
        await self.keep_time()

    async def source(self, kernel_id: str) -> str:
        """The text of a kernel that this or another run has kept.

        Raises:
            KeyError: the ledger has no such kernel.
        """
        found = await asyncio.to_thread(self._ledger.kernel, kernel_id)
        if found is None:
            raise KeyError(f"no kernel {kernel_id} in the ledger")
        return found.source

    async def keep_kernel(self, kernel_id: str, source: str, dialect: str) -> None:
        """Keep a kernel's text under its content hash."""
        await asyncio.to_thread(self._ledger.put_kernel, source, dialect=dialect, kernel_id=kernel_id)

    async def evaluation(self, kernel_id: str, key: Mapping[str, str]) -> EvaluationRecord | None:
        """A finished evaluation under exactly these conditions."""
        return await asyncio.to_thread(self._ledger.evaluation, kernel_id, **key)

    async def recorded_evaluation(self, kernel_id: str, stage: str) -> EvaluationRecord | None:
        """An evaluation of that stage under whatever conditions, for replays of runs recorded elsewhere."""
        found = await asyncio.to_thread(self._ledger.evaluations_of, kernel_id)
        return next((one for one in found if one.stage == stage), None)

    async def keep_evaluation(
        self,
        kernel_id: str,
        key: Mapping[str, str],
        *,
        status: str,
        latency_ms: float | None,
        result: Mapping[str, Any],
    ) -> None:
        """Keep an evaluation."""
        await asyncio.to_thread(
            self._ledger.put_evaluation, kernel_id, **key, status=status, latency_ms=latency_ms, result=result
        )

    async def keep_problem(
        self, definition: Mapping[str, Any], baseline_kernel_id: str, baseline_latency_ms: float
    ) -> None:
        """Write down what the run is about and where it starts."""
        await asyncio.to_thread(
            self._ledger.put_problem,
            self.run_id,
            self.problem,
            definition=definition,
            baseline_kernel_id=baseline_kernel_id,
            baseline_latency_ms=baseline_latency_ms,
        )

    async def keep_plan(
        self, round: int, parent_id: str, index: int, plan: Mapping[str, Any], call_key: str = ""
    ) -> None:
        """Keep a plan."""
        row = PlanRecord(
            run_id=self.run_id,
            problem=self.problem,
            round=round,
            parent_id=parent_id,
            index=index,
            plan=dict(plan),
            call_key=call_key,
        )
        await asyncio.to_thread(self._ledger.put_plan, row)

    async def plan(self, round: int, parent_id: str, index: int) -> dict[str, Any]:
        """A plan that was kept.

        Raises:
            KeyError: there is none in that place.
        """
        plans = await asyncio.to_thread(self._ledger.plans, self.run_id, problem=self.problem, round=round)
        for one in plans:
            if (one.parent_id, one.index) == (parent_id, index):
                return one.plan
        raise KeyError(f"no plan {index} of kernel {parent_id} in round {round}")

    async def keep_candidate(self, **fields: Any) -> None:
        """Keep what came to stand in a place of a round; `fields` as in `CandidateRecord`."""
        row = CandidateRecord(run_id=self.run_id, problem=self.problem, **fields)
        await asyncio.to_thread(self._ledger.put_candidate, row)

    async def keep_selection(self, round: int, slots: Iterable[str], best: Mapping[str, Any]) -> None:
        """Mark the places of a round that the beam keeps, and write down the best so far."""

        def write() -> None:
            self._ledger.mark_selected(self.run_id, self.problem, round, slots)
            self._ledger.set_best(self.run_id, self.problem, **best)

        await asyncio.to_thread(write)

    async def rounds_done(self) -> int:
        """Rounds that were searched to their end."""
        found = await asyncio.to_thread(self._ledger.problem, self.run_id, self.problem)
        return found.rounds_done if found is not None else 0

    async def counts(self) -> Counts:
        """Kernels evaluated and correct."""
        return await asyncio.to_thread(self._ledger.counts, self.run_id, problem=self.problem)

    async def experiences(self, ids: Sequence[str]) -> list[Experience]:
        """Copies of experiences, in this order."""
        return await asyncio.to_thread(self._ledger.experiences, list(ids))

    async def experience_list(
        self, round: int, direction: Direction, scope: str = "", run_id: str | None = None
    ) -> list[Experience] | None:
        """A list that this run, or another one, wrote before."""
        return await asyncio.to_thread(
            self._ledger.experience_list,
            run_id or self.run_id,
            self.problem,
            round,
            direction,
            scope=scope,
        )

    async def keep_experience_list(
        self, round: int, direction: Direction, experiences: Sequence[Experience], scope: str = ""
    ) -> list[str]:
        """Keep a list with copies of what is in it; the first one written counts."""
        return await asyncio.to_thread(
            self._ledger.put_experience_list,
            self.run_id,
            self.problem,
            round,
            direction,
            list(experiences),
            scope=scope,
        )

    async def tell(self, key: str, kind: str, round: int, payload: Mapping[str, Any]) -> None:
        """Add an event to the run's story, once for each key."""
        await asyncio.to_thread(
            self._ledger.add_event,
            self.run_id,
            key,
            kind,
            problem=self.problem,
            round=round,
            payload=payload,
        )

    async def told(self, kind: str, round: int, run_id: str | None = None) -> list[dict[str, Any]]:
        """What this run, or another one, told of that kind in that round, in order."""
        found = await asyncio.to_thread(self._ledger.events, run_id or self.run_id, kind=kind)
        return [event.payload for event in found if event.round == round]

    async def keep_time(self, *, at_once: bool = False) -> None:
        """Note that the run is still worked on; every other second is often enough."""
        now = time.monotonic()
        if now - self._timed >= TIMED_EVERY_S or at_once:
            self._timed = now
            await asyncio.to_thread(self._ledger.touch_period, self._period, now - self._began)

    async def set_status(self, status: RunStatus, note: str = "") -> None:
        """Say how the run stands."""
        await asyncio.to_thread(self._ledger.set_run_status, self.run_id, status, note)


def _from_ledger(row: ModelCall) -> RecordedCall:
    return RecordedCall(
        key=row.key,
        role=Role(row.role),
        round=row.round,
        model=row.model,
        prompt=tuple(row.prompt),
        content=row.answer,
        reasoning=row.reasoning or None,
        tool_calls=tuple(row.extra.get("tool_calls") or ()),
        finish_reason=row.extra.get("finish_reason"),
        usage=Usage(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cached_tokens=row.cached_tokens,
            reasoning_tokens=row.reasoning_tokens,
        ),
        usd=row.usd,
        latency_s=row.latency_s,
        from_cache=bool(row.extra.get("from_cache")),
        oddities=tuple(row.extra.get("oddities") or ()),
        is_usable=not row.error,
    )
