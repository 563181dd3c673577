"""NKIBench: fourteen kernel problems with references, first-draft kernels and a roofline.

This room knows nothing of the others. It says what is to be computed (`Problem`, `Reference`), how much work
that is (`Work`), and how fast the machine could do it at best (`roofline`).
"""

from .errors import (
    InvalidFormula,
    InvalidProblem,
    InvalidReference,
    NKIBenchError,
    UnknownProblem,
    UnknownTarget,
    WorkUnknown,
)
from .problem import Argument, Problem, Work
from .published import PublishedResult, published_results, trn1_profiles
from .reference import Reference
from .regime import Regime
from .registry import load_problem, problem_names, user_problem
from .upstream import export_upstream, import_upstream, upstream_problems

__all__ = [
    "Argument",
    "InvalidFormula",
    "InvalidProblem",
    "InvalidReference",
    "NKIBenchError",
    "Problem",
    "PublishedResult",
    "Reference",
    "Regime",
    "UnknownProblem",
    "UnknownTarget",
    "Work",
    "WorkUnknown",
    "export_upstream",
    "import_upstream",
    "load_problem",
    "problem_names",
    "published_results",
    "trn1_profiles",
    "upstream_problems",
    "user_problem",
]
