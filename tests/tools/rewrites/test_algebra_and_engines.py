"""Fewer operations for the same value, and operations on other engines."""

from __future__ import annotations

import pytest

from tools.rewrites.exchange_division import ExchangeDivision
from tools.rewrites.move_engine import MoveEngine
from tools.rewrites.simplify_algebra import SimplifyAlgebra


def elementwise(*lines: str) -> str:
    """A kernel over two [128, 256] tiles whose result is `result`."""
    body = "".join(f"    {line}\n" for line in ("a = nl.load(x)", "b = nl.load(y)", *lines))
    return (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        f"{body}"
        "    nl.store(out, value=result)\n"
        "    return out\n"
    )


SHAPES = ((128, 256), (128, 256))


def test_a_tile_less_a_share_of_itself_is_scaled(case):
    source = elementwise("decay = nl.multiply(a, 0.25)", "result = nl.subtract(a, decay)")
    after = case(source, *SHAPES).apply(SimplifyAlgebra(), "factoring out")
    assert after.printed == (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    a = nl.load(x)\n"
        "    result = nl.multiply(a, 0.75)\n"
        "    nl.store(out[...], value=result)\n"
        "\n"
        "    return out\n"
    )


@pytest.mark.parametrize(
    ("operation", "factor"), [("add(a, t)", 1.25), ("add(t, a)", 1.25), ("subtract(t, a)", -0.75)]
)
def test_every_order_of_the_terms_is_understood(case, operation, factor):
    source = elementwise("t = nl.multiply(0.25, a)", f"result = nl.{operation}")
    assert f"nl.multiply(a, {factor})" in case(source, *SHAPES).apply(SimplifyAlgebra(), "factoring").source


def test_two_constant_factors_are_one(case):
    source = elementwise("t = nl.multiply(a, 0.5)", "result = nl.multiply(4.0, t)")
    assert (
        "result = nl.multiply(a, 2.0)" in case(source, *SHAPES).apply(SimplifyAlgebra(), "combining").source
    )


def test_a_factor_of_a_sum_moves_into_its_terms(case):
    source = elementwise(
        "p = nl.multiply(a, 0.5)",
        "q = nl.multiply(b, 0.25)",
        "s = nl.add(p, q)",
        "result = nl.multiply(s, 4.0)",
    )
    after = case(source, *SHAPES).apply(SimplifyAlgebra(), "moving the factor")
    assert "p = nl.multiply(a, 2.0)\n    result = nl.add(p, b)\n" in after.source


def test_a_sum_that_is_needed_as_it_is_keeps_its_factor(case):
    source = elementwise(
        "p = nl.multiply(a, 0.5)",
        "q = nl.multiply(b, 0.25)",
        "s = nl.add(p, q)",
        "t = nl.multiply(s, 4.0)",
        "result = nl.add(s, t)",
    )
    assert not [o for o in case(source, *SHAPES).options(SimplifyAlgebra()) if "moving" in o.describe()]


def test_terms_of_different_tiles_are_not_factored(case):
    source = elementwise("t = nl.multiply(b, 0.25)", "result = nl.subtract(a, t)")
    assert case(source, *SHAPES).options(SimplifyAlgebra()) == []


def test_dividing_by_a_column_inverts_the_column_only(case):
    source = elementwise("total = nl.sum(nl.square(a), axis=[1])", "result = nl.divide(a, total)")
    after = case(source, *SHAPES).apply(ExchangeDivision(), "multiplying with a reciprocal")
    assert (
        "inverse_total = nl.reciprocal(total)\n    result = nl.multiply(a, inverse_total)\n" in after.source
    )


def test_a_reciprocal_and_a_product_are_a_division(case):
    source = elementwise(
        "c = nl.add(nl.square(b), 1.0)", "i = nl.reciprocal(c)", "result = nl.multiply(a, i)"
    )
    assert (
        "result = nl.divide(a, c)" in case(source, *SHAPES).apply(ExchangeDivision(), "one division").source
    )


def test_work_moves_between_engines(case):
    kernel = case(elementwise("c = nl.multiply(a, 2.0)", "d = nl.copy(c)", "result = nl.add(d, b)"), *SHAPES)
    assert (
        "nisa.activation(nl.copy, data=a, scale=2.0)"
        in kernel.apply(MoveEngine(), "`c` on the scalar").source
    )
    assert (
        "nisa.tensor_copy(c, engine=nisa.gpsimd_engine)"
        in kernel.apply(MoveEngine(), "`d` on the gpsimd").source
    )
    after = kernel.apply(MoveEngine(), "`result` on the gpsimd")
    assert "nisa.tensor_tensor(d, b, op=nl.add, engine=nisa.gpsimd_engine)" in after.source


def test_a_copy_that_went_to_the_scalar_engine_comes_back_as_a_copy(case):
    kernel = case(elementwise("c = nl.copy(a)", "result = nl.add(c, b)"), *SHAPES)
    there = kernel.apply(MoveEngine(), "`c` on the scalar")
    assert "nisa.activation(nl.copy, data=a)" in there.source
    assert (
        "nisa.tensor_copy(a, engine=nisa.vector_engine)"
        in there.apply(MoveEngine(), "`c` on the vector").source
    )


@pytest.mark.parametrize(
    ("spelled", "left"),
    [
        ("nl.sum(a, axis=[1])", "reduce_res=total[...]"),
        ("nisa.tensor_reduce(nl.add, a, axis=[1])", "reduce_res=total[...]"),
        ("nl.mean(a, axis=[1])", "total = nl.multiply(total_sum, 0.00390625)"),
    ],
)
def test_sums_move_to_the_scalar_engine(case, spelled, left):
    kernel = case(elementwise(f"total = {spelled}", "result = nl.multiply(b, total)"), *SHAPES)
    after = kernel.apply(MoveEngine(), "`total` on the scalar")
    assert "nisa.activation_reduce(nl.copy, data=a, reduce_op=nl.add, reduce_res=" in after.source
    assert left in after.source


def test_a_maximum_stays_on_the_vector_engine(case):
    kernel = case(elementwise("top = nl.max(a, axis=[1])", "result = nl.multiply(b, top)"), *SHAPES)
    assert not any("`top`" in o.describe() for o in kernel.options(MoveEngine()))


def test_gpsimd_never_touches_psum(case):
    kernel = case(
        """
        def kernel(x, y):
            out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            product = nisa.nc_matmul(nl.load(x), nl.load(y))
            result = nl.copy(product)
            nl.store(out, value=result)
            return out
        """,
        (128, 128),
        (128, 256),
    )
    assert {o.engine for o in kernel.options(MoveEngine())} == {"vector", "scalar"}
