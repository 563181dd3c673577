"""`tensor_tensor_scan` against the recurrence written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.neuroncore.interpreter.functions import BINARY
from tools.neuroncore.interpreter.scan import scan

from .execute import run

OPS = ("add", "multiply", "subtract", "maximum", "minimum")


def stepped(
    a: np.ndarray, b: np.ndarray, initial: object, op0: str, op1: str, r0: bool, r1: bool
) -> np.ndarray:
    out = np.empty_like(a)
    running = np.broadcast_to(np.asarray(initial, np.float32), (*a.shape[:-1], 1))[..., 0]
    for t in range(a.shape[-1]):
        x = BINARY[op0](running, a[..., t]) if r0 else BINARY[op0](a[..., t], running)
        running = BINARY[op1](b[..., t], x) if r1 else BINARY[op1](x, b[..., t])
        out[..., t] = running
    return out


@given(
    st.sampled_from([(1, 1), (3, 7), (5, 128), (2, 3, 64), (130, 9), (4, 262)]),
    st.sampled_from(OPS), st.sampled_from(OPS), st.booleans(), st.booleans(), st.sampled_from(["new", "a", "b"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_scan_is_the_recurrence(
    shape: tuple[int, ...], op0: str, op1: str, r0: bool, r1: bool, where: str
) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-0.9, 0.9, size=shape).astype(np.float32) for _ in range(2))
    initial = rng.normal(size=(*shape[:-1], 1)).astype(np.float32)
    expected = stepped(a, b, initial, op0, op1, r0, r1)
    out = {"new": np.empty_like(a), "a": a, "b": b}[where]
    scan(a, b, initial, op0, op1, r0, r1, out)
    if (op0, op1) == ("multiply", "add"):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("steps", [64, 67, 1000, 7168])
@pytest.mark.parametrize("decay", [(0.0, 0.2), (0.9, 1.1), (-1.0, 1.0), (0.99, 1.0)])
def test_composed_steps_are_as_exact_as_single_ones(steps: int, decay: tuple[float, float]) -> None:
    rng = np.random.default_rng(4)
    a = rng.uniform(*decay, size=(50, steps)).astype(np.float32)
    b = rng.normal(size=(50, steps)).astype(np.float32)
    initial = rng.normal(size=(50, 1)).astype(np.float32)
    out = np.empty_like(a)
    scan(a, b, initial, "multiply", "add", False, False, out)
    exact = np.empty(a.shape)
    running = initial[:, 0].astype(np.float64)
    for t in range(steps):
        running = a[:, t].astype(np.float64) * running + b[:, t]
        exact[:, t] = running
    single = np.linalg.norm(stepped(a, b, initial, "multiply", "add", False, False) - exact)
    assert np.linalg.norm(out - exact) <= 3 * single + 1e-6 * np.linalg.norm(exact)


def test_products_that_underflow_or_overflow_do_as_in_sequence() -> None:
    a = np.full((2, 400), 1e-30, np.float32)
    a[1] = 1e30
    b = np.zeros_like(a)
    b[0, 300] = 5
    out = np.empty_like(a)
    with np.errstate(all="ignore"):
        scan(a, b, 0.0, "multiply", "add", False, False, out)
        np.testing.assert_array_equal(out, stepped(a, b, 0.0, "multiply", "add", False, False))
    assert out[0, 300] == 5 and not out[1].any()


def test_rows_that_are_not_contiguous_are_scanned_too() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.uniform(size=(6, 40)).astype(np.float32).T for _ in range(2))
    out = np.empty((6, 40), np.float32).T
    scan(a, b, 1.0, "multiply", "add", False, False, out)
    np.testing.assert_allclose(out, stepped(a, b, 1.0, "multiply", "add", False, False), rtol=1e-6)


@pytest.mark.parametrize("columns", [12, 33])
def test_a_kernel_scans_many_tiles_at_once(columns: int) -> None:
    source = """
def kernel(a, b, first):
    tiles, rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(tiles):
        start = nl.load(first[i])
        decay = nl.exp(nl.load(a[i]))
        nl.store(out[i], nisa.tensor_tensor_scan(decay, nl.load(b[i]), initial=start, op0=np.multiply, op1=np.add))
    return out
"""
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(-1, 0, size=(5, 7, columns)).astype(np.float32) for _ in range(2))
    first = rng.normal(size=(5, 7, 1)).astype(np.float32)
    expected = stepped(np.exp(a), b, first, "multiply", "add", False, False)
    np.testing.assert_allclose(run(source, a, b, first), expected, rtol=1e-6, atol=1e-6)
