"""Nests that become one, results that go to PSUM, chains that merge, fills that are distributed."""

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.compiler.program import Engine, Kind, Nest, executions
from tools.neuroncore.counters import total
from tools.neuroncore.ir import Buffer
from tools.neuroncore.machine import TRN1

TWO_NESTS = """
out = nl.ndarray((4, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
kept = nl.ndarray((4, nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.sbuf)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
for i in nl.affine_range(4):
    kept[i, p, f] = nl.exp(nl.load(x[i, p, f]))
for j in nl.affine_range({trips}):
    nl.store(out[j, p, f], nl.square(kept[{index}, p, f]))
return out
"""


def ops(kernel, kind):
    return [op for op, _ in compile_kernel(kernel, TRN1).walk() if op.kind is kind]


def top_loops(kernel):
    return [node for node in compile_kernel(kernel, TRN1).body if isinstance(node, Nest)]


def test_adjacent_nests_over_the_same_tiles_become_one(traced):
    assert len(top_loops(traced(TWO_NESTS.format(trips=4, index="j"), x=(4, 128, 512)))) == 1


def test_nests_with_other_trip_counts_stay_apart(traced):
    assert len(top_loops(traced(TWO_NESTS.format(trips=3, index="j"), x=(4, 128, 512)))) == 2


def test_nests_that_meet_across_iterations_stay_apart(traced):
    assert len(top_loops(traced(TWO_NESTS.format(trips=4, index="3 - j"), x=(4, 128, 512)))) == 2
    shifted = TWO_NESTS.replace("(4, nl.par_dim", "(5, nl.par_dim").format(trips=4, index="j + 1")
    assert len(top_loops(traced(shifted, x=(4, 128, 512)))) == 2


def test_one_operand_of_a_computed_pair_goes_to_psum(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
a, b = nl.load(x), nl.load(y)
nl.store(out, nl.add(nl.multiply(a, 0.9), nl.multiply(b, 0.1)))
return out
"""
    (pair,) = ops(traced(body, x=(128, 512), y=(128, 512)), Kind.TENSOR_TENSOR)
    assert sorted(str(a.tensor.buffer) for a in pair.reads) == ["psum", "sbuf"]


def test_a_loaded_partner_keeps_both_in_sbuf(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
a = nl.load(x)
nl.store(out, nl.multiply(a, nl.exp(a)))
return out
"""
    (pair,) = ops(traced(body, x=(128, 512)), Kind.TENSOR_TENSOR)
    assert all(a.tensor.buffer is Buffer.SBUF for a in pair.reads)


def test_tiny_scalar_chains_merge_and_wide_ones_do_not(traced):
    body = """
out = nl.ndarray((128, {n}), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store(out, nl.add(nl.load(x) / 7, 1e-5))
return out
"""
    assert len(ops(traced(body.format(n=1), x=(128, 1)), Kind.TENSOR_SCALAR)) == 1
    assert len(ops(traced(body.format(n=512), x=(128, 512)), Kind.TENSOR_SCALAR)) == 2


def test_open_tensor_scalar_runs_on_scalar_engine_unless_tiny_or_a_comparison(traced):
    body = """
out = nl.ndarray((128, {n}), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store(out, nisa.tensor_scalar(nl.load(x), op0={op}, operand0=2.0))
return out
"""
    engine = {}
    for n, op in ((512, "np.multiply"), (1, "np.multiply"), (512, "np.maximum")):
        (op_,) = ops(traced(body.format(n=n, op=op), x=(128, n)), Kind.TENSOR_SCALAR)
        engine[n, op] = op_.engine
    assert engine == {
        (512, "np.multiply"): Engine.SCALAR,
        (1, "np.multiply"): Engine.VECTOR,
        (512, "np.maximum"): Engine.VECTOR,
    }


def test_an_accumulator_is_zeroed_tile_by_tile(traced):
    body = """
out = nl.ndarray((6, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
total = nl.zeros((6, nl.par_dim(128), 512), dtype=x.dtype)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
for step in nl.affine_range(3):
    for i in nl.affine_range(6):
        total[i, p, f] += nl.load(x[step, i, p, f])
for i in nl.affine_range(6):
    nl.store(out[i, p, f], total[i, p, f])
return out
"""
    program = compile_kernel(traced(body, x=(3, 6, 128, 512)), TRN1)
    fills = [(op, loops) for op, loops in program.walk() if op.kind is Kind.MEMSET]
    assert [op.elements for op, _ in fills] == [512]
    assert executions(*fills[0]) == 6


def test_a_result_on_other_partitions_costs_one_copy(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(64)[:, None], nl.arange(512)[None, :]
a, b = nl.load(x[p, f]), nl.load(x[p + 64, f])
both = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
both[p + {start}, f] = nisa.tensor_tensor(a, b, nl.add)
both[p + {other}, f] = nisa.tensor_tensor(a, b, nl.subtract)
nl.store(out, both)
return out
"""
    kernel = traced(body.format(start=64, other=0), x=(128, 512))
    assert len(ops(kernel, Kind.COPY)) == 1


def test_vector_engine_traffic_of_tensor_tensor_is_not_counted(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
a = nl.load(x)
nl.store(out, nisa.tensor_tensor(a, a, nl.add))
return out
"""
    counted = total(compile_kernel(traced(body, x=(128, 512)), TRN1), TRN1).bytes
    assert counted["sbuf_read_bytes"] == counted["sbuf_write_bytes"] == 128 * 512 * 4


def test_a_fill_of_several_blocks_counts_elements_of_a_partition(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
kept = nl.zeros((3, nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.sbuf)
nl.store(out, nl.add(nl.add(nl.add(nl.load(x), kept[0]), kept[1]), kept[2]))
return out
"""
    fills = ops(traced(body, x=(128, 512)), Kind.MEMSET)
    assert sum(op.elements for op in fills) == 3 * 512


def test_what_was_written_in_between_is_loaded_again(traced):
    body = """
out = nl.ndarray((4, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
held = nl.ndarray((4, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
for i in nl.affine_range(4):
    nl.store(held[i], nl.load(x[i]))
for i in nl.affine_range(4):
    nl.store(held[i], nl.exp(nl.load(held[i])))
for i in nl.affine_range(4):
    nl.store(out[i], nl.exp(nl.load(held[i])))
return out
"""
    found = total(compile_kernel(traced(body, x=(4, 128, 512)), TRN1), TRN1).bytes
    assert found["spill_reload_bytes"] == found["spill_save_bytes"] == 2 * 4 * 128 * 512 * 4
