"""Values that are on chip already are not fetched, copied or added up elsewhere."""

from __future__ import annotations

from tools.rewrites.accumulate_in_psum import AccumulateInPsum
from tools.rewrites.commute_row_scale import CommuteRowScale
from tools.rewrites.drop_dead_code import DropDeadCode
from tools.rewrites.fuse_loops import FuseLoops
from tools.rewrites.read_psum_directly import ReadPsumDirectly
from tools.rewrites.remove_redundant_load import RemoveRedundantLoad


def test_a_tile_is_loaded_once(case):
    after = case(
        """
        def kernel(x):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                first = nl.load(x[i * 128 : (i + 1) * 128, 0:512])
                total = nl.sum(first, axis=[1])
                for j in nl.affine_range(2):
                    again = nl.load(x[i * 128 : (i + 1) * 128, 0:512])
                    part = nl.multiply(again[0:128, j * 256 : (j + 1) * 256], total)
                    nl.store(out[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256], value=part)
            return out
        """,
        (256, 512),
    ).apply(RemoveRedundantLoad(), "`first` instead of loading `again`")
    assert after.source.count("nl.load") == 1
    assert "nl.multiply(first[:, 256 * j : 256 * j + 256], total)" in after.source


def test_a_scratch_tensor_in_hbm_disappears_when_its_values_are_at_hand(case):
    after = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            scratch = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.hbm)
            tile = nl.exp(nl.load(x))
            nl.store(scratch, value=tile)
            again = nl.load(scratch)
            nl.store(out, value=nl.square(again))
            return out
        """,
        (128, 512),
    ).apply(RemoveRedundantLoad(), "instead of loading `again`")
    assert "scratch" not in after.source


def test_a_tile_that_was_overwritten_is_loaded_again(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            first = nl.load(x)
            first[0:128, 0:512] = nl.exp(first)
            again = nl.load(x)
            nl.store(out, value=nl.multiply(first, again))
            return out
        """,
        (128, 512),
    )
    assert "changes while it would be used" in kernel.refusal(
        RemoveRedundantLoad(), "instead of loading `again`"
    )


def test_a_consumer_of_two_tiles_reads_one_from_psum(case):
    source = """
        def kernel(x, y, z):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            product = nisa.nc_matmul(nl.load(x), nl.load(y))
            copied = nl.copy(product)
            result = nl.add(copied, nl.load(z))
            nl.store(out, value=result)
            return out
    """
    after = case(source, (128, 128), (128, 512), (128, 512)).apply(ReadPsumDirectly(), "`copied`")
    assert "copied" not in after.source
    assert "result = nl.add(product, " in after.source


def test_two_tiles_cannot_both_come_from_psum(case):
    source = """
        def kernel(x, y):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            a, b = nl.load(x), nl.load(y)
            first = nisa.nc_matmul(a, b)
            second = nisa.nc_matmul(a, b)
            copied = nl.copy(second)
            result = nl.add(first, copied)
            nl.store(out, value=result)
            return out
    """
    assert "two tiles from PSUM" in case(source, (128, 128), (128, 512)).refusal(
        ReadPsumDirectly(), "`copied`"
    )


def test_a_matmul_cannot_read_psum(case):
    source = """
        def kernel(x, y):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            a, b = nl.load(x), nl.load(y)
            first = nl.copy(nisa.nc_matmul(a, a))
            second = nl.copy(nisa.nc_matmul(first, b))
            nl.store(out, value=second)
            return out
    """
    kernel = case(source, (128, 128), (128, 512))
    assert "nisa.nc_matmul cannot read PSUM" in kernel.refusal(ReadPsumDirectly(), "`first`")


SUM_IN_SBUF = """
    def kernel(x, y):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(3):
            x_tile = nl.load(x[k * 128 : (k + 1) * 128, 0:128])
            y_tile = nl.load(y[k * 128 : (k + 1) * 128, 0:512])
            part = nl.copy(nisa.nc_matmul(x_tile, y_tile))
            total[0:128, 0:512] += part
        nl.store(out, value=total)
        return out
"""


def test_a_sum_over_a_loop_accumulates_in_psum(case):
    after = case(SUM_IN_SBUF, (384, 128), (384, 512)).apply(AccumulateInPsum(), "over k in PSUM")
    assert after.printed == (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    total_psum = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "    for k in nl.affine_range(3):\n"
        "        x_tile = nl.load(x[128 * k : 128 * k + 128, :])\n"
        "        y_tile = nl.load(y[128 * k : 128 * k + 128, :])\n"
        "        total_psum[...] += nisa.nc_matmul(x_tile, y_tile)\n"
        "    total = nl.copy(total_psum)\n"
        "    nl.store(out[...], value=total)\n"
        "\n"
        "    return out\n"
    )


def test_a_sum_that_does_not_start_at_zero_stays(case):
    kernel = case(SUM_IN_SBUF.replace("nl.zeros((128", "nl.ones((128"), (384, 128), (384, 512))
    assert "start at zero" in kernel.refusal(AccumulateInPsum(), "over k in PSUM")


def test_two_products_add_up_in_one_tile(case):
    after = case(
        """
        def kernel(x, y, z):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            a, b, c = nl.load(x), nl.load(y), nl.load(z)
            first = nl.copy(nisa.nc_matmul(a, b))
            second = nl.copy(nisa.nc_matmul(a, c))
            nl.store(out, value=nl.add(first, second))
            return out
        """,
        (128, 128),
        (128, 512),
        (128, 512),
    ).apply(AccumulateInPsum(), "accumulate in one PSUM tile")
    assert after.source.count("+= nisa.nc_matmul") == 2 and "nl.add" not in after.source


ROW_SCALE = """
    def kernel(x, w):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        x_tile = nl.load(x)
        total = nl.sum(nl.square(x_tile), axis=[1])
        scaled = nl.multiply(x_tile, total)
        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            w_tile = nl.load(w[k * 128 : (k + 1) * 128, 0:512])
            acc += nl.matmul(scaled[0:128, k * 128 : (k + 1) * 128], w_tile)
        result = nl.copy(acc)
        nl.store(out, value=result)
        return out
"""


def test_rows_are_scaled_on_the_way_out_of_psum(case):
    after = case(ROW_SCALE, (128, 256), (256, 512)).apply(CommuteRowScale(), "`x_tile` instead of `scaled`")
    assert "result = nl.multiply(acc, total)" in after.source and "scaled" not in after.source


def test_a_factor_per_column_does_not_commute(case):
    source = ROW_SCALE.replace("scaled = nl.multiply(x_tile, total)", "scaled = nl.multiply(x_tile, x_tile)")
    assert case(source, (128, 256), (256, 512)).options(CommuteRowScale()) == []


def test_a_scaled_tile_with_other_readers_stays(case):
    source = ROW_SCALE.replace("result = nl.copy(acc)", "result = nl.add(acc, nl.sum(scaled, axis=[1]))")
    assert case(source, (128, 256), (256, 512)).options(CommuteRowScale()) == []


def test_products_with_different_factors_are_not_scaled_together(case):
    source = """
        def kernel(x, w):
            out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for i in nl.sequential_range(2):
                x_tile = nl.load(x[i * 128 : (i + 1) * 128, 0:128])
                factor[0:128, 0:1] = nl.max(x_tile, axis=[1])
                scaled = nl.multiply(x_tile, factor)
                acc += nl.matmul(scaled, nl.load(w[i * 128 : (i + 1) * 128, 0:256]))
            nl.store(out, value=nl.copy(acc))
            return out
    """
    kernel = case(source, (256, 128), (256, 256))
    assert "different factors" in kernel.refusal(CommuteRowScale(), "`x_tile` instead of `scaled`")


def test_the_right_operand_of_a_matmul_has_no_rows_of_the_product(case):
    source = """
        def kernel(x, w):
            out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            w_tile = nl.load(w)
            scaled = nl.multiply(w_tile, nl.sum(w_tile, axis=[1]))
            result = nl.copy(nl.matmul(nl.load(x), scaled))
            nl.store(out, value=result)
            return out
    """
    kernel = case(source, (128, 128), (128, 256))
    assert "rows of the product" in kernel.refusal(CommuteRowScale(), "`w_tile` instead of `scaled`")


TWO_LOOPS = """
    def kernel(x):
        out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        kept = nl.ndarray((4, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            kept[i, 0:128, 0:256] = nl.exp(nl.load(x[i * 128 : (i + 1) * 128, 0:256]))
        for m in nl.affine_range(4):
            total = nl.sum(kept[READ, 0:128, 0:256], axis=[1])
            result = nl.multiply(kept[m, 0:128, 0:256], total)
            nl.store(out[m * 128 : (m + 1) * 128, 0:256], value=result)
        return out
"""


def test_producer_and_consumer_share_an_iteration_and_the_array_between_them_shrinks(case):
    after = case(TWO_LOOPS.replace("READ", "m"), (512, 256)).apply(FuseLoops(), "over i with")
    assert after.printed == (
        "def kernel(x):\n"
        "    out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(4):\n"
        "        loaded = nl.load(x[128 * i : 128 * i + 128, :])\n"
        "        kept = nl.exp(loaded)\n"
        "        total = nl.sum(kept, axis=[1])\n"
        "        result = nl.multiply(kept, total)\n"
        "        nl.store(out[128 * i : 128 * i + 128, :], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_a_consumer_that_looks_ahead_keeps_its_own_loop(case):
    kernel = case(TWO_LOOPS.replace("READ", "3 - m"), (512, 256))
    assert "before its iteration" in kernel.refusal(FuseLoops(), "over i with")


def test_a_consumer_that_looks_back_may_join(case):
    source = TWO_LOOPS.replace("READ", "0")
    after = case(source, (512, 256)).apply(FuseLoops(), "over i with")
    assert "kept[0, :, :]" in after.source
    assert "for i in nl.sequential_range(4)" in after.source


def test_what_leads_to_no_output_is_dropped(case):
    kernel = case(
        """
        def kernel(x, y):
            out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            unused = nl.exp(nl.load(y))
            nl.store(out, value=nl.load(x))
            return out
        """,
        (128, 256),
        (128, 256),
    )
    after = kernel.apply(DropDeadCode(), "Drop 2 instructions")
    assert "nl.exp" not in after.source
    assert after.options(DropDeadCode()) == []
