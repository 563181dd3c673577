"""Transfers grow while computation keeps its tiles."""

from __future__ import annotations

from tools.rewrites.coarsen_dma import CoarsenDma

MATMUL = """
    def kernel(x, w):
        out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
        x_tile = nl.load(x)
        for n in nl.affine_range(4):
            w_tile = nl.load(w[0:128, n * 512 : (n + 1) * 512])
            product = nisa.nc_matmul(x_tile, w_tile)
            result = nl.copy(product)
            nl.store(out[0:128, n * 512 : (n + 1) * 512], value=result)
        return out
"""


def test_one_load_fills_what_two_iterations_multiply(case):
    after = case(MATMUL, (128, 128), (128, 2048)).apply(CoarsenDma(), "Load 2 of the 4 tiles")
    assert after.printed == (
        "def kernel(x, w):\n"
        "    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    x_tile = nl.load(x)\n"
        "    for n_block in nl.affine_range(2):\n"
        "        w_tile = nl.load(w[:, 1024 * n_block : 1024 * n_block + 1024])\n"
        "        for n in nl.affine_range(2):\n"
        "            product = nisa.nc_matmul(x_tile, w_tile[:, 512 * n : 512 * n + 512])\n"
        "            result = nl.copy(product)\n"
        "            nl.store(out[:, 1024 * n_block + 512 * n : 1024 * n_block + 512 * n + 512], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_all_transfers_of_a_loop_grow_together(case):
    after = case(MATMUL, (128, 128), (128, 2048)).apply(CoarsenDma(), "Load and store 2 of the 4 tiles")
    assert after.printed == (
        "def kernel(x, w):\n"
        "    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    x_tile = nl.load(x)\n"
        "    for n_block in nl.affine_range(2):\n"
        "        w_tile = nl.load(w[:, 1024 * n_block : 1024 * n_block + 1024])\n"
        "        result = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        for n in nl.affine_range(2):\n"
        "            product = nisa.nc_matmul(x_tile, w_tile[:, 512 * n : 512 * n + 512])\n"
        "            result[:, 512 * n : 512 * n + 512] = nl.copy(product)\n"
        "        nl.store(out[:, 1024 * n_block : 1024 * n_block + 1024], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_one_store_empties_what_all_iterations_fill(case):
    after = case(MATMUL, (128, 128), (128, 2048)).apply(CoarsenDma(), "Store all 4 tiles")
    assert after.printed.endswith(
        "        result[:, 512 * n : 512 * n + 512] = nl.copy(product)\n"
        "    nl.store(out[...], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_a_loop_of_loads_only_is_merged_in_place(case):
    after = case(
        """
        def kernel(w):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            blocks = nl.ndarray((4, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(4):
                blocks[n, 0:128, 0:256] = nl.load(w[0:128, n * 256 : (n + 1) * 256])
            for n in nl.affine_range(4):
                nl.store(out[0:128, n * 256 : (n + 1) * 256], value=nl.exp(blocks[n, 0:128, 0:256]))
            return out
        """,
        (128, 1024),
    ).apply(CoarsenDma(), "Load all 4 tiles")
    assert "    blocks = nl.load(w)\n" in after.source
    assert "nl.exp(blocks[:, 256 * n : 256 * n + 256])" in after.source


def test_ragged_edges_keep_their_masks(case):
    after = case(
        """
        def kernel(x, w):
            out = nl.ndarray((128, 900), dtype=nl.float32, buffer=nl.shared_hbm)
            x_tile = nl.load(x)
            for n in nl.affine_range(4):
                i_row = nl.arange(128)[:, None]
                i_column = 256 * n + nl.arange(256)[None, :]
                w_tile = nl.load(w[i_row, i_column], mask=(i_column < 900))
                result = nl.copy(nisa.nc_matmul(x_tile, w_tile))
                nl.store(out[i_row, i_column], value=result, mask=(i_column < 900))
            return out
        """,
        (128, 128),
        (128, 900),
    ).apply(CoarsenDma(), "Store 2 of the 4 tiles")
    assert (
        "mask=(512 * n_block + i_f_512 < 900)" in after.source
        or "mask=(512 * n_block + i_f < 900)" in after.source
    )


def test_rows_of_other_partitions_are_no_longer_pieces(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((512, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(4):
                tile = nl.load(x[i * 128 : (i + 1) * 128, 0:64])
                nl.store(out[i * 128 : (i + 1) * 128, 0:64], value=nl.exp(tile))
            return out
        """,
        (512, 64),
    )
    assert kernel.options(CoarsenDma()) == []
    assert "shape" in kernel.refusal(CoarsenDma(), "Load 2 of the 4 tiles")
