"""Events: the story of a run, for whoever watches it or reads it later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from .records import EventRecord, now
from .section import Section
from .tables import Event


class Events(Section):
    """Methods of the ledger on events."""

    def add_event(
        self,
        run_id: str,
        key: str,
        kind: str,
        *,
        problem: str = "",
        round: int = 0,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell something once: a key already told is left as it is."""
        row = {
            "run_id": run_id,
            "key": key,
            "kind": kind,
            "problem": problem,
            "round": round,
            "payload": dict(payload or {}),
            "created_at": now(),
        }
        with self._database.write() as session:
            self._database.insert_once(session, Event, [row])

    def events(
        self, run_id: str, *, after_id: int = 0, kind: str | None = None, limit: int | None = None
    ) -> list[EventRecord]:
        """What was told after the event `after_id`, in order."""
        query = select(Event).where(Event.run_id == run_id, Event.id > after_id)
        if kind is not None:
            query = query.where(Event.kind == kind)
        with self._database.read() as session:
            rows = session.scalars(query.order_by(Event.id).limit(limit))
            return [EventRecord.model_validate(row) for row in rows]
