"""Kernels changed at random each get a typed verdict. `make bench-fuzz` goes on for minutes; this is a short stretch."""

import random
from collections.abc import Iterator

import pytest

from nkibench import load_problem
from tools.evaluation import EvaluationSettings, Evaluator, Status
from tools.kernel import Kernel

from .mutation import mutate
from .test_cheats import HONEST


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    settings = EvaluationSettings(
        small=True, regimes=False, seeds=(0,), compile_timeout_s=1.0, timeout_s=3.0, memory_mb=512
    )
    with Evaluator(settings) as evaluator:
        yield evaluator


@pytest.mark.parametrize("seed", range(6))
def test_every_changed_kernel_gets_a_verdict(evaluator: Evaluator, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        case = rng.choice(HONEST)
        source = mutate(case.source, rng, rng.randint(1, 4))
        found = evaluator.evaluate(Kernel.from_source(source), load_problem(case.problem))
        assert isinstance(found.status, Status)
        assert (found.error is None) == (found.status is Status.correct)
        assert found.error is None or (found.error.name and "\n" not in str(found.error))
