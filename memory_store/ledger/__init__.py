"""The ledger: a SQL record of every run, kernel, evaluation, plan, lineage, token and dollar."""

from .calls import Grouping
from .ledger import Ledger
from .records import (
    BestKernel,
    CandidateRecord,
    Counts,
    Direction,
    EvaluationRecord,
    EventRecord,
    KernelRecord,
    ModelCall,
    PlanRecord,
    ProblemRecord,
    RunRecord,
    RunStatus,
    Spending,
)

__all__ = [
    "BestKernel",
    "CandidateRecord",
    "Counts",
    "Direction",
    "EvaluationRecord",
    "EventRecord",
    "Grouping",
    "KernelRecord",
    "Ledger",
    "ModelCall",
    "PlanRecord",
    "ProblemRecord",
    "RunRecord",
    "RunStatus",
    "Spending",
]
