"""Model calls: what was asked and answered, and what it cost."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from .records import ModelCall, Spending
from .section import Section
from .tables import Call, TextBlock
from .texts import blocks_of, pack_messages, unpack_messages

Grouping = Literal["problem", "role", "model", "round"]


class Calls(Section):
    """Methods of the ledger on model calls."""

    def put_model_call(self, call: ModelCall) -> ModelCall:
        """Keep an answered call and return the one kept: a key already there keeps its first answer."""
        prompt, blocks = pack_messages(call.prompt)
        row = {**call.model_dump(exclude={"prompt"}), "prompt": prompt}
        with self._database.write() as session:
            pieces = [{"id": key, "body": body} for key, body in sorted(blocks.items())]
            self._database.insert_once(session, TextBlock, pieces)
            self._database.insert_once(session, Call, [row])
            kept = session.get(Call, (call.run_id, call.key))
            return _records(session, [kept] if kept is not None else [])[0]

    def model_call(self, run_id: str, key: str) -> ModelCall | None:
        """The answered call at this place of a run, for a resume or replay to take instead of asking."""
        with self._database.read() as session:
            row = session.get(Call, (run_id, key))
            return None if row is None else _records(session, [row])[0]

    def model_calls(
        self,
        run_id: str,
        *,
        role: str | None = None,
        problem: str | None = None,
        round: int | None = None,
        limit: int | None = None,
    ) -> list[ModelCall]:
        """Answered calls of a run in the order they were answered."""
        query = select(Call).where(Call.run_id == run_id)
        if role is not None:
            query = query.where(Call.role == role)
        if problem is not None:
            query = query.where(Call.problem == problem)
        if round is not None:
            query = query.where(Call.round == round)
        query = query.order_by(Call.created_at, Call.key).limit(limit)
        with self._database.read() as session:
            return _records(session, list(session.scalars(query)))

    def spending(
        self, run_id: str, *, by: tuple[Grouping, ...] = (), problem: str | None = None
    ) -> list[Spending]:
        """Calls, tokens and USD of a run, summed over whatever `by` does not name; ordered by group."""
        columns: dict[str, Any] = {
            "problem": Call.problem,
            "role": Call.role,
            "model": Call.model,
            "round": Call.round,
        }
        groups = [columns[name] for name in by]
        query = select(*groups, *_sums()).where(Call.run_id == run_id)
        if problem is not None:
            query = query.where(Call.problem == problem)
        if groups:
            query = query.group_by(*groups).order_by(*groups)
        with self._database.read() as session:
            rows = session.execute(query).all()
        return [_spending(by, tuple(row)) for row in rows]

    def total_spending(self, run_id: str, *, problem: str | None = None) -> Spending:
        """All of a run's model calls in one sum."""
        return self.spending(run_id, problem=problem)[0]


_SUMMED = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "usd", "latency_s")


def _sums() -> list[ColumnElement[Any]]:
    failed = func.sum(case((Call.error != "", 1), else_=0))
    return [func.count(), failed, *(func.sum(getattr(Call, name)) for name in _SUMMED)]


def _spending(by: tuple[Grouping, ...], row: tuple[Any, ...]) -> Spending:
    groups, (calls, failed, *sums) = row[: len(by)], row[len(by) :]
    values = {name: value or 0 for name, value in zip(_SUMMED, sums, strict=True)}
    return Spending.model_validate(
        {**dict(zip(by, groups, strict=True)), "calls": calls, "failed_calls": failed or 0, **values}
    )


def _records(session: Session, rows: list[Call]) -> list[ModelCall]:
    wanted = sorted({piece for row in rows for piece in blocks_of(row.prompt)})
    blocks: dict[str, str] = {}
    for start in range(0, len(wanted), 500):
        query = select(TextBlock).where(TextBlock.id.in_(wanted[start : start + 500]))
        blocks.update((block.id, block.body) for block in session.scalars(query))
    names = [name for name in ModelCall.model_fields if name != "prompt"]
    return [
        ModelCall.model_validate(
            {**{name: getattr(row, name) for name in names}, "prompt": unpack_messages(row.prompt, blocks)}
        )
        for row in rows
    ]
