"""What does not fit: read again, spilled, or in part."""

import pytest

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.counters import total
from tools.neuroncore.errors import NKIError
from tools.neuroncore.machine import TRN1

KIB = 1024

TWO_PASSES = """
out = nl.ndarray(({tiles}, 128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
kept = nl.ndarray(({tiles}, nl.par_dim(128), 2048), dtype=x.dtype, buffer=nl.sbuf)
peak = nl.ndarray((nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
p, f = nl.arange(128)[:, None], nl.arange(2048)[None, :]
for i in nl.affine_range({tiles}):
    kept[i, p, f] = nl.exp(nl.load(x[i, p, f]))
    part = nisa.tensor_reduce(np.max, data=kept[i, p, f], axis=[1])
    peak[p, 0] = nl.loop_reduce(part, op=np.max, loop_indices=[i])
for i in nl.affine_range({tiles}):
    nl.store(out[i, p, f], nisa.tensor_scalar(kept[i, p, f], op0=np.multiply, operand0=peak))
return out
"""


def counted(kernel):
    return total(compile_kernel(kernel, TRN1), TRN1).bytes


def test_what_fits_is_not_spilled(traced):
    assert counted(traced(TWO_PASSES.format(tiles=16), x=(16, 128, 2048)))["spill_save_bytes"] == 0


def test_of_values_used_once_more_only_what_does_not_fit_is_spilled(traced):
    found = counted(traced(TWO_PASSES.format(tiles=64), x=(64, 128, 2048)))
    assert found["spill_save_bytes"] == found["spill_reload_bytes"]
    spilled_kib = found["spill_save_bytes"] / 128 / KIB
    assert 512 - 176 < spilled_kib < 512 - 120


def test_weights_too_large_beside_the_body_are_read_in_every_pass_and_not_ahead(kernel_of):
    program = compile_kernel(kernel_of("matmul_blocked"), TRN1)
    found = total(program, TRN1).bytes
    weights, rows = 40 * 128 * 12288 * 4, 32 * 128 * 5120 * 4
    assert found["hbm_read_bytes"] == 32 * weights + 12 * rows + 128 * 128 * 4
    assert found["spill_save_bytes"] == 0
    assert any("read again in every pass" in note for note in program.notes)


def test_of_two_large_accumulators_one_leaves(kernel_of):
    found = counted(kernel_of("mamba_states_outside"))
    tile = 128 * 7168 * 4
    assert found["spill_save_bytes"] == found["spill_reload_bytes"] == 15 * tile


@pytest.mark.parametrize("length", [7168, 8192])
def test_one_large_accumulator_stays(kernel_of, length):
    shapes = ((256, length), (256, length), (256, 16), (16, length), (16, length))
    assert counted(kernel_of("mamba_channels_outside", shapes))["spill_save_bytes"] == 0


def test_a_larger_memory_spills_less(traced):
    body = TWO_PASSES.format(tiles=64)
    larger = TRN1.replace(sbuf_usable_bytes=600 * KIB)
    kernel = traced(body, x=(64, 128, 2048))
    assert total(compile_kernel(kernel, larger), larger).bytes["spill_save_bytes"] == 0


OPEN_PRODUCTS = """
out = nl.ndarray(({banks}, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
total = nl.zeros(({banks}, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
for k in nl.affine_range(4):
    tile = nl.load(x[nl.ds(128 * k, 128), :])
    for j in nl.affine_range({banks}):
        total[j] += nisa.nc_matmul(tile[:, 0:128], tile)
for j in nl.affine_range({banks}):
    nl.store(out[j], nl.copy(total[j]))
return out
"""


def test_products_may_be_open_in_every_bank_of_psum_and_in_no_more(traced):
    compile_kernel(traced(OPEN_PRODUCTS.format(banks=8), x=(512, 512)), TRN1)
    with pytest.raises(NKIError, match="18 KiB per partition of matmul results") as caught:
        compile_kernel(traced(OPEN_PRODUCTS.format(banks=9), x=(512, 512)), TRN1)
    assert caught.value.name == "psum_capacity_exceeded"


CARRIED = """
out = nl.ndarray((16, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
totals = []
for j in range(16):
    totals.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.{buffer}))
for k in nl.sequential_range(4):
    tile = nl.load(x[nl.ds(128 * k, 128), :])
    for j in nl.static_range(16):
        total = totals[j]
        total[...] = nl.add(tile, 0.0, mask=(k <= 0))
        {update}
        nl.store(out[j], nl.copy(total), mask=(k >= 3))
return out
"""


def test_a_sum_that_a_mask_starts_lives_through_the_whole_loop(traced):
    # Each is first written in the body, but only in its first iteration.
    update = "total += nisa.nc_matmul(tile[:, 0:128], tile)"
    with pytest.raises(NKIError, match="32 KiB per partition"):
        compile_kernel(traced(CARRIED.format(buffer="psum", update=update), x=(512, 512)), TRN1)


MANY_SMALL = """
out = nl.ndarray((4, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
kept = []
for j in range({tiles}):
    kept.append(nl.load(x[128 * j:128 * j + 128, :]))
for k in nl.sequential_range(4):
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.static_range({tiles}):
        total[...] = nl.add(total, kept[j])
    nl.store(out[k], total)
return out
"""


def test_many_small_arrays_are_no_way_around_the_size_of_sbuf(traced):
    few = counted(traced(MANY_SMALL.format(tiles=64), x=(8192, 512)))
    assert few["hbm_read_bytes"] == 64 * 128 * 2048
    many = counted(traced(MANY_SMALL.format(tiles=256), x=(256 * 128, 512)))
    assert many["hbm_read_bytes"] > 2 * 256 * 128 * 2048


ONE_ARRAY = """
out = nl.ndarray((4, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
kept = nl.ndarray(({tiles}, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
for j in nl.static_range({tiles}):
    kept[j] = nl.load(x[128 * j:128 * j + 128, :])
for k in nl.sequential_range(4):
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.static_range({tiles}):
        total[...] = nl.add(total, kept[j])
    nl.store(out[k], total)
return out
"""


def test_an_array_used_part_by_part_takes_what_all_parts_take(traced):
    few = counted(traced(ONE_ARRAY.format(tiles=64), x=(8192, 512)))
    assert few["hbm_read_bytes"] == 64 * 128 * 2048
    many = counted(traced(ONE_ARRAY.format(tiles=256), x=(256 * 128, 512)))
    assert many["hbm_read_bytes"] > 2 * 256 * 128 * 2048
    unrolled = OPEN_PRODUCTS.replace("for j in nl.affine_range", "for j in nl.static_range")
    compile_kernel(traced(unrolled.format(banks=8), x=(512, 512)), TRN1)
    with pytest.raises(NKIError, match="18 KiB per partition of matmul results"):
        compile_kernel(traced(unrolled.format(banks=9), x=(512, 512)), TRN1)


PASSED_ON = """
out = nl.ndarray((64, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
tile = nl.load(x)
products = nl.ndarray((64, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
for i in nl.affine_range(64):
    products[i] = nisa.nc_matmul(tile[0:128, 0:128], tile)
for i in nl.affine_range(64):
    nl.store(out[i], nl.exp(products[{read}]))
return out
"""


def test_products_that_joined_loops_hand_on_need_room_for_one_iteration(traced):
    compile_kernel(traced(PASSED_ON.format(read="i"), x=(128, 512)), TRN1)


def test_products_that_cannot_be_handed_on_in_one_loop_are_all_open(traced):
    with pytest.raises(NKIError) as caught:
        compile_kernel(traced(PASSED_ON.format(read="63 - i"), x=(128, 512)), TRN1)
    assert caught.value.name == "psum_capacity_exceeded"


ROWS = """
out = nl.ndarray(({rows}, 16384), dtype=x.dtype, buffer=nl.shared_hbm)
kept = nl.ndarray(({rows}, nl.par_dim(1), 16384), dtype=nl.float32, buffer=nl.sbuf)
for r in nl.affine_range({rows}):
    kept[r] = nl.load(x[nl.ds(r, 1), :])
for r in nl.affine_range({rows}):
    nl.store(out[nl.ds(r, 1), :], nl.exp(kept[r]))
return out
"""


def test_rows_on_one_partition_have_the_room_of_the_four_that_engines_can_start_at(traced):
    compile_kernel(traced(ROWS.format(rows=9), x=(9, 16384)), TRN1)
    with pytest.raises(NKIError, match="on one partition") as caught:
        compile_kernel(traced(ROWS.format(rows=12), x=(12, 16384)), TRN1)
    assert caught.value.name == "sbuf_capacity_exceeded"
