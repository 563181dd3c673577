"""Any sequence of rewrites keeps the results, and every kernel on the way has a source."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nkibench import load_problem, problem_names
from tools import neuroncore
from tools.neuroncore import trace
from tools.neuroncore.ir import Kernel, fingerprint
from tools.neuroncore.machine import machine_for
from tools.rewrites import REWRITES, RewriteError, applicable, matching, print_kernel, rewrite_named

STEPS = 5


def some_rewrite(kernel: Kernel, rng: random.Random) -> tuple[str, Kernel] | None:
    """One applicable rewrite at random: first which, then where."""
    for rewrite in rng.sample(REWRITES, len(REWRITES)):
        options = list(rewrite.candidates(kernel))
        for option in rng.sample(options, len(options)):
            try:
                return option.describe(), rewrite.apply(kernel, option)
            except RewriteError:
                continue
    return None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", problem_names())
def test_random_sequences_keep_results_and_identity(name, seed):
    problem = load_problem(name)
    reference = problem.reference(small=True)
    args = reference.to_nki(reference.inputs(seed))
    kernel = trace(problem.baseline_source(), args)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    expected = neuroncore.interpret(kernel, arrays)
    rng = random.Random(f"{name}{seed}")
    history: list[str] = []
    for _ in range(STEPS):
        step = some_rewrite(kernel, rng)
        if step is None:
            break
        before = print_kernel(kernel)
        history.append(step[0])
        assert print_kernel(kernel) == before, f"{history[-1]} changed the kernel it was given"
        kernel = step[1]
        assert fingerprint(trace(print_kernel(kernel), args)) == fingerprint(kernel), history
    for mine, theirs in zip(neuroncore.interpret(kernel, arrays), expected, strict=True):
        difference = np.linalg.norm(mine.astype(np.float64) - theirs.astype(np.float64))
        assert difference <= 1e-5 * np.linalg.norm(theirs.astype(np.float64)), history


@pytest.mark.parametrize("name", problem_names())
def test_a_description_names_one_option_only(name):
    problem = load_problem(name)
    reference = problem.reference(small=True)
    kernel = trace(problem.baseline_source(), reference.to_nki(reference.inputs(0)))
    sentences = [option.describe() for rewrite in REWRITES for option in rewrite.candidates(kernel)]
    assert len(set(sentences)) == len(sentences)


def test_names_are_unique_and_lead_to_the_rewrite():
    assert len({r.name for r in REWRITES}) == len(REWRITES) >= 20
    assert all(rewrite_named(r.name) is r and r.summary and r.targets for r in REWRITES)
    with pytest.raises(KeyError):
        rewrite_named("make-it-fast")


def test_every_listed_option_can_be_applied(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                for j in nl.affine_range(2):
                    tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
                    gate = nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), 1.0))
                    result = nl.multiply(tile, gate)
                    nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=result)
            return out
        """,
        (256, 1024),
    )
    found = applicable(kernel.kernel)
    assert {r.name for r, _ in found} >= {
        "widen-tile",
        "use-fused-function",
        "fold-into-activation",
        "move-engine",
    }
    for rewrite, option in found:
        rewrite.apply(kernel.kernel, option)
        assert option.describe()[0].isupper() and "\n" not in option.describe()


@pytest.mark.parametrize("most", [1, 7, 20, 10_000])
def test_no_more_options_are_tried_than_asked_for_and_every_rewrite_has_its_share(most):
    problem = load_problem("silu")
    reference = problem.reference(small=True)
    kernel = trace(problem.baseline_source(), reference.to_nki(reference.inputs(0)))
    everything = applicable(kernel)
    found = applicable(kernel, most)
    assert len(found) <= most
    assert [pair for pair in everything if pair in found] == found
    if most == 10_000:
        assert found == everything
    if most == 20:
        assert len({rewrite.name for rewrite, _ in found}) > 3


def test_a_sentence_finds_its_option_again():
    problem = load_problem("silu")
    reference = problem.reference(small=True)
    kernel = trace(problem.baseline_source(), reference.to_nki(reference.inputs(0)))
    for rewrite, option in applicable(kernel):
        assert matching(kernel, option.describe()) == (rewrite, option)
    assert matching(kernel, "Make it fast.") is None


def test_the_targets_memory_decides_what_fits(case):
    source = """
        def kernel(x, w):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for m in nl.affine_range(2):
                acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(95):
                    x_tile = nl.load(x[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                    w_tile = nl.load(w[k * 128 : (k + 1) * 128, 0:512])
                    acc += nisa.nc_matmul(x_tile, w_tile)
                nl.store(out[m * 128 : (m + 1) * 128, 0:512], value=nl.copy(acc))
            return out
    """
    hoist = rewrite_named("hoist-invariant")
    small = case(source, (95 * 128, 256), (95 * 128, 512))
    large = case(source, (95 * 128, 256), (95 * 128, 512), target="trn2")
    assert "sbuf" in small.refusal(hoist, "`w_tile`")
    assert [o for o in hoist.analyze(large.kernel) if "`w_tile`" in o.describe()]
    assert [o for o in hoist.analyze(small.kernel, machine_for("trn2")) if "`w_tile`" in o.describe()]
