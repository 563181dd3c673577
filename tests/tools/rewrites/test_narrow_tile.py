"""Wide tiles are worked through in pieces, and scans go on where the last piece ended."""

from __future__ import annotations

import numpy as np

from tools import neuroncore
from tools.rewrites.narrow_tile import NarrowTile

SCAN = """
    def kernel(d, u):
        out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            total = nl.zeros((64, 2048), dtype=nl.float32, buffer=nl.sbuf)
            for s in nl.affine_range(3):
                decay = nl.sigmoid(nl.load(d[i * 64 : (i + 1) * 64, 0:2048]))
                drive = nl.load(u[i * 64 : (i + 1) * 64, 0:2048])
                state = nisa.tensor_tensor_scan(decay, drive, initial=0.5, op0=nl.multiply, op1=nl.add)
                total[0:64, 0:2048] += state
            nl.store(out[i * 64 : (i + 1) * 64, 0:2048], value=total)
        return out
"""


def test_a_scan_hands_its_state_from_piece_to_piece(case):
    kernel = case(SCAN, (128, 2048), (128, 2048))
    after = kernel.apply(NarrowTile(), "over i in 4 pieces of 512, handing the scan's state on")
    assert after.printed == (
        "def kernel(d, u):\n"
        "    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(2):\n"
        "        state_carry = nl.ndarray((3, nl.par_dim(64), 1), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        for s in nl.affine_range(3):\n"
        "            state_carry[s, :, :] = nisa.memset((64, 1), value=0.5, dtype=nl.float32)\n"
        "        for piece in nl.sequential_range(4):\n"
        "            total = nl.zeros((64, 512), dtype=nl.float32, buffer=nl.sbuf)\n"
        "            for s in nl.affine_range(3):\n"
        "                loaded = nl.load(d[64 * i : 64 * i + 64, 512 * piece : 512 * piece + 512])\n"
        "                decay = nl.sigmoid(loaded)\n"
        "                drive = nl.load(u[64 * i : 64 * i + 64, 512 * piece : 512 * piece + 512])\n"
        "                state = nisa.tensor_tensor_scan(\n"
        "                    decay,\n"
        "                    drive,\n"
        "                    op0=nl.multiply,\n"
        "                    op1=nl.add,\n"
        "                    initial=state_carry[s, :, :],\n"
        "                )\n"
        "                state_carry[s, :, :] = nl.copy(state[:, 511:512])\n"
        "                total[...] += state\n"
        "            nl.store(out[64 * i : 64 * i + 64, 512 * piece : 512 * piece + 512], value=total)\n"
        "\n"
        "    return out\n"
    )
    expected = neuroncore.interpret(kernel.kernel, kernel.args)
    assert np.array_equal(neuroncore.interpret(after.kernel, kernel.args)[0], expected[0])


def test_pieces_keep_masks_and_repeated_operands(case):
    kernel = case(
        """
        def kernel(x, row, column):
            out = nl.ndarray((128, 2000), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                i_row = 64 * i + nl.arange(64)[:, None]
                i_column = nl.arange(2048)[None, :]
                tile = nl.load(x[i_row, i_column], mask=(i_column < 2000))
                weight = nl.load(row[0:1, 0:2048]).broadcast_to((64, 2048))
                scaled = nl.multiply(tile, nl.load(column[i * 64 : (i + 1) * 64, 0:1]))
                result = nl.add(scaled, weight)
                nl.store(out[i_row, i_column], value=result, mask=(i_column < 2000))
            return out
        """,
        (128, 2000),
        (1, 2048),
        (128, 1),
    )
    after = kernel.apply(NarrowTile(), "in 4 pieces of 512")
    assert "mask=(512 * piece + i_f < 2000)" in after.source
    assert "for piece in nl.affine_range(4)" in after.source


def test_a_row_sum_needs_whole_rows(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                tile = nl.load(x[i * 64 : (i + 1) * 64, 0:1024])
                total = nl.sum(tile, axis=[1])
                nl.store(out[i * 64 : (i + 1) * 64, 0:1024], value=nl.multiply(tile, total))
            return out
        """,
        (128, 1024),
    )
    assert "the whole of the axis" in kernel.refusal(NarrowTile(), "in 2 pieces of 512")


def test_a_tile_that_is_also_used_in_parts_stays_whole(case):
    kernel = case(
        """
        def kernel(x, w):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                tile = nl.exp(nl.load(x[i * 128 : (i + 1) * 128, 0:1024]))
                acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(8):
                    w_tile = nl.load(w[k * 128 : (k + 1) * 128, 0:512])
                    acc += nl.matmul(tile[0:128, k * 128 : (k + 1) * 128], w_tile)
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=nl.copy(acc))
            return out
        """,
        (256, 1024),
        (1024, 512),
    )
    assert "in other parts" in kernel.refusal(NarrowTile(), "over i in 2 pieces of 512")
