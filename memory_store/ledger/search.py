"""The search: plans, candidates, lineage, counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, select, update

from .records import CandidateRecord, Counts, PlanRecord
from .section import Section
from .tables import Candidate, Plan

BASELINE_SLOT = "baseline"


class Search(Section):
    """Methods of the ledger on the search tree."""

    def put_plan(self, plan: PlanRecord) -> None:
        """Keep a plan; the second time changes nothing."""
        with self._database.write() as session:
            self._database.insert_once(session, Plan, [plan.model_dump()])

    def plans(self, run_id: str, *, problem: str | None = None, round: int | None = None) -> list[PlanRecord]:
        """Plans of a run in order of problem, round, candidate, index."""
        query = select(Plan).where(Plan.run_id == run_id)
        if problem is not None:
            query = query.where(Plan.problem == problem)
        if round is not None:
            query = query.where(Plan.round == round)
        query = query.order_by(Plan.problem, Plan.round, Plan.parent_id, Plan.index)
        with self._database.read() as session:
            return [PlanRecord.model_validate(row) for row in session.scalars(query)]

    def put_candidate(self, candidate: CandidateRecord) -> None:
        """Keep what came to stand in a place of a round; written again, the later one counts."""
        with self._database.write() as session:
            self._database.upsert(session, Candidate, candidate.model_dump())

    def mark_selected(self, run_id: str, problem: str, round: int, slots: Iterable[str]) -> None:
        """Mark the places of a round whose kernels the beam keeps, and unmark the others."""
        chosen = set(slots)
        here = (Candidate.run_id == run_id, Candidate.problem == problem, Candidate.round == round)
        with self._database.write() as session:
            session.execute(
                update(Candidate).where(*here).values(selected=Candidate.slot.in_(chosen)),
                execution_options={"synchronize_session": False},
            )

    def candidates(
        self,
        run_id: str,
        *,
        problem: str | None = None,
        round: int | None = None,
        status: str | None = None,
    ) -> list[CandidateRecord]:
        """Candidates of a run in order of problem, round, place."""
        query = select(Candidate).where(Candidate.run_id == run_id)
        if problem is not None:
            query = query.where(Candidate.problem == problem)
        if round is not None:
            query = query.where(Candidate.round == round)
        if status is not None:
            query = query.where(Candidate.status == status)
        query = query.order_by(Candidate.problem, Candidate.round, Candidate.slot)
        with self._database.read() as session:
            return [CandidateRecord.model_validate(row) for row in session.scalars(query)]

    def lineage(self, run_id: str, problem: str, kernel_id: str) -> list[CandidateRecord]:
        """The steps from the baseline to a kernel, baseline first; empty for a kernel the run never saw.

        A kernel reached in more than one way counts as reached the first time.
        """
        first: dict[str, CandidateRecord] = {}
        for candidate in self.candidates(run_id, problem=problem):
            if candidate.kernel_id is not None:
                first.setdefault(candidate.kernel_id, candidate)
        steps: list[CandidateRecord] = []
        seen: set[str] = set()
        current: str | None = kernel_id
        while current is not None and current in first and current not in seen:
            seen.add(current)
            steps.append(first[current])
            current = first[current].parent_id
        return steps[::-1]

    def counts(self, run_id: str, *, problem: str | None = None) -> Counts:
        """Kernels evaluated, correct, and by status; repairs apart."""
        here: list[Any] = [Candidate.run_id == run_id, Candidate.slot != BASELINE_SLOT]
        if problem is not None:
            here.append(Candidate.problem == problem)
        query = (
            select(
                Candidate.status, func.count(), func.count(Candidate.kernel_id), func.sum(Candidate.repairs)
            )
            .where(*here)
            .group_by(Candidate.status)
            .order_by(Candidate.status)
        )
        with self._database.read() as session:
            rows = session.execute(query).all()
        by_status = {status: int(places) for status, places, _, _ in rows}
        return Counts(
            evaluated=sum(int(kernels) for _, _, kernels, _ in rows),
            correct=by_status.get("correct", 0),
            repairs=sum(int(repairs or 0) for _, _, _, repairs in rows),
            by_status=by_status,
        )
