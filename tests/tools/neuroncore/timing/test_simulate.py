"""The execution model: skipped iterations, buffers, windows, ports."""

import pytest

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.estimate import estimate
from tools.neuroncore.machine import TRN1
from tools.neuroncore.timing import costs, layout, simulate, steady
from tools.neuroncore.timing.simulate import Simulation

NAMES = [
    "silu_chunked",
    "bmm_softmax_two_pass",
    "mamba_states_outside",
    "mamba_tiled",
    "rope_narrow",
    "bmm_softmax_one_pass",
]


def latency_ms(kernel):
    return estimate(kernel).latency_ms


def end_ns(kernel, machine=TRN1):
    return Simulation(compile_kernel(kernel, machine), machine).run().end_ns


@pytest.mark.parametrize("name", NAMES)
def test_skipping_iterations_changes_nothing_much(kernel_of, monkeypatch, name):
    quick = end_ns(kernel_of(name))
    monkeypatch.setattr(simulate, "MIN_HEAD", 10**9)
    assert quick == pytest.approx(end_ns(kernel_of(name)), rel=0.015)


def test_a_loop_settles_when_its_pattern_repeats():
    def marks(ends):
        return [steady.Mark([float(e)], [], [], 0.0) for e in ends]

    assert steady.settled_cycle(marks([10, 20])) == 0
    assert steady.settled_cycle(marks([10, 20, 30])) == 1
    assert steady.settled_cycle(marks([10, 20, 25, 35])) == 0
    assert steady.settled_cycle(marks([0, 10, 15, 25, 30])) == 2


STREAM = """
out = nl.ndarray((64, 128, 1024), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(1024)[None, :]
for i in nl.{loop}(64):
    tile = nl.load(x[i, p, f])
    nl.store(out[i, p, f], nl.exp(tile))
return out
"""


def test_more_buffers_overlap_more(traced, monkeypatch):
    kernel = traced(STREAM.format(loop="affine_range"), x=(64, 128, 1024))
    ahead = end_ns(kernel)
    monkeypatch.setattr(layout, "_hiding_latency", lambda *_: 1)
    one, two = (end_ns(kernel, TRN1.replace(buffer_copies=n)) for n in (1, 2))
    assert one > 1.3 * two >= 1.3 * ahead


def test_a_tile_is_fetched_as_far_ahead_as_its_loop_is_fast(traced):
    body = """
out = nl.ndarray((64, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
for i in nl.affine_range(64):
    tile = nl.load(x[i, p, f])
    for _ in nl.static_range({steps}):
        tile = nl.exp(tile)
    nl.store(out[i, p, f], tile)
return out
"""

    def copies(steps):
        program = compile_kernel(traced(body.format(steps=steps), x=(64, 128, 512)), TRN1)
        load = next(op for op, _ in program.walk() if op.transfer is not None)
        return layout.layout(program, TRN1).storages[load.writes[0].tensor].copies

    assert copies(1) > copies(4) > copies(20) == TRN1.buffer_copies


def test_a_sequential_loop_has_one_buffer(traced):
    ordered = end_ns(traced(STREAM.format(loop="sequential_range"), x=(64, 128, 1024)))
    free = end_ns(traced(STREAM.format(loop="affine_range"), x=(64, 128, 1024)))
    assert ordered > 1.3 * free


def test_time_is_at_least_the_work_of_the_busiest_lane(kernel_of):
    from tools.neuroncore.counters import total

    for name in NAMES:
        program = compile_kernel(kernel_of(name), TRN1)
        assert Simulation(program, TRN1).run().end_ns >= 0.999 * max(total(program, TRN1).busy_ns.values())


def test_crowded_memory_costs_time(kernel_of):
    roomy = TRN1.replace(sbuf_usable_bytes=10**6)
    kernel = kernel_of("mamba_states_outside")
    assert end_ns(kernel) > 1.2 * end_ns(kernel, roomy)


def test_reading_psum_from_two_engines_at_once_costs_time_on_nc_v2(traced):
    body = """
out = nl.ndarray((32, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
rows, columns = nl.load(x), nl.load(y)
for i in nl.affine_range(32):
    product = nisa.nc_matmul(rows, columns)
    kept = nisa.activation(op=nl.exp, data=product)
    peak = nisa.tensor_reduce(np.max, data=product, axis=[1])
    nl.store(out[i, p, 0], nisa.tensor_tensor(peak, nisa.tensor_reduce(np.add, data=kept, axis=[1]), nl.add))
return out
"""
    kernel = traced(body, x=(128, 128), y=(128, 512))
    assert end_ns(kernel) > end_ns(kernel, TRN1.replace(vector_scalar_port_shared=0))


@pytest.mark.parametrize(
    ("idle", "loop"),
    [(0, "affine_range"), (3, "affine_range"), (3, "sequential_range"), (40, "affine_range")],
)
def test_iterations_that_masks_switch_on_late_are_paid_for(traced, idle, loop):
    # A loop whose first iterations do nothing looks settled; what follows must not be taken to be like them.
    body = f"""
out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.mgrid[0:128, 0:32]
for i in nl.{loop}({64 * (idle + 1)}):
    column = (i - {64 * idle}) * 32 + f
    tile = nl.load(x[p, column], mask=(column >= 0))
    nl.store(out[p, column], nl.exp(tile, mask=(column >= 0)), mask=(column >= 0))
return out
"""
    plain = """
out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
for i in nl.affine_range(64):
    nl.store(out[:, nl.ds(32 * i, 32)], nl.exp(nl.load(x[:, nl.ds(32 * i, 32)])))
return out
"""
    late = latency_ms(traced(body, x=(128, 2048)))
    # In order, loads do not overlap as much, so that it may only take longer.
    assert late >= 0.999 * latency_ms(traced(plain, x=(128, 2048)))
    if loop == "affine_range":
        assert late <= 1.01 * latency_ms(traced(plain, x=(128, 2048)))


def test_a_triangle_of_work_costs_half_of_the_square(traced):
    body = """
out = nl.ndarray((64, nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.shared_hbm)
tile = nl.load(x)
total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
for i in nl.sequential_range(64):
    for j in nl.sequential_range(64):
        total[...] = nl.add(total, tile{mask})
    nl.store(out[i], total)
return out
"""
    square = latency_ms(traced(body.replace("{mask}", ""), x=(128, 512)))
    triangle = latency_ms(traced(body.replace("{mask}", ", mask=(i >= j)"), x=(128, 512)))
    empty = latency_ms(traced(body.replace("{mask}", ", mask=(i >= j + 64)"), x=(128, 512)))
    assert (triangle - empty) / (square - empty) == pytest.approx(0.5, abs=0.03)


def test_an_output_read_back_is_waited_for_like_any_scratch(traced):
    body = """
out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
held = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
nl.store({held}, nl.exp(nl.load(x)))
for k in nl.sequential_range(16):
    nl.store({held}, nl.add(nl.load({held}), 1.0))
nl.store(out, nl.load({held}))
return out
"""
    output = latency_ms(traced(body.format(held="out"), x=(128, 2048)))
    assert output == pytest.approx(latency_ms(traced(body.format(held="held"), x=(128, 2048))), rel=0.01)


def test_a_value_handed_to_the_next_iteration_is_waited_for_wherever_it_lies(traced):
    body = """
out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
held = nl.ndarray((257, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
for k in nl.sequential_range(256):
    held[{here}] = nl.load(x[0:128, 0:1], mask=(k <= 0))
    half = nisa.activation(op=nl.tanh, data=held[{here}])
    whole = nisa.tensor_scalar(half, nl.multiply, 2.0, engine=nisa.vector_engine)
    held[{there}] = nisa.tensor_copy(whole, engine=nisa.gpsimd_engine)
nl.store(out, nl.load(x[0:128, 0:1]))
return out
"""
    spread = latency_ms(traced(body.format(here="k", there="k + 1"), x=(128, 512)))
    in_place = body.format(kind="sequential_range", here="0", there="0")
    assert spread == pytest.approx(latency_ms(traced(in_place, x=(128, 512))), rel=0.02)


def test_masks_take_no_buffers_from_tiles_of_fused_loops_and_of_the_compiler(traced):
    body = """
out = nl.ndarray((2, 128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.mgrid[0:128, 0:32]
for n in nl.static_range(2):
    for i in nl.affine_range(64):
        column = i * 32 + f
        tile = nl.load(x[n, p, column]{mask})
        nl.store(out[n, p, column], nl.divide(tile, nl.add(tile, 2.0{mask}){mask}){mask})
return out
"""
    plain = latency_ms(traced(body.replace("{mask}", ""), x=(2, 128, 2048)))
    masked = latency_ms(traced(body.replace("{mask}", ", mask=(column < 2040)"), x=(2, 128, 2048)))
    assert masked == pytest.approx(plain, rel=0.03)


@pytest.mark.parametrize(("step", "factor"), [(1, 1.0), (3, 1.0), (4, 1.5), (8, 1.5)])
def test_neighbours_sixteen_bytes_apart_are_walked_more_slowly(traced, step, factor):
    body = f"""
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
tile = nl.load(x)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
nl.store(out, nl.exp(tile[p, {step} * f]))
return out
"""
    program = compile_kernel(traced(body, x=(128, 4096)), TRN1)
    (exp,) = [op for op, _ in program.walk() if op.label == "exp"]
    streaming = costs.busy_ns(exp, TRN1) - costs.overhead_ns(exp.engine, TRN1)
    assert streaming == pytest.approx(factor * 512 / TRN1.scalar_clock_ghz)


GATHER = """
out = nl.ndarray((8192, {columns}), dtype=nl.float32, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange({columns})[None, :]
for i in nl.affine_range(64):
    row = nl.copy(nl.load(ids[128 * i + p, 0]), dtype=nl.int32)
    nl.store(out[128 * i + p, f], nl.load(x[{position}, f]))
return out
"""


@pytest.mark.parametrize("columns", [1, 8, 2048])
def test_rows_at_positions_read_at_run_time_cost_a_descriptor_each(traced, columns):
    def dma_ms(position):
        body = GATHER.format(columns=columns, position=position)
        return estimate(traced(body, x=(8192, columns), ids=(8192, 1))).engine_busy_ms["dma"]

    gathered = dma_ms("row[p, 0]")
    piece_ns = TRN1.dma_piece_ns + 4 * columns / TRN1.dma_bytes_per_ns
    loads_ns = gathered * 1e6 - dma_ms("128 * i + p") * 1e6
    alike_ns = min(piece_ns, TRN1.dma_small_piece_ns + 4 * columns / TRN1.dma_small_bytes_per_ns)
    assert loads_ns == pytest.approx(8192 / TRN1.dma_engines * (piece_ns - alike_ns), abs=1)


def test_gpsimd_writes_the_descriptors_of_a_gather_first(traced):
    def of(position):
        return estimate(traced(GATHER.format(columns=8, position=position), x=(8192, 8), ids=(8192, 1)))

    gathered, walked = of("row[p, 0]"), of("128 * i + p")
    each_ns = (TRN1.gpsimd_start_cycles + 128) / TRN1.gpsimd_clock_ghz
    more_ns = (gathered.engine_busy_ms["gpsimd"] - walked.engine_busy_ms["gpsimd"]) * 1e6
    assert more_ns == pytest.approx(64 * each_ns, rel=1e-6)
    assert gathered.latency_ms > walked.latency_ms
