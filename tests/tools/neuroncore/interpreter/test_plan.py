"""Plans: run on many inputs, arguments of both kinds, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from tools.neuroncore.errors import NKIError, RuntimeAccessError
from tools.neuroncore.interpreter import compile_plan, interpret
from tools.neuroncore.interpreter.schedule import Budgets
from tools.neuroncore.ir import Access, Affine, Buffer, Instr, Loop, LoopKind, LoopVar

from .build import at, axis, kernel, parameter, result, tensor
from .execute import traced
from .plain import interpret_plainly

SCALED = """
def kernel(a, factor, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.multiply(nl.load(a), factor), nl.load(b)))
    return out
"""
RNG = np.random.default_rng(19)
A, B = (RNG.normal(size=(4, 6)).astype(np.float32) for _ in range(2))


def test_a_plan_serves_any_number_of_inputs() -> None:
    plan = compile_plan(traced(SCALED, (A, 2.0, B)))
    for seed in range(3):
        a = np.random.default_rng(seed).normal(size=(4, 6)).astype(np.float32)
        np.testing.assert_allclose(plan.run([a, B])[0], a * 2 + B, rtol=1e-6)


def test_scalars_may_be_passed_or_left_out() -> None:
    traced_kernel = traced(SCALED, (A, 2.0, B))
    np.testing.assert_array_equal(
        interpret(traced_kernel, (A, B))[0], interpret(traced_kernel, (A, 2.0, B))[0]
    )  # fmt: skip


def test_arguments_that_do_not_fit_are_refused() -> None:
    traced_kernel = traced(SCALED, (A, 2.0, B))
    with pytest.raises(NKIError, match="2 tensors"):
        interpret(traced_kernel, (A,))
    with pytest.raises(NKIError, match=r"shape \[3, 6\]"):
        interpret(traced_kernel, (A[:3], B))


def test_arguments_are_never_changed() -> None:
    x = parameter("x", (4, 6), mutable=True)
    body = [Instr("nl.store", (x.whole(),), {"value": (t := tensor("t", (4, 6))).whole()})]
    fill = Instr("nisa.memset", (t.whole(),), {}, {"value": 3})
    before = A.copy()
    (found,) = interpret(kernel([x], [x], [fill, *body]), (A,))
    np.testing.assert_array_equal(A, before)
    assert (found == 3).all()


def test_arguments_in_other_layouts_and_types_are_converted() -> None:
    plan = compile_plan(traced(SCALED, (A, 2.0, B)))
    wide = np.asfortranarray(A.astype(np.float64))
    np.testing.assert_allclose(plan.run([wide, B])[0], A * 2 + B, rtol=1e-6)


def test_a_reshaped_result_shares_its_memory() -> None:
    source = """
def kernel(a):
    out = nl.ndarray((24,), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out.reshape((4, 6)), nl.exp(nl.load(a)))
    return out
"""
    np.testing.assert_allclose(interpret(traced(source, (A,)), (A,))[0], np.exp(A).reshape(24), rtol=1e-6)


def test_an_access_out_of_bounds_never_reaches_memory() -> None:
    x, y = parameter("x", (4, 6)), result("y", (4, 6))
    t = tensor("t", (4, 6))
    load = Instr("nl.load", (t.whole(),), {"src": at(x, [axis(0, offset=3), axis(1)], (4, 6))}, line=12)
    store = Instr("nl.store", (y.whole(),), {"value": t.whole()})
    with pytest.raises(RuntimeAccessError) as caught:
        interpret(kernel([x], [y], [load, store]), (A,))
    assert caught.value.line == 12


def test_partitions_may_move_with_a_loop() -> None:
    # A row of a tile at a time: the partition dimension itself is indexed with the loop's variable.
    x, y = parameter("x", (5, 6)), result("y", (5, 6))
    t = tensor("t", (5, 6))
    loop = Loop(LoopVar("i", 5), LoopKind.AFFINE)
    row = (Affine.of(loop.var), Affine.of(1))
    loop.body = [
        Instr("nl.load", (Access(t, row, (1, 6)),), {"src": Access(x, row, (1, 6))}),
        Instr("nl.exp", (Access(t, row, (1, 6)),), {"x": Access(t, row, (1, 6))}),
    ]
    store = Instr("nl.store", (y.whole(),), {"value": t.whole()})
    a = RNG.normal(size=(5, 6)).astype(np.float32)
    made = kernel([x], [y], [loop, store])
    for budgets in (Budgets(), Budgets(1, 1, 1, 0)):
        np.testing.assert_allclose(compile_plan(made, budgets).run([a])[0], np.exp(a), rtol=1e-6)
    np.testing.assert_allclose(interpret_plainly(made, [a])[0], np.exp(a), rtol=1e-6)


def test_a_kernel_of_ten_thousand_instructions_is_planned_in_seconds() -> None:
    x, y = parameter("x", (100, 128, 8)), result("y", (100, 128, 8))
    body = []
    for k in range(100):
        tile = tensor(f"t{k}", (128, 8))
        body.append(Instr("nl.load", (tile.whole(),), {"src": at(x, [k, axis(0), axis(1)], (128, 8))}))
        for j in range(48):
            following = tensor(f"t{k}_{j}", (128, 8), Buffer.SBUF)
            body.append(Instr("nl.add", (following.whole(),), {"x": tile.whole(), "y": 1.0}))
            tile = following
        body.append(Instr("nl.store", (at(y, [k, axis(0), axis(1)], (128, 8)),), {"value": tile.whole()}))
    a = RNG.normal(size=(100, 128, 8)).astype(np.float32)
    plan = compile_plan(kernel([x], [y], body))
    np.testing.assert_allclose(plan.run([a])[0], a + 48, rtol=1e-4)
