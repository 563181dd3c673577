"""Every known trick is refused for its reason, and honest kernels, however unusual, pass.

Each kernel of `kernels/` says in its first lines what it does, for which problem, and what must become of it. All run
at the problems' small shapes, through the whole pipeline up to promotion.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nkibench import load_problem
from tools.evaluation import Evaluation, EvaluationSettings, Evaluator, Status
from tools.kernel import Kernel

KERNELS = Path(__file__).parent / "kernels"
FIELD = re.compile(r"^(Problem|Verdict|Reason|Regime): (.+)$", re.MULTILINE)


class Case(NamedTuple):
    """A kernel and what must become of it."""

    name: str
    source: str
    problem: str
    verdict: str
    reason: str | None
    regime: str | None


def cases(folder: str) -> list[Case]:
    found = []
    for path in sorted((KERNELS / folder).glob("*.py")):
        source = path.read_text()
        fields = dict(FIELD.findall(source))
        reason, regime = fields.get("Reason"), fields.get("Regime")
        found.append(Case(path.stem, source, fields["Problem"], fields["Verdict"], reason, regime))
    return found


REFUSED, HONEST = cases("refused"), cases("honest")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("references")


@pytest.fixture(scope="module")
def evaluator(cache: Path) -> Iterator[Evaluator]:
    with Evaluator(EvaluationSettings(small=True, memory_mb=2048, cache=cache)) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def impatient(evaluator: Evaluator, cache: Path) -> Iterator[Evaluator]:
    """For kernels that would take for ever: nothing is learned by waiting longer."""
    settings = EvaluationSettings(small=True, cache=cache, compile_timeout_s=1.0, timeout_s=1.5)
    with Evaluator(settings, evaluator.pool) as impatient:
        yield impatient


def judged(evaluator: Evaluator, case: Case) -> Evaluation:
    return evaluator.evaluate(Kernel.from_source(case.source), load_problem(case.problem))


@pytest.mark.parametrize("case", REFUSED, ids=[case.name for case in REFUSED])
def test_a_trick_is_refused_for_its_reason(case: Case, evaluator: Evaluator, impatient: Evaluator) -> None:
    found = judged(impatient if case.verdict == "timeout" else evaluator, case)
    assert found.error is not None
    assert (found.status.value, found.error.name) == (case.verdict, case.reason), found.error
    if case.regime:
        assert found.verification is not None and found.verification.failure is not None
        assert found.verification.failure.regime == case.regime
    if found.status is Status.rejected:
        assert found.error.line is not None and found.error.remedy


@pytest.mark.parametrize("case", HONEST, ids=[case.name for case in HONEST])
def test_an_honest_kernel_passes(case: Case, evaluator: Evaluator) -> None:
    found = judged(evaluator, case)
    assert found.status is Status.correct, found.error
    assert found.latency_ms is not None and found.percent_of_peak is not None
    assert found.verification is not None and found.verification.passed


def test_the_corpus_is_large_and_its_tricks_are_distinct() -> None:
    assert len(REFUSED) >= 40 and len(HONEST) >= 40
    assert len({case.source for case in REFUSED}) == len(REFUSED)
    assert len({case.problem for case in REFUSED}) >= 8
    assert len({case.reason for case in REFUSED}) >= 15
    assert all(case.reason for case in REFUSED)
