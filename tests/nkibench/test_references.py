"""Each problem's reference against the same mathematics in float64, written in another way."""

from collections.abc import Callable

import numpy as np
import pytest

from nkibench import Regime, load_problem, problem_names
from nkibench.regime import change

Arrays = list[np.ndarray]


def silu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(x / 2))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - np.logaddexp.reduce(x, axis=-1, keepdims=True))


def rms(x: np.ndarray, eps: float = 0.0) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + eps)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    group = q.shape[2] // k.shape[2]
    keys, values = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    weights = softmax(np.einsum("bnhd,bmhd->bhnm", q, keys) / np.sqrt(q.shape[3]))
    return np.einsum("bhnm,bmhd->bhnd", weights, values)


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    first, second = x[: len(cos)], x[len(cos) :]
    turned = (first + 1j * second) * (cos + 1j * sin)
    return np.vstack([turned.real, turned.imag])


def adamw_step(theta: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    rate, decay, beta1, beta2 = 1e-3, 1e-2, 0.9, 0.999
    m_hat = (beta1 * m + (1 - beta1) * g) / (1 - beta1)
    v_hat = (beta2 * v + (1 - beta2) * g**2) / (1 - beta2)
    return theta - rate * decay * theta - rate * m_hat / (np.sqrt(v_hat) + 1e-8)


def selective_scan(
    delta: np.ndarray, u: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> np.ndarray:
    # In closed form, D the running sum of delta: h[t] = sum for r <= t of exp(a * (D[t] - D[r])) * update[r].
    running = np.cumsum(delta, axis=1)
    out = np.zeros_like(delta)
    for s in range(a.shape[1]):
        growth = np.exp(a[:, s, None] * running)
        out += c[s] * growth * np.cumsum(delta * u * b[s] / growth, axis=1)
    return out


INDEPENDENT: dict[str, Callable[..., np.ndarray]] = {
    "adamw": adamw_step,
    "add_rmsnorm_matmul": lambda x, w, eps, z, g: np.einsum("mk,k,kn->mn", (x + z) / rms(x + z, eps), g, w),
    "bmm": lambda lhs, rhs: np.einsum("bmk,bkn->bmn", lhs, rhs),
    "bmm_softmax": lambda lhs, rhs: softmax(np.einsum("bmk,bkn->bmn", lhs, rhs)),
    "gqa_full": attention,
    "lora": lambda x, w, a, b: x @ (w + a @ b),
    "mamba": selective_scan,
    "matmul": lambda lhs, rhs: np.einsum("mk,kn->mn", lhs, rhs),
    "matmul_add_rmsnorm": lambda x, w, eps, z, g: (x @ w + z) / rms(x @ w + z, eps) * g,
    "rmsnorm_matmul": lambda x, w: (x @ w) / rms(x),
    "rope_single_freq_apply": rotated,
    "silu": silu,
    "swiglu": lambda x, up, down, gate: (silu(x @ gate) * (x @ up)) @ down,
    "transpose_matmul": lambda lhs, rhs: np.einsum("km,kn->mn", lhs, rhs),
}


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def test_every_problem_has_an_independent_computation() -> None:
    assert sorted(INDEPENDENT) == problem_names()


@pytest.mark.parametrize("name", sorted(INDEPENDENT))
def test_the_reference_computes_what_the_operator_is_defined_as(name: str) -> None:
    problem = load_problem(name)
    reference = problem.reference(small=True)
    inputs = reference.inputs(21)
    doubles = [value.astype(np.float64) if isinstance(value, np.ndarray) else value for value in inputs]
    expected = INDEPENDENT[name](*doubles)
    (output,) = reference.forward(inputs)
    (precise,) = reference.forward(inputs, np.float64)
    assert output.dtype == np.float32
    assert output.shape == expected.shape
    assert relative_error(output, expected) < problem.tolerance / 2
    assert relative_error(precise, expected) < 1e-10


@pytest.mark.parametrize("name", sorted(INDEPENDENT))
def test_inputs_are_fp32_and_as_large_as_the_work_formula_says(name: str) -> None:
    problem = load_problem(name)
    reference = problem.reference(small=True)
    inputs = reference.inputs(0)
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    moved = sum(array.nbytes for array in [*arrays, *reference.forward(inputs)])
    assert problem.work(small=True).min_traffic_bytes == moved


@pytest.mark.parametrize("name", sorted(INDEPENDENT))
def test_fp32_stands_every_regime_in_the_problems_domain(name: str) -> None:
    problem = load_problem(name)
    reference = problem.reference(small=True)
    drawn = reference.inputs(0)
    for regime in problem.regimes:
        inputs = change(drawn, regime, seed=0)
        (output,) = reference.forward(inputs)
        (precise,) = reference.forward(inputs, np.float64)
        assert np.isfinite(output).all(), regime
        error, scale = np.linalg.norm(output - precise), np.linalg.norm(precise)
        assert error <= problem.tolerance / 2 * scale, regime


def test_a_row_of_zeros_is_outside_the_domain_of_a_norm_without_epsilon() -> None:
    assert Regime.zeros not in load_problem("rmsnorm_matmul").regimes
    assert Regime.zeros in load_problem("add_rmsnorm_matmul").regimes
