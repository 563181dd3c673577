"""Widening merges neighbouring tiles, and only those."""

from __future__ import annotations

from tools.rewrites.widen_tile import WidenTile

ELEMENTWISE = """
    def kernel(x, scale):
        out = nl.ndarray((256, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            factor = nl.load(scale[i * 128 : (i + 1) * 128, 0:1])
            for j in nl.affine_range(4):
                tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
                result = nl.multiply(nl.exp(tile), factor)
                nl.store(out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=result)
        return out
"""


def test_pairs_of_iterations_become_tiles_twice_as_wide(case):
    after = case(ELEMENTWISE, (256, 2048), (256, 1)).apply(
        WidenTile(), "2 of 4 iterations of the loop over j"
    )
    assert after.printed == (
        "def kernel(x, scale):\n"
        "    out = nl.ndarray((256, 2048), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(2):\n"
        "        factor = nl.load(scale[128 * i : 128 * i + 128, :])\n"
        "        for j in nl.affine_range(2):\n"
        "            tile = nl.load(x[128 * i : 128 * i + 128, 1024 * j : 1024 * j + 1024])\n"
        "            exp = nl.exp(tile)\n"
        "            result = nl.multiply(exp, factor)\n"
        "            nl.store(out[128 * i : 128 * i + 128, 1024 * j : 1024 * j + 1024], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_merging_all_iterations_removes_the_loop(case):
    after = case(ELEMENTWISE, (256, 2048), (256, 1)).apply(WidenTile(), "all 4 iterations of the loop over j")
    assert "for j" not in after.source
    assert "x[128 * i : 128 * i + 128, :]" in after.source


def test_a_tile_never_gets_more_than_128_partitions(case):
    kernel = case(ELEMENTWISE, (256, 2048), (256, 1))
    assert "partitions" in kernel.refusal(WidenTile(), "over i")
    assert all("over i" not in o.describe() for o in kernel.options(WidenTile()))


def test_short_tiles_of_rows_do_grow_along_the_partitions(case):
    after = case(
        """
        def kernel(x):
            out = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                tile = nl.load(x[i * 32 : (i + 1) * 32, 0:512])
                nl.store(out[i * 32 : (i + 1) * 32, 0:512], value=nl.square(tile))
            return out
        """,
        (64, 512),
    ).apply(WidenTile(), "over i")
    assert "x_tile" not in after.source and "nl.load(x)" in after.source


def test_a_ragged_mask_that_continues_is_kept(case):
    after = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 900), dtype=nl.float32, buffer=nl.shared_hbm)
            for j in nl.affine_range(4):
                i_row = nl.arange(128)[:, None]
                i_column = 256 * j + nl.arange(256)[None, :]
                tile = nl.load(x[i_row, i_column], mask=(i_column < 900))
                nl.store(out[i_row, i_column], value=nl.exp(tile, mask=(i_column < 900)), mask=(i_column < 900))
            return out
        """,
        (128, 900),
    ).apply(WidenTile(), "2 of 4")
    assert "mask=(512 * j + i_f < 900)" in after.source


def test_partial_sums_over_the_widened_axis_combine(case):
    after = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
            total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            for j in nl.affine_range(4):
                tile = nl.load(x[0:128, j * 256 : (j + 1) * 256])
                total[0:128, 0:1] += nl.sum(tile, axis=[1])
            nl.store(out, value=total)
            return out
        """,
        (128, 1024),
    ).apply(WidenTile(), "2 of 4")
    assert "x[:, 512 * j : 512 * j + 512]" in after.source


def test_a_partial_result_that_is_used_by_itself_stays(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            for j in nl.affine_range(4):
                tile = nl.load(x[0:128, j * 256 : (j + 1) * 256])
                total = nl.sum(tile, axis=[1])
                nl.store(out[0:128, j * 256 : (j + 1) * 256], value=nl.multiply(tile, total))
            return out
        """,
        (128, 1024),
    )
    assert kernel.options(WidenTile()) == []
    assert "one by one" in kernel.refusal(WidenTile(), "2 of 4")


def test_tiles_that_a_vector_repeats_over_stay(case):
    kernel = case(
        """
        def kernel(x, bias):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            column = nl.load(bias)
            for j in nl.affine_range(4):
                tile = nl.load(x[0:128, j * 256 : (j + 1) * 256])
                nl.store(out[0:128, j * 256 : (j + 1) * 256], value=nl.add(tile, column))
            return out
        """,
        (128, 1024),
        (128, 256),
    )
    assert kernel.options(WidenTile()) == []


def test_iterations_that_carry_a_value_are_not_merged(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            previous = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            for j in nl.sequential_range(4):
                tile = nl.load(x[0:128, j * 256 : (j + 1) * 256])
                previous[0:128, 0:256] = nl.subtract(tile, previous)
                nl.store(out[0:128, j * 256 : (j + 1) * 256], value=previous)
            return out
        """,
        (128, 1024),
    )
    assert kernel.options(WidenTile()) == []


def test_matmul_tiles_grow_up_to_what_one_instruction_takes(case):
    source = """
        def kernel(x, w):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            x_tile = nl.load(x)
            for n in nl.affine_range(8):
                w_tile = nl.load(w[0:128, n * 128 : (n + 1) * 128])
                product = nisa.nc_matmul(x_tile, w_tile)
                nl.store(out[0:128, n * 128 : (n + 1) * 128], value=nl.copy(product))
            return out
    """
    kernel = case(source, (128, 128), (128, 1024))
    assert [o.factor for o in kernel.options(WidenTile())] == [2, 4]
    kernel.apply(WidenTile(), "4 of 8")


BLOCKS = """
    def kernel(x, w):
        out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
        x_tile = nl.load(x)
        turned = nl.ndarray((8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.{buffer})
        for n in nl.affine_range(8):
            turned[n, :, :] = nisa.nc_transpose(nl.load(w[n * 128 : (n + 1) * 128, 0:128]))
        for m in nl.affine_range(8):
            result = {use}
            nl.store(out[0:128, m * 128 : (m + 1) * 128], value=result)
        return out
"""


def test_blocks_in_sbuf_are_laid_side_by_side_for_one_wide_instruction(case):
    source = BLOCKS.format(buffer="sbuf", use="nl.copy(nisa.nc_matmul(x_tile, turned[m, :, :]))")
    after = case(source, (128, 128), (1024, 128)).apply(WidenTile(), "4 of 8 iterations of the loop over m")
    assert "turned = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)" in after.source
    assert "turned[:, 128 * n : 128 * n + 128] = " in after.source
    assert "nisa.nc_matmul(x_tile, turned[:, 512 * m : 512 * m + 512])" in after.source


def test_blocks_in_psum_are_banks_of_their_own(case):
    kernel = case(
        BLOCKS.format(buffer="psum", use="nl.add(x_tile, turned[m, :, :])"), (128, 128), (1024, 128)
    )
    assert "keeps a block for each iteration" in kernel.refusal(
        WidenTile(), "4 of 8 iterations of the loop over m"
    )
