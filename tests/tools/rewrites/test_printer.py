"""Printing loses nothing, and reads as a person would write it."""

from __future__ import annotations

import numpy as np
import pytest

from nkibench import load_problem, problem_names
from tools import neuroncore
from tools.neuroncore import trace
from tools.neuroncore.ir import Kernel, fingerprint
from tools.rewrites import RewriteError, applicable, print_kernel


@pytest.mark.parametrize("name", problem_names())
def test_every_baseline_survives_printing(name):
    problem = load_problem(name)
    reference = problem.reference(small=True)
    args = reference.to_nki(reference.inputs(0))
    kernel = trace(problem.baseline_source(), args)
    assert fingerprint(trace(print_kernel(kernel), args)) == fingerprint(kernel)


def test_boxes_print_as_slices_and_masked_tiles_as_index_tiles(case):
    ragged = case(
        """
        def kernel(x):
            out = nl.ndarray((200, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                i_row = 128 * i + nl.arange(128)[:, None]
                i_column = nl.arange(256)[None, :]
                tile = nl.load(x[i_row, i_column], mask=(i_row < 200))
                nl.store(out[i_row, i_column], value=nl.exp(tile[0:128, 0:256]), mask=(i_row < 200))
            return out
        """,
        (200, 256),
    )
    assert ragged.printed == (
        "def kernel(x):\n"
        "    i_p = nl.arange(128)[:, None]\n"
        "    i_f = nl.arange(256)[None, :]\n"
        "\n"
        "    out = nl.ndarray((200, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(2):\n"
        "        tile = nl.load(x[128 * i + i_p, i_f], mask=(128 * i + i_p < 200))\n"
        "        exp = nl.exp(tile)\n"
        "        nl.store(out[128 * i + i_p, i_f], value=exp, mask=(128 * i + i_p < 200))\n"
        "\n"
        "    return out\n"
    )


def test_block_tensors_accumulation_and_broadcasts_print_in_nki_terms(case):
    kernel = case(
        """
        def kernel(x, w, g):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            blocks = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            row = nl.load(g[0:1, 0:512])
            for k in nl.affine_range(2):
                blocks[k, 0:128, 0:512] = nl.load(w[k * 128 : (k + 1) * 128, 0:512])
            acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                x_tile = nl.load(x[k * 128 : (k + 1) * 128, 0:128])
                acc += nisa.nc_matmul(x_tile, blocks[k, 0:128, 0:512])
            scaled = nl.multiply(acc, row.broadcast_to((128, 512)))
            nl.store(out, value=scaled)
            return out
        """,
        (256, 128),
        (256, 512),
        (1, 512),
    )
    assert kernel.printed == (
        "def kernel(x, w, g):\n"
        "    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    row = nl.load(g)\n"
        "    blocks = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    for k in nl.affine_range(2):\n"
        "        blocks[k, :, :] = nl.load(w[128 * k : 128 * k + 128, :])\n"
        "    acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "    for k in nl.affine_range(2):\n"
        "        x_tile = nl.load(x[128 * k : 128 * k + 128, :])\n"
        "        acc[...] += nisa.nc_matmul(x_tile, blocks[k, :, :])\n"
        "    scaled = nl.multiply(acc, row.broadcast_to((128, 512)))\n"
        "    nl.store(out[...], value=scaled)\n"
        "\n"
        "    return out\n"
    )
    kernel.assert_equals(kernel)


def test_numbers_round_trip_exactly(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(x)
            tile = nl.multiply(tile, 0.1 + 0.2)
            tile = nisa.tensor_scalar(tile, nl.add, np.float32(1e-5), op1=nl.maximum, operand1=-3.4028235e38)
            tile = nl.add(tile, 7)
            nl.store(out, value=tile)
            return out
        """,
        (128, 64),
    )
    assert "0.30000000000000004" in kernel.source
    kernel.assert_equals(kernel)


def test_a_scalar_parameter_is_printed_by_its_name():
    source = (
        "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n@nki.jit\ndef kernel(x, eps):\n"
        "    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    nl.store(out, value=nl.add(nl.load(x), eps))\n    return out\n"
    )
    x = np.zeros((128, 64), np.float32)
    kernel = trace(source, [x, 1e-5])
    assert "nl.add(loaded, eps)" in print_kernel(kernel)
    assert fingerprint(trace(print_kernel(kernel), [x, 1e-5])) == fingerprint(kernel)


def test_nested_loops_of_one_name_are_told_apart(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((512, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                outer = i
                for i in nl.affine_range(2):
                    rows = 256 * outer + 128 * i
                    nl.store(out[rows : rows + 128, 0:64], value=nl.load(x[rows : rows + 128, 0:64]))
            return out
        """,
        (512, 64),
    )
    kernel.assert_equals(kernel)


def test_other_tile_types_and_constants_round_trip(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
            identity = nl.load(nl.shared_constant(np.identity(128, dtype=np.float32)))
            tile = nl.load(x, dtype=nl.bfloat16)
            flag = nl.greater(tile, 0.5)
            wide = nl.copy(tile, dtype=nl.float32)
            turned = nisa.nc_matmul(wide, identity, is_moving_onezero=True, is_transpose=True)
            picked = nl.where(flag, wide, nl.copy(turned))
            nl.store(out, value=picked)
            return out
        """,
        (128, 128),
    )
    assert "nl.shared_constant(np.identity(128, dtype=np.float32))" in kernel.source
    assert "dtype=nl.bfloat16" in kernel.source
    assert fingerprint(trace(kernel.source, kernel.args)) == fingerprint(kernel.kernel)


def test_long_calls_are_broken_at_their_arguments(case):
    kernel = case(
        """
        def kernel(a_rather_long_parameter_name):
            another_rather_long_output_name = nl.ndarray((512, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
            for row_block in nl.affine_range(4):
                for column_block in nl.affine_range(8):
                    tile = nl.load(
                        a_rather_long_parameter_name[
                            row_block * 128 : (row_block + 1) * 128, column_block * 512 : (column_block + 1) * 512
                        ]
                    )
                    nl.store(
                        another_rather_long_output_name[
                            row_block * 128 : (row_block + 1) * 128, column_block * 512 : (column_block + 1) * 512
                        ],
                        value=tile,
                    )
            return another_rather_long_output_name
        """,
        (512, 4096),
    )
    assert "            nl.store(\n                another_rather_long_output_name[" in kernel.source
    kernel.assert_equals(kernel)


def test_an_index_as_a_value_keeps_the_axes_that_it_does_not_vary_along(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
            p, i, j = nl.mgrid[0:128, 0:4, 0:8]
            nl.store(out, nl.add(nl.load(x), nisa.iota(8 * i, dtype=nl.int32)))
            return out
        """,
        (128, 4, 8),
    )
    assert "nisa.iota(0 * i_p_3d + 0 * i_f_3d + 8 * i_x_3d, dtype=nl.int32)" in kernel.source
    kernel.assert_equals(kernel)


def test_a_masked_position_along_a_single_row_prints_as_it_was(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
            p, f = nl.mgrid[0:128, 0:8]
            nl.store(out[p, f], nl.load(x[p, f], mask=(p < 1)), mask=(p < 1))
            return out
        """,
        (1, 8),
    )
    assert "nl.store(out[i_p, i_f], value=" in kernel.source
    kernel.assert_equals(kernel)


def test_what_has_no_source_form_is_refused():
    kernel = Kernel("kernel", "tilelang", [], [], [])
    with pytest.raises(RewriteError, match="dialect"):
        print_kernel(kernel)


@pytest.mark.parametrize("sizes", ["2, 3", "nl.spmd_dim(nl.nc(2), 1), 3, 1"])
def test_a_launch_grid_prints_as_loops_around_the_kernel(sizes):
    source = f"""
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 96), dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 96), dtype=x.dtype, buffer=nl.shared_hbm)
    row = 128 * nl.program_id(0) + nl.arange(128)[:, None]
    column = 32 * nl.program_id(1) + nl.arange(32)[None, :]
    nl.store(scratch[row, column], nl.exp(nl.load(x[row, column])))
    nl.store(out[row, column], nl.load(scratch[row, column]))
    return out


launched = kernel[{sizes}]
"""
    x = np.random.default_rng(0).standard_normal((256, 96)).astype(np.float32)
    kernel = trace(source, [x])
    printed = print_kernel(kernel)
    assert "    for program in nl.affine_range(2):\n        for program_2 in nl.affine_range(3):\n" in printed
    again = trace(printed, [x])
    assert print_kernel(again) == printed
    np.testing.assert_array_equal(neuroncore.interpret(again, [x])[0], neuroncore.interpret(kernel, [x])[0])
    assert neuroncore.estimate(again).latency_ms == neuroncore.estimate(kernel).latency_ms


LATER = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(2):
        x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[128 * m : 128 * m + 128, :])
        for n in nl.affine_range(2):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=x_tile[:, 128 * k : 128 * k + 128], engine=nisa.tensor_engine)
                x_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_copy(dst=x_t, src=turned)
                w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=w_tile, src=w[128 * k : 128 * k + 128, 512 * n : 512 * n + 512])
                nisa.nc_matmul(dst=acc, stationary=x_t, moving=w_tile)
            res = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=res, op=nl.exp, data=acc, scale=-0.01)
            nisa.affine_select(
                dst=res,
                pattern=[[-1, 512]],
                offset=128 * m + 7,
                channel_multiplier=1,
                on_true_tile=res,
                on_false_value=0.25,
                cmp_op=nl.greater_equal,
            )
            nisa.tensor_scalar(dst=res, data=res, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=0.5)
            nisa.dma_copy(dst=out[128 * m : 128 * m + 128, 512 * n : 512 * n + 512], src=res)

    return out
"""


@pytest.fixture
def later():
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(np.float32) for shape in ((256, 256), (256, 1024))]


def test_the_later_dialect_prints_as_it_is_written(later):
    kernel = trace(LATER, later)
    printed = print_kernel(kernel)
    assert fingerprint(trace(printed, later)) == fingerprint(kernel)
    for line in LATER.strip().splitlines():
        if "dma_copy" in line or "nc_matmul" in line or "ndarray" in line or "tensor_copy" in line:
            assert line in printed.splitlines()
    assert "pattern=[[-1, 512]]" in printed and "offset=128 * m + 7" in printed


def test_rewritten_kernels_of_the_later_dialect_have_no_block_dimensions(later):
    kernel = trace(LATER, later)
    expected = neuroncore.interpret(kernel, later)[0]
    found = applicable(kernel)
    assert {r.name for r, _ in found} >= {"hoist-invariant", "coarsen-dma", "block-loop", "move-engine"}
    for rewrite, option in found:
        after = rewrite.apply(kernel, option)
        printed = print_kernel(after)
        assert "par_dim" not in printed
        assert fingerprint(trace(printed, later)) == fingerprint(after), option.describe()
        np.testing.assert_allclose(neuroncore.interpret(after, later)[0], expected, rtol=1e-5, atol=1e-6)


def test_masks_have_no_form_in_the_later_dialect(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            i_p, i_f = nl.arange(128)[:, None], nl.arange(64)[None, :]
            tile = nl.load(x[i_p, i_f], mask=(i_f < 50))
            nl.store(out[i_p, i_f], value=tile, mask=(i_f < 50))
            return out
        """,
        (128, 64),
    ).kernel
    kernel.dialect = "nki"
    with pytest.raises(RewriteError, match="mask"):
        print_kernel(kernel)


def test_a_parameter_left_at_its_default_is_part_of_the_trace(case):
    kernel = case(
        """
        def kernel(x, scale, eps=1e-6, flag=False):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(x)
            if not flag:
                tile = nl.add(nl.multiply(tile, scale), eps)
            nl.store(out, tile)
            return out
        """,
        (128, 512),
        2.5,
    )
    assert "def kernel(x, scale):" in kernel.printed
    assert "1e-06" in kernel.printed and "eps" not in kernel.printed


def test_the_mask_of_a_reduction_speaks_of_what_is_reduced(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(x)
            i_y = nl.arange(8)[None, None, :]
            nl.store(out, nl.sum(tile, axis=[1, 2], mask=(i_y < 5)))
            return out
        """,
        (128, 4, 8),
    )
    assert "i_f_3d = nl.arange(8)[None, None, :]" in kernel.printed
    assert "axis=[1, 2], mask=(i_f_3d < 5)" in kernel.printed


def test_an_out_of_bounds_mode_is_printed_where_it_is_not_the_usual_one(case):
    body = """
        def kernel(x, i):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            at = nl.load(i)
            nisa.dma_copy(dst=tile, src=x[at, nl.arange(512)[None, :]]{mode})
            nl.store(out, tile)
            return out
        """
    index = np.arange(128, dtype=np.int32).reshape(128, 1)
    skipping = case(body.format(mode=", oob_mode=nisa.oob_mode.skip"), (128, 512), index)
    assert "oob_mode=nisa.oob_mode.skip" in skipping.printed
    assert "oob_mode" not in case(body.format(mode=""), (128, 512), index).printed
