"""What runs once, and what does not."""

import pytest

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.compiler.program import Kind, executions
from tools.neuroncore.counters import total
from tools.neuroncore.machine import TRN1

WEIGHTS = """
out = nl.ndarray(({rows} * 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f, k_ = nl.arange(128)[:, None], nl.arange(512)[None, :], nl.arange(128)[None, :]
for i in nl.affine_range({rows}):
    rows = nl.load(x[128 * i + p, nl.arange({k} * 128)[None, :]])
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range({k}):
        weights = nl.load(w[128 * k + p, f])
        total += nl.matmul(rows[p, 128 * k + k_], weights)
    nl.store(out[128 * i + p, f], nl.copy(total))
return out
"""


def read(kernel):
    return total(compile_kernel(kernel, TRN1), TRN1).bytes["hbm_read_bytes"]


def count(kernel, kind):
    return sum(executions(op, loops) for op, loops in compile_kernel(kernel, TRN1).walk() if op.kind is kind)


def test_weights_that_fit_are_loaded_once_however_deep_the_load_sits(traced):
    kernel = traced(WEIGHTS.format(rows=8, k=4), x=(1024, 512), w=(512, 512))
    assert read(kernel) == (1024 * 512 + 512 * 512 + 128 * 128) * 4


def test_weights_that_do_not_fit_are_read_as_written(traced):
    # 128 tiles of 2 KiB are 256 KiB per partition.
    kernel = traced(WEIGHTS.format(rows=3, k=128), x=(384, 16384), w=(16384, 512))
    assert read(kernel) == (384 * 16384 + 3 * 16384 * 512 + 128 * 128) * 4


def test_transposes_hidden_in_matmul_are_never_hoisted(traced):
    body = """
out = nl.ndarray((4, 128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(128)[None, :]
for n in nl.affine_range(4):
    product = nl.matmul(nl.load(x[p, f]), nl.load(w[n, p, f]))
    nl.store(out[n, p, f], nl.copy(product))
return out
"""
    assert count(traced(body, x=(128, 128), w=(4, 128, 128)), Kind.TRANSPOSE) == 4


def test_explicit_transposes_and_their_evictions_are_hoisted(traced):
    body = """
out = nl.ndarray((4, 128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(128)[None, :]
identity = nl.load(nl.shared_constant(np.identity(128, dtype=np.float32)))
for n in nl.affine_range(4):
    rows = nl.load(x[p, f])
    turned = nl.copy(nisa.nc_matmul(rows, identity, is_moving_onezero=True, is_transpose=True))
    product = nisa.nc_matmul(turned, nl.load(w[n, p, f]))
    nl.store(out[n, p, f], nl.copy(product))
return out
"""
    kernel = traced(body, x=(128, 128), w=(4, 128, 128))
    assert count(kernel, Kind.TRANSPOSE) == 1
    # one eviction of the transpose, one of each product
    assert count(kernel, Kind.COPY) == 5


def test_a_carried_accumulator_is_not_invariant(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
tile, total = nl.load(x), nl.zeros((128, 512), dtype=x.dtype)
for i in nl.affine_range(6):
    total[...] += tile
nl.store(out, total)
return out
"""
    assert count(traced(body, x=(128, 512)), Kind.TENSOR_TENSOR) == 6


def test_a_broadcast_row_is_spread_once(traced):
    body = """
out = nl.ndarray((8, 128, 1024), dtype=x.dtype, buffer=nl.shared_hbm)
row = nl.load(g[nl.arange(1)[:, None], nl.arange(1024)[None, :]])
p, f = nl.arange(128)[:, None], nl.arange(1024)[None, :]
for i in nl.affine_range(8):
    nl.store(out[i, p, f], nl.multiply(nl.load(x[i, p, f]), row.broadcast_to((128, 1024))))
return out
"""
    assert count(traced(body, x=(8, 128, 1024), g=(1, 1024)), Kind.BROADCAST) == 2


INDICES = """
out = nl.ndarray(({n}, 128, 16), dtype=nl.float32, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(16)[None, :]
held = nl.load(x)
for i in nl.affine_range({n}):
    tile = {value}
    nl.store(out[i, p, f], nl.add(tile, held))
return out
"""


def test_an_index_as_a_value_varies_with_the_loops_it_names(traced):
    for value in (
        "nisa.iota({step} * i + f + p, dtype=nl.int32)",
        "nisa.affine_select({step} * i + f < p, held, 0.0)",
    ):
        moving, still = (
            count(traced(INDICES.format(n=12, value=value.format(step=step)), x=(128, 16)), Kind.GPSIMD_MISC)
            for step in (4, 0)
        )
        assert (moving, still) == (12, 1)


EVERY_TIME = {
    "rows gathered by a pattern of the index": "idx = nisa.iota(p + 128 * i, dtype=nl.int32)\n    t = nl.load(x[idx[p, 0], f])",
    "a selection by the index": "t = nisa.affine_select(pred=(f - 128 * i >= 0), on_true_tile=same, on_false_value=0.0)",
    "random numbers": "t = nl.add(same, nl.rand((128, 512), dtype=nl.float32))",
    "a copy from a place that is read": (
        "idx = nl.load(w[i, 0:1, 0:1], dtype=nl.int32)\n"
        "    t = nisa.tensor_copy_dynamic_src(same[p, idx[0, 0] + nl.arange(1)[None, :]])"
    ),
}


@pytest.mark.parametrize("case", EVERY_TIME)
def test_what_depends_on_the_iteration_otherwise_than_by_its_tiles_runs_in_each(traced, case):
    body = f"""
out = nl.ndarray((8, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
same = nl.load(x[p, f])
for i in nl.affine_range(8):
    {EVERY_TIME[case]}
    nl.store(out[i, p, f], nl.add(nl.exp(t), same))
return out
"""
    assert count(traced(body, x=(1024, 512), w=(8, 1, 1)), Kind.ACTIVATE) == 8
