"""Lanes are fixed: what is computed elsewhere than its operands lie, or of operands that lie apart, costs copies."""

import pytest

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.machine import TRN1

BODY = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
t, r = nl.load(x), nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
{body}
nl.store(out, r)
return out
"""


def shifts(traced, body):
    program = compile_kernel(traced(BODY.format(body=body), x=(128, 512)), TRN1)
    return [op for op, _ in program.walk() if op.label == "lane shift"]


@pytest.mark.parametrize(
    "body",
    [
        "r[0:64, :] = nl.exp(t[64:128, :])",
        "r[64:128, :] = nisa.tensor_tensor(t[0:64, :], t[0:64, :], nl.add)",
        "r[0:64, :] = nisa.tensor_tensor(t[0:64, :], t[64:128, :], nl.add)",
        "for k in nl.affine_range(2):\n    r[nl.ds(64 - 64 * k, 64), :] = nl.exp(t[nl.ds(64 * k, 64), :])",
    ],
)
def test_another_half_of_the_lanes_is_reached_by_a_copy(traced, body):
    assert len(shifts(traced, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "r[64:128, :] = nl.exp(t[64:128, :])",
        "for k in nl.affine_range(2):\n    r[nl.ds(64 * k, 64), :] = nl.exp(t[nl.ds(64 * k, 64), :])",
        "low = nl.exp(t[64:128, :])\nr[64:128, :] = nl.add(low, t[64:128, :])",
        "other = nl.load(x[0:64, :])\nr[64:128, :] = nl.add(t[64:128, :], other)",
    ],
)
def test_small_tiles_lie_where_they_are_used(traced, body):
    assert not shifts(traced, body)


def test_a_small_tile_that_is_used_in_both_halves_is_copied_for_one(traced):
    body = "low = nl.exp(t[64:128, :])\nr[0:64, :] = nl.add(t[0:64, :], low)"
    assert len(shifts(traced, body)) == 1
