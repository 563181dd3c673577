"""Blocking and exchanging loops changes who shares what."""

from __future__ import annotations

from tools.rewrites.block_loop import BlockLoop
from tools.rewrites.interchange_loops import InterchangeLoops

SOURCE = """
    def kernel(x, w):
        out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
        for m in nl.affine_range(4):
            x_tile = nl.load(x[0:128, m * 128 : (m + 1) * 128])
            for n in nl.affine_range(2):
                w_tile = nl.load(w[0:128, n * 512 : (n + 1) * 512])
                result = nl.copy(nisa.nc_matmul(x_tile, w_tile))
                nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=result)
        return out
"""


def test_a_block_of_rows_shares_each_load_of_the_inner_loop(case):
    after = case(SOURCE, (128, 512), (128, 1024)).apply(BlockLoop(), "Block the loop over m by 2")
    assert after.printed == (
        "def kernel(x, w):\n"
        "    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    for m_block in nl.affine_range(2):\n"
        "        x_tile = nl.ndarray((2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        for m in nl.affine_range(2):\n"
        "            x_tile[m, :, :] = nl.load(x[:, 256 * m_block + 128 * m : 256 * m_block + 128 * m + 128])\n"
        "        for n in nl.affine_range(2):\n"
        "            w_tile = nl.load(w[:, 512 * n : 512 * n + 512])\n"
        "            for m in nl.affine_range(2):\n"
        "                psum = nisa.nc_matmul(x_tile[m, :, :], w_tile)\n"
        "                result = nl.copy(psum)\n"
        "                nl.store(\n"
        "                    out[256 * m_block + 128 * m : 256 * m_block + 128 * m + 128, 512 * n : 512 * n + 512],\n"
        "                    value=result,\n"
        "                )\n"
        "\n"
        "    return out\n"
    )


def test_a_block_of_everything_exchanges_the_loops(case):
    after = case(SOURCE, (128, 512), (128, 1024)).apply(
        BlockLoop(), "Run the loop over m inside the loop over n"
    )
    assert after.source.index("nl.load(w") < after.source.rindex("for m in")


def test_accumulation_over_the_inner_loop_may_move_outside(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                for s in nl.affine_range(3):
                    tile = nl.load(x[s * 256 + i * 128 : s * 256 + i * 128 + 128, 0:512])
                    total[0:128, 0:512] += nl.exp(tile)
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=total)
            return out
        """,
        (768, 512),
    )
    after = kernel.apply(InterchangeLoops(), "loop over s outside of the loop over i")
    assert "total[i, :, :] += exp" in after.source


def test_nothing_shared_means_nothing_gained(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                for j in nl.affine_range(2):
                    tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
                    nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=nl.exp(tile))
            return out
        """,
        (256, 1024),
    )
    assert "share nothing" in kernel.refusal(BlockLoop(), "over i")
    kernel.apply(InterchangeLoops(), "loop over j outside")


def test_loops_that_carry_a_value_keep_their_order(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            state = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            for t in nl.sequential_range(3):
                for j in nl.affine_range(2):
                    tile = nl.load(x[t * 128 : (t + 1) * 128, j * 256 : (j + 1) * 256])
                    old = state[0:128, j * 256 : (j + 1) * 256]
                    state[0:128, j * 256 : (j + 1) * 256] = nl.maximum(nl.multiply(old, 0.5), tile)
            nl.store(out, value=state)
            return out
        """,
        (384, 512),
    )
    assert "depend on one another" in kernel.refusal(InterchangeLoops(), "loop over j outside")


def test_the_bank_that_a_hidden_transpose_needs_is_counted(case):
    source = """
        def kernel(x, w):
            out = nl.ndarray((1024, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for m in nl.affine_range(8):
                acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(2):
                    x_tile = nl.load(x[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
                    w_tile = nl.load(w[k * 128 : (k + 1) * 128, 0:512])
                    acc += nl.matmul(x_tile, w_tile)
                nl.store(out[m * 128 : (m + 1) * 128, 0:512], value=nl.copy(acc))
            return out
    """
    hidden = case(source, (1024, 256), (256, 512))
    assert "of matmul results are kept in psum" in hidden.refusal(BlockLoop(), "Run the loop over m inside")
    turned = source.replace("nl.matmul(x_tile, w_tile)", "nisa.nc_matmul(x_tile, w_tile)")
    turned = turned.replace(
        "x[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128]",
        "x[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128]",
    )
    case(turned, (256, 1024), (256, 512)).apply(BlockLoop(), "Run the loop over m inside")
