"""The later `nki` package: one IR beneath both dialects, its own accumulation rule, its view methods, its refusals."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from tools.neuroncore import ArraySpec, NKIError, trace
from tools.neuroncore.interpreter import interpret
from tools.neuroncore.ir import Kernel

LATER = """\
import numpy as np
import nki
import nki.language as nl
import nki.isa as nisa

@nki.jit
def kernel({parameters}):
{body}
"""


def later(body: str, parameters: str = "x") -> str:
    """A kernel of the later dialect around a body."""
    return LATER.format(
        parameters=parameters, body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    )


def run(body: str, *arrays: np.ndarray, parameters: str = "x", target: str = "trn2") -> np.ndarray:
    """Trace and execute; the first output."""
    return interpret(trace(later(body, parameters), arrays, target=target), arrays)[0]


def ops(kernel: Kernel) -> list[str]:
    """API names in program order."""
    return [instr.op for instr, _ in kernel.walk()]


RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    """Seeded fp32 values."""
    return RNG.standard_normal(shape, dtype=np.float32)


def test_both_dialects_of_a_kernel_compute_the_same() -> None:
    beta1 = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        t = nl.load(x[i * 128:(i + 1) * 128, 0:512])
        u = nisa.activation(op=nl.exp, data=t, scale=-1.0)
        nl.store(out[i * 128:(i + 1) * 128, 0:512], u)
    return out
"""
    body = """
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i * 128:(i + 1) * 128, 0:512])
        nisa.activation(dst=u, op=nl.exp, data=t, scale=-1.0)
        nisa.dma_copy(dst=out[i * 128:(i + 1) * 128, 0:512], src=u)
    return out
    """
    x = normal(256, 512)
    first, second = trace(beta1, [x]), trace(later(body), [x])
    assert ops(first) == ops(second) == ["nl.load", "nisa.activation", "nl.store"]
    np.testing.assert_array_equal(interpret(first, [x])[0], interpret(second, [x])[0])


MATMUL = """
out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
acc = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
for k in nl.affine_range(4):
    a = nl.load(x[k * 128:(k + 1) * 128, 0:128])
    b = nl.load(y[k * 128:(k + 1) * 128, 0:256])
    nisa.nc_matmul(dst=acc, stationary=a, moving=b{accumulate})
res = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_copy(dst=res, src=acc)
nisa.dma_copy(dst=out, src=res)
return out
"""


def test_the_first_matmul_into_a_psum_tile_overwrites_and_later_ones_accumulate() -> None:
    x, y = normal(512, 128), normal(512, 256)
    got = run(MATMUL.format(accumulate=""), x, y, parameters="x, y")
    np.testing.assert_allclose(got, x.T @ y, rtol=1e-4, atol=1e-4)


def test_accumulate_can_be_said_per_iteration() -> None:
    x, y = normal(512, 128), normal(512, 256)
    got = run(MATMUL.format(accumulate=", accumulate=(k > 0)"), x, y, parameters="x, y")
    np.testing.assert_allclose(got, x.T @ y, rtol=1e-4, atol=1e-4)


def test_a_lone_matmul_neither_accumulates_nor_needs_a_zero() -> None:
    body = """
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(acc, nl.load(x), nl.load(y))
    nl.store(out, nl.copy(acc))
    return out
    """
    kernel = trace(later(body, "x, y"), [normal(128, 128), normal(128, 256)], target="trn2")
    assert ops(kernel) == ["nl.load", "nl.load", "nisa.nc_matmul", "nl.copy", "nl.store"]
    assert "accumulate" not in next(i for i, _ in kernel.walk() if i.op == "nisa.nc_matmul").attrs


def test_tiles_may_live_in_python_lists() -> None:
    body = """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = []
    for k in nl.affine_range(4):
        t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[0:128, k * 128:(k + 1) * 128])
        tiles.append(t)
    for k in nl.affine_range(4):
        nisa.dma_copy(dst=out[0:128, k * 128:(k + 1) * 128], src=tiles[3 - k])
    return out
    """
    x = normal(128, 512)
    expected = np.concatenate([x[:, k * 128 : (k + 1) * 128] for k in (3, 2, 1, 0)], axis=1)
    np.testing.assert_array_equal(run(body, x), expected)


ELEMENTWISE = {
    "tensor_tensor": ("nisa.tensor_tensor(u, t, t, op=nl.multiply)", lambda x: x * x),
    "tensor_scalar": ("nisa.tensor_scalar(u, t, nl.multiply, 2.0, False, nl.add, 1.0)", lambda x: x * 2 + 1),
    "reversed_tensor_scalar": ("nisa.tensor_scalar(u, t, np.subtract, 1.0, reverse0=True)", lambda x: 1 - x),
    "reciprocal": ("nisa.reciprocal(dst=u, data=t)", lambda x: 1 / x),
    "activation_with_a_constant_bias": ("nisa.activation(u, nl.square, t, bias=1.0)", lambda x: (x + 1) ** 2),
    "memset": ("nisa.memset(u, 3.0)", lambda x: np.full_like(x, 3)),
    "iota": (
        "nisa.iota(u, pattern=[[2, 64]], offset=5, channel_multiplier=100)",
        lambda x: 5 + 100 * np.arange(128)[:, None] + 2 * np.arange(64)[None, :] + 0 * x,
    ),
    "affine_select": (
        "nisa.affine_select(u, [[-1, 64]], 1, t, -7.0, cmp_op=nl.greater_equal, offset=0)",
        lambda x: np.where(np.arange(128)[:, None] >= np.arange(64)[None, :], x, np.float32(-7)),
    ),
    "tensor_copy_predicated": (
        "nisa.memset(u, 0.0)\nnisa.tensor_copy_predicated(u, t, nl.greater(t, 0.0))",
        lambda x: np.where(x > 0, x, 0),
    ),
    "select_reduce": (
        "nisa.select_reduce(u, nl.greater(t, 0.0), t, -1.0)",
        lambda x: np.where(x > 0, x, np.float32(-1)),
    ),
    "scan": (
        "nisa.tensor_tensor_scan(u, t, t, 0.5, nl.multiply, nl.add)",
        lambda x: _scan(x),
    ),
}


def _scan(x: np.ndarray) -> np.ndarray:
    state = np.full(x.shape[0], 0.5, np.float64)
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        state = x[:, i] * state + x[:, i]
        out[:, i] = state
    return out


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_instruction_writes_its_result_into_dst(name: str) -> None:
    call, expected = ELEMENTWISE[name]
    body = f"""\
out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
t = nl.load(x)
u = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
{call}
nl.store(out, u)
return out
"""
    x = normal(128, 64)
    np.testing.assert_allclose(run(body, x), expected(x), rtol=2e-5, atol=1e-5)


REDUCING = {
    "tensor_reduce": ("nisa.tensor_reduce(r, nl.add, t, axis=1)", lambda x: x.sum(1, keepdims=True)),
    "negated_max": (
        "nisa.tensor_reduce(r, nl.maximum, t, axis=1, negate=True)",
        lambda x: -x.max(1, keepdims=True),
    ),
    "activation_with_reduction": (
        "u = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.activation(u, nl.square, t, reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
        lambda x: (x * x).sum(1, keepdims=True),
    ),
    "tensor_scalar_reduce": (
        "u = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.tensor_scalar_reduce(u, t, nl.multiply, 2.0, nl.maximum, r)",
        lambda x: (2 * x).max(1, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", REDUCING)
def test_a_reduction_lands_in_its_result_tile(name: str) -> None:
    call, expected = REDUCING[name]
    body = f"""\
out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
t = nl.load(x)
r = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
{call}
nl.store(out, r)
return out
"""
    x = normal(128, 64)
    np.testing.assert_allclose(run(body, x), expected(x), rtol=1e-5, atol=1e-4)


def test_transposes_go_through_psum() -> None:
    body = """
    out = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
    s = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_transpose(p, nl.load(x))
    nisa.tensor_copy(s, p)
    nisa.dma_copy(dst=out, src=s)
    return out
    """
    x = normal(128, 64)
    np.testing.assert_array_equal(run(body, x), x.T)


VIEWS = {
    "slice": ("x.slice(1, 8, 24)", lambda x: x[:, 8:24]),
    "select": ("x.reshape((128, 4, 16)).select(1, 2)", lambda x: x.reshape(128, 4, 16)[:, 2]),
    "permute": (
        "x.reshape((128, 4, 16)).permute((0, 2, 1))",
        lambda x: x.reshape(128, 4, 16).transpose(0, 2, 1),
    ),
    "reshape_dim": ("x.reshape_dim(1, (4, 16))", lambda x: x.reshape(128, 4, 16)),
    "expand_then_broadcast": (
        "x.expand_dim(1).broadcast(1, 3)",
        lambda x: np.broadcast_to(x[:, None, :], (128, 3, 64)),
    ),
    "rearrange": (
        "x.rearrange(('p', ('h', 'w')), ('p', 'w', 'h'), {'h': 4})",
        lambda x: x.reshape(128, 4, 16).transpose(0, 2, 1),
    ),
    "access_pattern": ("x.ap(pattern=[[64, 128], [2, 16]], offset=3)", lambda x: x[:, 3 : 3 + 32 : 2]),
    "strided_rows": ("x.ap([[128, 64], [1, 64]], offset=64)", lambda x: x[1::2]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_hbm_loads_the_elements_it_names(name: str) -> None:
    view, expected = VIEWS[name]
    x = normal(128, 64)
    want = expected(x)
    body = f"""\
v = {view}
out = nl.ndarray(v.shape, dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(out, nl.load(v))
return out
"""
    np.testing.assert_array_equal(run(body, x), want)


def test_rows_can_be_gathered_by_an_index_tile() -> None:
    body = """
    out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    i = nl.load(idx)
    t = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x.vector_select(0, i))
    nl.store(out, t)
    return out
    """
    x = normal(128, 64)
    idx = RNG.integers(0, 128, (32, 1)).astype(np.int32)
    np.testing.assert_array_equal(run(body, x, idx, parameters="x, idx"), x[idx[:, 0]])


REFUSED = {
    "a_mask": ("nisa.tensor_copy(u, t)\nnl.store(out, nl.exp(t, mask=True))", "unexpected_argument", "slice"),
    "a_dtype": ("nisa.activation(u, nl.exp, t, dtype=nl.float32)", "unexpected_argument", "dst"),
    "block_dimensions": (
        "b = nl.ndarray((2, nl.par_dim(128), 64), dtype=nl.float32)",
        "unknown_api",
        "",
    ),
    "a_matmul_into_sbuf": ("nisa.nc_matmul(u, t, t)", "err_unsupported_memory", "Move"),
    "a_dst_of_another_size": ("nisa.tensor_reduce(u, nl.add, t, axis=1)", "shape_mismatch", ""),
    "an_instruction_of_a_newer_core": ("nisa.exponential(u, t)", "unsupported_api", ""),
    "an_unknown_instruction": ("nisa.tensor_copyy(u, t)", "unknown_api", "tensor_copy"),
    "a_pattern_beyond_the_tensor": ("nl.load(x.ap([[64, 128], [1, 128]]))", "unsupported_view", "reshape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_dialect_does_not_have_is_refused_with_advice(name: str) -> None:
    call, error, advice = REFUSED[name]
    body = f"""\
out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
t = nl.load(x)
u = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
{call}
nl.store(out, t)
return out
"""
    with pytest.raises(NKIError) as caught:
        trace(later(body), [ArraySpec((128, 64))], target="trn2")
    assert caught.value.name == error, caught.value
    assert caught.value.line == 8 + body.splitlines().index(call.splitlines()[-1])
    assert advice.lower() in (caught.value.remedy or "").lower()


def test_shared_hbm_created_in_a_loop_is_a_scratch_tensor_of_each_iteration() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        t = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.sbuf)
        u = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.sbuf)
        between = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=t, src=x[32 * i : 32 * (i + 1)])
        nisa.dma_copy(dst=between, src=t)
        nisa.dma_copy(dst=u, src=between)
        nisa.dma_copy(dst=out[32 * i : 32 * (i + 1)], src=u)
    return out
    """
    x = normal(128, 20)
    np.testing.assert_array_equal(run(body, x), x)
