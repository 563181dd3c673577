"""One buffer that straight-line code fills again and again is as many tiles as there is room for."""

import pytest

from tools.neuroncore.compiler import compile_kernel
from tools.neuroncore.compiler.program import Kind
from tools.neuroncore.machine import TRN1
from tools.neuroncore.timing.simulate import Simulation

REFILLED = """
out = nl.ndarray((32, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
tile = nl.ndarray((128, {size}), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.static_range(32):
    {fill}
    nl.store(out[i], {value})
return out
"""
WHOLE = {"size": 512, "fill": "tile[...] = nl.load(x[i])", "value": "nl.exp(tile)"}


def tiles(kernel):
    """How many tiles the loads go to."""
    program = compile_kernel(kernel, TRN1)
    loads = [op for op, _ in program.walk() if op.kind is Kind.DMA and not op.reads[0].tensor.buffer.on_chip]
    return len({op.writes[0].tensor for op in loads})


def end_ns(kernel):
    run = Simulation(compile_kernel(kernel, TRN1), TRN1).run()
    assert run.orphans == 0
    return run.end_ns


def test_every_whole_filling_is_a_tile_of_its_own(traced):
    assert tiles(traced(REFILLED.format(**WHOLE), x=(32, 128, 512))) == 16


def test_unrolled_code_overlaps_like_a_loop(traced):
    unrolled = traced(REFILLED.format(**WHOLE), x=(32, 128, 512))
    body = REFILLED.format(**WHOLE).replace("static_range", "affine_range")
    looped = traced(body.replace("tile[...] =", "tile ="), x=(32, 128, 512))
    assert end_ns(unrolled) == pytest.approx(end_ns(looped), rel=0.25)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 1024, "fill": "tile[0:128, 0:512] = nl.load(x[i])", "value": "nl.exp(tile)[0:128, 0:512]"},
        {"fill": "tile[0:64, 0:512] = nl.load(x[i, 0:64])", "value": "nl.exp(tile)"},
        {"fill": "tile[...] = nl.add(tile, nl.load(x[i]))", "value": "nl.copy(tile)"},
    ],
    ids=["more is read than was filled", "half of the partitions", "accumulates"],
)
def test_a_filling_that_leaves_something_of_the_one_before_is_no_new_tile(traced, changes):
    body = REFILLED.format(**{**WHOLE, **changes})
    body = body.replace("for i", "tile[...] = 0.0\nfor i", 1)
    kernel = traced(body, x=(32, 128, 512))
    program = compile_kernel(kernel, TRN1)
    named = {
        a.tensor
        for op, _ in program.walk()
        for a in (*op.reads, *op.writes)
        if a.tensor.name.startswith("tile")
    }
    assert len(named) == 1


def test_a_filling_under_a_mask_that_always_holds_is_whole(traced):
    body = """
out = nl.ndarray((8, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.static_range(8):
    tile[p, f] = nl.load(x[i, p, f], mask=(p < {rows}))
    nl.store(out[i], nl.exp(tile))
return out
"""
    assert tiles(traced(body.format(rows=128), x=(8, 128, 512))) == 8
    assert tiles(traced(body.format(rows=100), x=(8, 128, 512))) == 1


def test_large_tiles_get_no_more_copies_than_fit(traced):
    body = REFILLED.replace("512", "16384").format(**{**WHOLE, "size": 16384})
    assert tiles(traced(body, x=(32, 128, 16384))) == 1


def test_what_one_iteration_hands_to_the_next_keeps_its_tile(traced):
    body = """
out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
tile = nl.ndarray((9, nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.sbuf)
tile[0] = nl.load(x)
for k in nl.sequential_range(8):
    half = nl.multiply(tile[k], 0.5)
    tile[k + 1] = nl.exp(half)
nl.store(out, tile[8])
return out
"""
    program = compile_kernel(traced(body, x=(128, 512)), TRN1)
    names = {a.tensor for op, _ in program.walk() for a in (*op.reads, *op.writes) if a.tensor.name == "tile"}
    assert len(names) == 1
