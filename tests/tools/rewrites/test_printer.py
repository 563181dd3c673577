"""Printing loses nothing, and reads as a person would write it."""

from __future__ import annotations

import numpy as np
import pytest

from nkibench import load_problem, problem_names
from tools.neuroncore import trace
from tools.neuroncore.ir import Kernel, Loop, LoopKind, LoopVar, fingerprint
from tools.rewrites import RewriteError, print_kernel


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


def test_what_has_no_source_form_is_refused():
    kernel = Kernel("kernel", "nki", [], [], [])
    with pytest.raises(RewriteError, match="dialect"):
        print_kernel(kernel)
    gridded = Kernel("kernel", "neuronxcc.nki", [], [], [Loop(LoopVar("i", 2), LoopKind.SPMD)])
    with pytest.raises(RewriteError, match="grid"):
        print_kernel(gridded)
