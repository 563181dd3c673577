"""No spelling of an operation is cheaper than its plainest one."""

import pytest

from tools.neuroncore.compiler import Engine, compile_kernel
from tools.neuroncore.counters import total
from tools.neuroncore.machine import TRN1
from tools.neuroncore.timing.costs import busy_ns

BODY = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
t = nl.load(x)
nl.store(out, {expression})
return out
"""


def work_ns(traced, expression):
    program = compile_kernel(traced(BODY.format(expression=expression), x=(128, 512)), TRN1)
    return sum(busy_ns(op, TRN1) for op, _ in program.walk() if op.transfer is None)


@pytest.mark.parametrize(
    "spelling",
    [
        "nisa.tensor_scalar(t, op0=nl.reciprocal, operand0=None)",
        "nisa.tensor_scalar(t, op0=nl.add, operand0=0.0, op1=nl.reciprocal)",
        "nisa.tensor_scalar(t, op0=nl.power, operand0=-1.0)",
        "nisa.scalar_tensor_tensor(data=t, op0=nl.reciprocal, operand0=0.0, op1=nl.multiply, operand1=t)",
        "nl.power(t, -1.0)",
        "nl.divide(1.0, t)",
    ],
)
def test_a_reciprocal_costs_as_much_whatever_it_is_called(traced, spelling):
    assert work_ns(traced, spelling) >= work_ns(traced, "nisa.reciprocal(t)")


@pytest.mark.parametrize(
    "spelling", ["nisa.tensor_scalar(t, op0=nl.rsqrt, operand0=None)", "nl.power(t, -0.5)"]
)
def test_a_root_is_no_cheaper_elsewhere_than_on_the_scalar_engine(traced, spelling):
    assert work_ns(traced, spelling) > 2 * work_ns(traced, "nl.rsqrt(t)")


@pytest.mark.parametrize(("mask", "narrow"), [("j < 16", "0:16"), ("j < 128", "0:128")])
def test_what_a_mask_leaves_of_a_load_costs_as_much_as_loading_just_that(traced, mask, narrow):
    body = """
i, j = nl.arange(128)[:, None], nl.arange(512)[None, :]
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store(out[0:1, 0:1], {load}[0:1, 0:1])
return out
"""
    masked = body.format(load=f"nl.load(x[i, j], mask=({mask}))")
    plain = body.format(load=f"nl.load(x[:, {narrow}])")
    busy = [
        total(compile_kernel(traced(text, x=(128, 512)), TRN1), TRN1).busy_ns[Engine.DMA]
        for text in (masked, plain)
    ]
    assert busy[0] == pytest.approx(busy[1])


def spelled(traced, *lines):
    text = "\n".join(
        ["out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)", "t = nl.load(x)", *lines]
    )
    program = compile_kernel(traced(text + "\nnl.store(out, r)\nreturn out", x=(128, 512)), TRN1)
    return sum(busy_ns(op, TRN1) for op, _ in program.walk() if op.transfer is None)


IN_PSUM = "{0} = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n{0}[...] = nl.exp(t)"


def test_two_operands_in_psum_are_no_cheaper_than_one(traced):
    one = spelled(traced, IN_PSUM.format("a"), "b = nl.exp(t)", "r = nl.multiply(a, b)")
    two = spelled(traced, IN_PSUM.format("a"), IN_PSUM.format("b"), "r = nl.multiply(a, b)")
    assert two > one + 300


@pytest.mark.parametrize(
    "use",
    ["nl.max({row}, axis=1)", "nisa.reciprocal({row})", "nl.where({row}, t, t)", "nisa.bn_stats({row})"],
)
def test_no_instruction_reads_one_partition_on_all_of_them_for_nothing(traced, use):
    plain = spelled(traced, f"s = {use.format(row='t')}", "r = nl.add(t, s[:, 0:1])")
    row = spelled(
        traced, f"s = {use.format(row='t[0:1, :].broadcast_to((128, 512))')}", "r = nl.add(t, s[:, 0:1])"
    )
    assert row > plain + 150


def test_a_tile_filled_for_a_matmul_costs_nothing_only_if_filled_with_zeros(traced):
    lines = ["a = nl.{fill}", "a[...] += nisa.nc_matmul(t[:, 0:128], t)", "r = nl.copy(a)"]
    zeros, ones = (
        spelled(traced, *(line.replace("{fill}", fill) for line in lines))
        for fill in (
            "zeros((128, 512), dtype=nl.float32, buffer=nl.psum)",
            "full((128, 512), 1.0, dtype=nl.float32, buffer=nl.psum)",
        )
    )
    assert ones > zeros + 300


def test_an_instruction_on_a_column_does_two_operations_at_most(traced):
    chain = ["s = nl.multiply(s, 0.5)", "s = nl.add(s, 0.25)"]
    short = spelled(traced, "s = nl.max(t, axis=1)", *chain, "r = nl.add(t, s)")
    long = spelled(traced, "s = nl.max(t, axis=1)", *chain * 8, "r = nl.add(t, s)")
    assert long > short + 7 * 100
