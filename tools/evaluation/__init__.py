"""From a kernel's text to a verdict: gate, compile, profile, verify, as one pipeline with one typed result."""

from ..verification import Check
from .evaluator import Evaluator
from .result import Evaluation, EvaluationError, Failure, RegimeResult, Stage, Status, Verification
from .settings import EvaluationSettings

__all__ = [
    "Check",
    "Evaluation",
    "EvaluationError",
    "EvaluationSettings",
    "Evaluator",
    "Failure",
    "RegimeResult",
    "Stage",
    "Status",
    "Verification",
]
