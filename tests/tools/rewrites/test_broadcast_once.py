"""A row that every partition needs is repeated once, and no other operand is touched."""

from __future__ import annotations

from tools.rewrites.broadcast_once import BroadcastOnce
from tools.rewrites.fuse_scalar_tensor import FuseScalarTensor

AFFINE = """
    def kernel(x, gain):
        out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            row = nl.load(gain)
            tile = nl.load(x[i * 128 : (i + 1) * 128, :])
            scaled = nl.multiply(tile, 0.5)
            product = nl.multiply(scaled, row.broadcast_to((128, 512)))
            result = nl.add(product, row.broadcast_to((128, 512)))
            nl.store(out[i * 128 : (i + 1) * 128, :], value=result)
        return out
"""


def test_a_row_is_repeated_before_the_loop_for_all_of_its_users(case):
    after = case(AFFINE, (256, 512), (1, 512)).apply(BroadcastOnce(), "once before the loop over i")
    assert after.printed == (
        "def kernel(x, gain):\n"
        "    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    row = nl.load(gain)\n"
        "    row_rows = nl.copy(row.broadcast_to((128, 512)))\n"
        "    for i in nl.affine_range(2):\n"
        "        tile = nl.load(x[128 * i : 128 * i + 128, :])\n"
        "        scaled = nl.multiply(tile, 0.5)\n"
        "        product = nl.multiply(scaled, row_rows)\n"
        "        result = nl.add(product, row_rows)\n"
        "        nl.store(out[128 * i : 128 * i + 128, :], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_the_repeated_row_is_an_operand_that_fused_instructions_take(case):
    kernel = case(AFFINE, (256, 512), (1, 512))
    assert "operand of its own" in kernel.refusal(FuseScalarTensor(), "`scaled` and `product`")
    after = kernel.apply(BroadcastOnce(), "once before the loop over i")
    assert "operand1=row_rows" in after.apply(FuseScalarTensor(), "`scaled` and `product`").source


def test_a_row_that_changes_with_the_loop_is_not_taken_out_of_it(case):
    source = AFFINE.replace("nl.load(gain)", "nl.load(gain[i : i + 1, :])")
    assert case(source, (256, 512), (2, 512)).options(BroadcastOnce()) == []


def test_a_row_that_changes_between_two_uses_is_repeated_for_the_first_only(case):
    kernel = case(
        """
        def kernel(x, gain):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            row = nl.load(gain)
            product = nl.multiply(nl.load(x), row.broadcast_to((128, 512)))
            row[...] = nl.multiply(row, 2.0)
            result = nl.add(product, row.broadcast_to((128, 512)))
            nl.store(out, value=result)
            return out
        """,
        (128, 512),
        (1, 512),
    )
    after = kernel.apply(BroadcastOnce(), "over the partitions in SBUF once")
    assert "result = nl.add(product, row.broadcast_to((128, 512)))" in after.source


def test_a_value_for_each_partition_is_no_row(case):
    kernel = case(
        """
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(x)
            nl.store(out, value=nl.multiply(tile, nl.sum(tile, axis=[1])))
            return out
        """,
        (128, 512),
    )
    assert kernel.options(BroadcastOnce()) == []
