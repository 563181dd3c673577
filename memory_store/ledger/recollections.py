"""Which experiences a round used, wrote, and kept, and what they said."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from ..experience import Experience
from .records import Direction
from .section import Section
from .tables import ExperienceCopy, ExperienceList


class Recollections(Section):
    """Methods of the ledger on experiences."""

    def experiences(self, ids: Sequence[str]) -> list[Experience]:
        """The experiences with these ids, in this order; unknown ones are left out."""
        found: dict[str, Experience] = {}
        wanted = list(dict.fromkeys(ids))
        with self._database.read() as session:
            for start in range(0, len(wanted), 500):
                query = select(ExperienceCopy).where(ExperienceCopy.id.in_(wanted[start : start + 500]))
                found.update(
                    (row.id, Experience.model_validate(row.record)) for row in session.scalars(query)
                )
        return [found[one] for one in ids if one in found]

    def put_experience_list(
        self,
        run_id: str,
        problem: str,
        round: int,
        direction: Direction,
        experiences: Sequence[Experience],
        *,
        scope: str = "",
    ) -> list[str]:
        """Write down, with copies, what a round used, wrote or kept; returns the ids kept.

        The first list written under a key counts: a round that runs again after a kill is to see what it
        saw the first time, although the store may know more by then.

        Args:
            run_id: the run.
            problem: the problem.
            round: the round.
            direction: used, written, or the queue after the round.
            experiences: in order.
            scope: tells several lists of one kind in a round apart, e.g. the candidate it was recalled for.
        """
        key = (run_id, problem, round, direction.value, scope)
        copies = [{"id": found.id, "record": found.model_dump(mode="json")} for found in experiences]
        row = {
            "run_id": run_id,
            "problem": problem,
            "round": round,
            "direction": direction.value,
            "scope": scope,
            "experience_ids": [found.id for found in experiences],
        }
        with self._database.write() as session:
            self._database.insert_once(session, ExperienceCopy, copies)
            self._database.insert_once(session, ExperienceList, [row])
            kept = session.get(ExperienceList, key)
            return list(kept.experience_ids) if kept is not None else []

    def experience_list(
        self, run_id: str, problem: str, round: int, direction: Direction, *, scope: str = ""
    ) -> list[Experience] | None:
        """The list written under this key, or None where none was."""
        with self._database.read() as session:
            row = session.get(ExperienceList, (run_id, problem, round, direction.value, scope))
            ids = None if row is None else list(row.experience_ids)
        return None if ids is None else self.experiences(ids)

    def experience_ids(
        self, run_id: str, direction: Direction, *, problem: str | None = None
    ) -> dict[tuple[str, int, str], list[str]]:
        """Every list of one kind in a run, by (problem, round, scope)."""
        here = [ExperienceList.run_id == run_id, ExperienceList.direction == direction.value]
        if problem is not None:
            here.append(ExperienceList.problem == problem)
        query = select(ExperienceList).where(*here)
        query = query.order_by(ExperienceList.problem, ExperienceList.round, ExperienceList.scope)
        with self._database.read() as session:
            return {
                (row.problem, row.round, row.scope): list(row.experience_ids)
                for row in session.scalars(query)
            }
