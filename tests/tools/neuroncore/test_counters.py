"""Counters of kernels of measured shapes, against neuron-profile's, to the byte."""

import pytest

from nkibench import trn1_profiles
from tools.fidelity import BYTE_COUNTERS
from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.counters import profile_fields, total
from tools.neuroncore.machine import TRN1


def errors(kernel, problem):
    program = compile_kernel(kernel, TRN1)
    fields = profile_fields(total(program, TRN1), 1e6, TRN1)
    measured = trn1_profiles()[problem]
    return {n: fields[n] / measured[n] - 1 for n in BYTE_COUNTERS if measured.get(n)}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("silu_chunked", "silu"),
        ("adamw_chunked", "adamw"),
        ("matmul_blocked", "matmul"),
        ("rope_narrow", "rope_single_freq_apply"),
        ("mamba_states_outside", "mamba"),
    ],
)
def test_every_counter_is_exact(kernel_of, name, problem):
    found = errors(kernel_of(name), problem)
    assert found and all(abs(e) < 1e-6 for e in found.values()), found


def test_spilled_scores_are_within_two_percent_and_engines_nearly_exact(kernel_of):
    found = errors(kernel_of("bmm_softmax_two_pass"), "bmm_softmax")
    assert all(abs(e) < 0.02 for e in found.values()), found
    assert (
        found["hardware_flops"]
        == found["transpose_flops"]
        == found["psum_write_bytes"]
        == pytest.approx(0, abs=1e-3)
    )


def test_an_fp32_matmul_counts_twice_and_a_bf16_one_once(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
product = nisa.nc_matmul(nl.load(x), nl.load(y))
nl.store(out, nl.copy(product, dtype=x.dtype))
return out
"""
    flops = {}
    for dtype in ("float32", "bfloat16"):
        program = compile_kernel(traced(body, dtype=dtype, x=(128, 128), y=(128, 512)), TRN1)
        flops[dtype] = total(program, TRN1).bytes["hardware_flops"]
    assert flops["bfloat16"] == 2 * 128 * 128 * 512
    assert flops["float32"] == 2 * flops["bfloat16"]


def test_a_masked_tail_moves_only_what_is_valid(traced):
    body = """
out = nl.ndarray((300, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
for i in nl.affine_range(3):
    tile = nl.load(x[128 * i + p, f], mask=128 * i + p < 300)
    nl.store(out[128 * i + p, f], tile, mask=128 * i + p < 300)
return out
"""
    counted = total(compile_kernel(traced(body, x=(300, 512)), TRN1), TRN1).bytes
    assert counted["hbm_read_bytes"] == counted["hbm_write_bytes"] == 300 * 512 * 4


def test_scratch_in_hbm_counts_as_spill(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
scratch = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.hbm)
nl.store(scratch, nl.load(x))
nl.store(out, nl.load(scratch))
return out
"""
    counted = total(compile_kernel(traced(body, x=(128, 512)), TRN1), TRN1).bytes
    assert counted["spill_save_bytes"] == counted["spill_reload_bytes"] == 128 * 512 * 4


def test_a_dma_that_adds_to_memory_reads_it_first(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store(out, nl.load(x))
tile = nl.load(x)
nisa.dma_copy(dst=out, src=tile{how})
return out
"""
    plain = total(compile_kernel(traced(body.format(how=""), x=(128, 512)), TRN1), TRN1)
    adding = total(compile_kernel(traced(body.format(how=", dst_rmw_op=np.add"), x=(128, 512)), TRN1), TRN1)
    tile = 128 * 512 * 4
    assert adding.bytes["hbm_read_bytes"] == plain.bytes["hbm_read_bytes"] + tile
    assert adding.bytes["hbm_write_bytes"] == plain.bytes["hbm_write_bytes"]


TURNED = """
out = nl.ndarray((128, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
turned = nl.ndarray((128, 32, 64), dtype=x.dtype, buffer=nl.{where})
p, a, b = nl.arange(128)[:, None, None], nl.arange(64)[None, :, None], nl.arange(32)[None, None, :]
tile = nl.load(x)
nisa.dma_copy(dst=turned{to}, src={source}[p, a, b])
nl.store(out, tile)
return out
"""


@pytest.mark.parametrize("where", ["sbuf", "hbm"])
@pytest.mark.parametrize("source", ["x", "tile"])
def test_a_dma_that_exchanges_axes_moves_single_elements(traced, where, source):
    def pieces(to):
        kernel = traced(TURNED.format(where=where, to=to, source=source), x=(128, 64, 32))
        return [op.transfer.piece_bytes for op, _ in compile_kernel(kernel, TRN1).walk() if op.transfer][-2]

    assert pieces("[p, b, a]") == 4
    assert pieces(".reshape((128, 64, 32))[p, a, b]") == 4 * 64 * 32
