"""Kernels by content, and the evaluations that need never be done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from .records import EvaluationRecord, KernelRecord
from .section import Section
from .tables import Evaluation, Kernel


class Kernels(Section):
    """Methods of the ledger on kernels and evaluations."""

    def put_kernel(self, source: str, *, dialect: str = "", kernel_id: str | None = None) -> str:
        """Keep a kernel's source under its id: first 16 hex digits of the SHA-256 unless given."""
        found = kernel_id or hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        with self._database.write() as session:
            row = {"id": found, "source": source, "dialect": dialect}
            self._database.insert_once(session, Kernel, [row])
        return found

    def kernel(self, kernel_id: str) -> KernelRecord | None:
        """The kernel with this id."""
        with self._database.read() as session:
            row = session.get(Kernel, kernel_id)
            return None if row is None else KernelRecord.model_validate(row)

    def kernels(self, kernel_ids: Iterable[str]) -> dict[str, KernelRecord]:
        """Those of the kernels that are known, by id."""
        wanted = list(dict.fromkeys(kernel_ids))
        found: dict[str, KernelRecord] = {}
        with self._database.read() as session:
            for start in range(0, len(wanted), 500):
                query = select(Kernel).where(Kernel.id.in_(wanted[start : start + 500]))
                found.update((row.id, KernelRecord.model_validate(row)) for row in session.scalars(query))
        return found

    def evaluation(
        self, kernel_id: str, *, problem: str, backend: str, settings_digest: str, stage: str
    ) -> EvaluationRecord | None:
        """A finished evaluation of this kernel under exactly these conditions.

        `problem` has to name the content of the problem, not only its title: two references of a user's
        own with the same file name are two problems.
        """
        with self._database.read() as session:
            row = session.get(Evaluation, (kernel_id, problem, backend, settings_digest, stage))
            return None if row is None else EvaluationRecord.model_validate(row)

    def put_evaluation(
        self,
        kernel_id: str,
        *,
        problem: str,
        backend: str,
        settings_digest: str,
        stage: str,
        status: str,
        latency_ms: float | None,
        result: Mapping[str, Any],
    ) -> EvaluationRecord:
        """Keep an evaluation and return the one kept: of two at once, the first counts for both.

        Raises:
            LedgerError: the kernel is not in the ledger.
        """
        key = (kernel_id, problem, backend, settings_digest, stage)
        row = {
            "kernel_id": kernel_id,
            "problem": problem,
            "backend": backend,
            "settings_digest": settings_digest,
            "stage": stage,
            "status": status,
            "latency_ms": latency_ms,
            "result": dict(result),
        }
        with self._database.write() as session:
            self._database.insert_once(session, Evaluation, [row])
            return EvaluationRecord.model_validate(session.get(Evaluation, key))

    def evaluations_of(self, kernel_id: str) -> list[EvaluationRecord]:
        """Every evaluation of a kernel, oldest first."""
        query = select(Evaluation).where(Evaluation.kernel_id == kernel_id).order_by(Evaluation.created_at)
        with self._database.read() as session:
            return [EvaluationRecord.model_validate(row) for row in session.scalars(query)]
