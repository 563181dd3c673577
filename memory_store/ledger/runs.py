"""Runs: what was asked for, how it stands, how long it worked, and the best per problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from ..errors import UnknownRun
from .records import BestKernel, ProblemRecord, RunRecord, RunStatus, now
from .section import Section
from .tables import Candidate, Period, Run, RunProblem


class Runs(Section):
    """Methods of the ledger on runs."""

    def start_run(
        self,
        run_id: str,
        *,
        problems: Sequence[str],
        settings: Mapping[str, Any],
        seed: int,
        target: str,
        backend: str,
        version: str = "",
    ) -> RunRecord:
        """Write down a new run as running; a run already there is returned as it is."""
        row = {
            "id": run_id,
            "status": RunStatus.RUNNING.value,
            "problems": list(problems),
            "settings": dict(settings),
            "seed": seed,
            "target": target,
            "backend": backend,
            "version": version,
        }
        with self._database.write() as session:
            self._database.insert_once(session, Run, [row])
            return RunRecord.model_validate(session.get(Run, run_id))

    def set_run_status(self, run_id: str, status: RunStatus, note: str = "") -> None:
        """Say how a run stands. Every status but `running` and `paused` ends it; these two open it again.

        Raises:
            UnknownRun: no such run.
        """
        open_again = status in (RunStatus.RUNNING, RunStatus.PAUSED)
        values = {"status": status.value, "note": note, "ended_at": None if open_again else now()}
        with self._database.write() as session:
            done = session.execute(update(Run).where(Run.id == run_id).values(values).returning(Run.id))
            if done.first() is None:
                raise UnknownRun(f"no run {run_id} in the ledger {self._database.place}")

    def run(self, run_id: str) -> RunRecord:
        """The run with this id.

        Raises:
            UnknownRun: no such run.
        """
        with self._database.read() as session:
            row = session.get(Run, run_id)
            if row is None:
                raise UnknownRun(f"no run {run_id} in the ledger {self._database.place}")
            return RunRecord.model_validate(row)

    def set_run_settings(self, run_id: str, settings: Mapping[str, Any]) -> None:
        """Replace the settings of a run that is taken up with other ones: a replay and the next resume need these.

        Raises:
            UnknownRun: no such run.
        """
        with self._database.write() as session:
            row = session.get(Run, run_id)
            if row is None:
                raise UnknownRun(f"no run {run_id} in the ledger {self._database.place}")
            row.settings = dict(settings)

    def find_run(self, text: str) -> RunRecord:
        """The run whose id is, or alone begins with, `text`; `last` is the one begun last.

        Raises:
            UnknownRun: none or several.
        """
        with self._database.read() as session:
            if text == "last":
                row = session.scalars(
                    select(Run).order_by(Run.started_at.desc(), Run.id.desc()).limit(1)
                ).first()
                if row is None:
                    raise UnknownRun(f"the ledger {self._database.place} holds no run yet")
                return RunRecord.model_validate(row)
            exact = session.get(Run, text)
            if exact is not None:
                return RunRecord.model_validate(exact)
            pattern = Run.id.startswith(text, autoescape=True)
            rows = session.scalars(select(Run).where(pattern).order_by(Run.id).limit(4)).all() if text else []
            if len(rows) == 1:
                return RunRecord.model_validate(rows[0])
            if rows:
                raise UnknownRun(f"several runs begin with {text}: {', '.join(row.id for row in rows)}")
            raise UnknownRun(
                f"no run {text} in the ledger {self._database.place}; `accelopt runs` lists them"
            )

    def runs(self, *, status: RunStatus | None = None, limit: int | None = None) -> list[RunRecord]:
        """Runs, last begun first."""
        query = select(Run).order_by(Run.started_at.desc(), Run.id.desc())
        if status is not None:
            query = query.where(Run.status == status.value)
        with self._database.read() as session:
            return [RunRecord.model_validate(row) for row in session.scalars(query.limit(limit))]

    def begin_period(self, run_id: str) -> int:
        """Note that a process starts, or takes up, work on a run. Returns the id for `touch_period`."""
        with self._database.write() as session:
            period = Period(run_id=run_id)
            session.add(period)
            session.flush()
            return period.id

    def touch_period(self, period_id: int, worked_s: float) -> None:
        """Note that the work still goes on, `worked_s` seconds after it began.

        These are not taken from the clock on the wall, which can be set, and goes on while a machine sleeps.
        """
        with self._database.write() as session:
            period = session.get_one(Period, period_id)
            period.seen_at = period.began_at + timedelta(seconds=worked_s)

    def wall_s(self, run_id: str) -> float:
        """Seconds worked on a run over all its periods; a killed period counts up to its last touch."""
        with self._database.read() as session:
            rows = session.execute(select(Period.began_at, Period.seen_at).where(Period.run_id == run_id))
            return sum((seen - began).total_seconds() for began, seen in rows)

    def put_problem(
        self,
        run_id: str,
        problem: str,
        *,
        definition: Mapping[str, Any] | None = None,
        baseline_kernel_id: str | None = None,
        baseline_latency_ms: float | None = None,
    ) -> None:
        """Write down a problem of a run with its baseline; the second time changes nothing."""
        row = {
            "run_id": run_id,
            "problem": problem,
            "definition": dict(definition or {}),
            "baseline_kernel_id": baseline_kernel_id,
            "baseline_latency_ms": baseline_latency_ms,
            "rounds_done": 0,
        }
        with self._database.write() as session:
            self._database.insert_once(session, RunProblem, [row])

    def set_best(
        self, run_id: str, problem: str, *, kernel_id: str, latency_ms: float, round: int, rounds_done: int
    ) -> None:
        """Write down the best kernel after a round, and how many rounds are done."""
        row = {
            "run_id": run_id,
            "problem": problem,
            "best_kernel_id": kernel_id,
            "best_latency_ms": latency_ms,
            "best_round": round,
            "rounds_done": rounds_done,
        }
        with self._database.write() as session:
            self._database.upsert(session, RunProblem, row)

    def problem(self, run_id: str, problem: str) -> ProblemRecord | None:
        """One problem of a run."""
        with self._database.read() as session:
            row = session.get(RunProblem, (run_id, problem))
            return None if row is None else ProblemRecord.model_validate(row)

    def problems(self, run_id: str) -> list[ProblemRecord]:
        """The problems of a run, by name."""
        query = select(RunProblem).where(RunProblem.run_id == run_id).order_by(RunProblem.problem)
        with self._database.read() as session:
            return [ProblemRecord.model_validate(row) for row in session.scalars(query)]

    def best(self, run_id: str, problem: str) -> BestKernel | None:
        """The best kernel of a problem: the one written down, else the fastest correct candidate.

        The second is what counts after a kill in the middle of a round.
        """
        query = (
            select(Candidate.kernel_id, Candidate.latency_ms, Candidate.round)
            .where(Candidate.run_id == run_id, Candidate.problem == problem, Candidate.status == "correct")
            .where(Candidate.latency_ms.is_not(None), Candidate.kernel_id.is_not(None))
            .order_by(Candidate.latency_ms, Candidate.round, Candidate.slot)
            .limit(1)
        )
        with self._database.read() as session:
            row = session.get(RunProblem, (run_id, problem))
            if row is not None and row.best_kernel_id is not None and row.best_latency_ms is not None:
                return BestKernel(
                    kernel_id=row.best_kernel_id, latency_ms=row.best_latency_ms, round=row.best_round or 0
                )
            found = session.execute(query).first()
            if found is None:
                return None
            return BestKernel(kernel_id=str(found[0]), latency_ms=float(found[1] or 0.0), round=found[2])
