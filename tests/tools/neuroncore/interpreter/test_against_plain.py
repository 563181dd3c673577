"""Batched execution does what a plain loop-by-loop interpreter does, on random kernels and budgets."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.neuroncore.interpreter import compile_plan
from tools.neuroncore.interpreter.schedule import Budgets

from .plain import interpret_plainly
from .random_kernels import RandomKernel

BUDGETS = (Budgets(), Budgets(1, 1, 1, 0), Budgets(600, 600, 600, 1 << 20), Budgets(300, 1 << 20, 300, 0))


def check(rng: random.Random, *, masks: bool = False, tidy: bool = False) -> None:
    made = RandomKernel(rng, masks=masks, tidy=tidy)
    kernel = made.kernel()
    args = made.arguments(kernel)
    expected = interpret_plainly(kernel, args)
    plan = compile_plan(kernel, rng.choice(BUDGETS))
    for found, wanted in zip(plan.run(args), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_kernel_without_masks_gives_what_a_plain_loop_gives(rng: random.Random) -> None:
    check(rng, masks=False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_masked_kernel_gives_what_a_plain_loop_gives(rng: random.Random) -> None:
    check(rng, masks=True)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_kernel_that_reads_what_it_wrote_gives_what_a_plain_loop_gives(rng: random.Random) -> None:
    check(rng, tidy=True)
