"""One run from a ledger into another, whole: to keep it as a fixture, or to hand it to somebody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from ..errors import UnknownRun
from .database import Database
from .section import Section
from .tables import (
    Call,
    Candidate,
    Evaluation,
    Event,
    ExperienceCopy,
    ExperienceList,
    Kernel,
    Period,
    Plan,
    Run,
    RunProblem,
    Table,
    TextBlock,
)
from .texts import blocks_of

_OF_A_RUN: tuple[type[Table], ...] = (RunProblem, Period, Plan, Candidate, Call, ExperienceList, Event)
_PART = 500


class Copying(Section):
    """Methods of the ledger that move runs."""

    def copy_run(self, run_id: str, destination: Copying) -> None:
        """Copy a run and all it refers to; what the destination has already stays as it is.

        Raises:
            UnknownRun: no such run here.
        """
        target = destination._database
        with self._database.read() as source, target.write() as sink:
            run = source.get(Run, run_id)
            if run is None:
                raise UnknownRun(f"no run {run_id} in the ledger {self._database.place}")
            if sink.get(Run, run_id) is not None:
                # Periods and events have no key of their own to tell a second copy by.
                return
            rows = {table: _rows_of_run(source, table, run_id) for table in _OF_A_RUN}
            kernels = _kernels_of(rows)
            blocks = {piece for row in rows[Call] for piece in blocks_of(row["prompt"])}
            experiences = {one for row in rows[ExperienceList] for one in row["experience_ids"]}
            _copy(target, sink, Run, [_row(run)])
            _copy(target, sink, Kernel, _rows_with(source, Kernel, "id", kernels))
            _copy(target, sink, Evaluation, _rows_with(source, Evaluation, "kernel_id", kernels))
            _copy(target, sink, TextBlock, _rows_with(source, TextBlock, "id", blocks))
            _copy(target, sink, ExperienceCopy, _rows_with(source, ExperienceCopy, "id", experiences))
            for table in _OF_A_RUN:
                _copy(target, sink, table, rows[table])


def _row(record: Table) -> dict[str, Any]:
    """A row by attribute name, without a number that the database gives out."""
    mapper = inspect(type(record))
    counted = {"id"} if isinstance(record, Period | Event) else set()
    return {
        attribute.key: getattr(record, attribute.key)
        for attribute in mapper.column_attrs
        if attribute.key not in counted
    }


def _rows_of_run(source: Session, table: type[Table], run_id: str) -> list[dict[str, Any]]:
    mapper = inspect(table)
    query = select(table).where(mapper.columns["run_id"] == run_id).order_by(*mapper.primary_key)
    return [_row(record) for record in source.scalars(query)]


def _rows_with(
    source: Session, table: type[Table], column: str, values: Iterable[str]
) -> Iterator[dict[str, Any]]:
    wanted = sorted(values)
    of_table = inspect(table).columns[column]
    for start in range(0, len(wanted), _PART):
        query = select(table).where(of_table.in_(wanted[start : start + _PART]))
        yield from (_row(record) for record in source.scalars(query))


def _kernels_of(rows: dict[type[Table], list[dict[str, Any]]]) -> set[str]:
    named = (
        row.get(column)
        for table in (RunProblem, Plan, Candidate)
        for row in rows[table]
        for column in ("kernel_id", "parent_id", "baseline_kernel_id", "best_kernel_id")
    )
    return {kernel_id for kernel_id in named if kernel_id}


def _copy(target: Database, sink: Session, table: type[Table], rows: Iterable[dict[str, Any]]) -> None:
    pending = list(rows)
    for start in range(0, len(pending), _PART):
        target.insert_once(sink, table, pending[start : start + _PART])
