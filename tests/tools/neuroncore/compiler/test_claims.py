"""What a matmul claims of its operands is cheaper only where the kernel shows that it is so."""

import pytest

from tools.neuroncore.compiler import Kind, compile_kernel
from tools.neuroncore.machine import TRN1

PRODUCT = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
{left}
right = nl.load(x)
nl.store(out, nl.copy(nisa.nc_matmul(left, right, is_stationary_onezero=True)))
return out
"""

TURN = """
out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
{identity}
nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x[:, 0:128]), identity, is_moving_onezero=True, is_transpose=True)))
return out
"""


def products(kernel):
    return [op for op, _ in compile_kernel(kernel, TRN1).walk() if op.kind in (Kind.MATMUL, Kind.TRANSPOSE)]


@pytest.mark.parametrize(
    "left",
    [
        "left[...] = nl.ones((128, 128), dtype=nl.float32)",
        "left[...] = nl.load(nl.shared_constant(np.tri(128).astype(np.float32)))",
        "left[...] = nl.zeros((128, 128), dtype=nl.float32)\nleft[0:128, 0:1] = 1.0",
    ],
)
def test_one_pass_does_for_ones_and_zeros(traced, left):
    (op,) = products(traced(PRODUCT.format(left=left), x=(128, 512)))
    assert op.passes == 1 and op.stationary_resident


@pytest.mark.parametrize(
    "left",
    [
        "left[...] = nl.load(x[:, 0:128])",
        "left[...] = nl.ones((128, 128), dtype=nl.float32)\nleft[0:128, 0:1] = nl.load(x[:, 0:1])",
        "left[...] = nl.full((128, 128), 0.5, dtype=nl.float32)",
        "left[...] = nl.load(nl.shared_constant(2 * np.tri(128).astype(np.float32)))",
        "ones = nl.ones((128, 128), dtype=nl.float32)\nleft[...] = nl.add(ones, ones)",
    ],
)
def test_two_passes_are_needed_for_anything_else(traced, left):
    (op,) = products(traced(PRODUCT.format(left=left), x=(128, 512)))
    assert op.passes == 2 and not op.stationary_resident


def test_a_matmul_by_the_identity_is_a_transpose(traced):
    identity = "identity = nl.load(nl.shared_identity_matrix(128, dtype=nl.float32))"
    assert [op.kind for op in products(traced(TURN.format(identity=identity), x=(128, 512)))] == [
        Kind.TRANSPOSE
    ]


@pytest.mark.parametrize(
    "identity", ["identity = nl.load(x[:, 128:256])", "identity = nl.ones((128, 128), dtype=nl.float32)"]
)
def test_a_matmul_by_anything_else_is_none_whatever_it_is_called(traced, identity):
    (op,) = products(traced(TURN.format(identity=identity), x=(128, 512)))
    assert op.kind is Kind.MATMUL
