"""Hoisting runs once what every iteration would repeat."""

from __future__ import annotations

import pytest

from tools.rewrites import RewriteError
from tools.rewrites.hoist_invariant import HoistInvariant, HoistOption

MATMUL = """
    def kernel(x, w):
        out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
        for m in nl.affine_range(2):
            for n in nl.affine_range(2):
                acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(2):
                    x_tile = nl.load(x[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                    w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                    acc += nisa.nc_matmul(x_tile, w_tile)
                result = nl.copy(acc)
                nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=result)
        return out
"""


def test_a_load_becomes_resident_with_a_block_for_each_iteration_that_needs_its_own(case):
    after = case(MATMUL, (256, 256), (256, 1024)).apply(HoistInvariant(), "`w_tile` (nl.load)")
    assert after.printed == (
        "def kernel(x, w):\n"
        "    out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    w_tile = nl.ndarray((2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    for n in nl.affine_range(2):\n"
        "        for k in nl.affine_range(2):\n"
        "            w_tile[n, k, :, :] = nl.load(w[128 * k : 128 * k + 128, 512 * n : 512 * n + 512])\n"
        "    for m in nl.affine_range(2):\n"
        "        for n in nl.affine_range(2):\n"
        "            acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "            for k in nl.affine_range(2):\n"
        "                x_tile = nl.load(x[128 * k : 128 * k + 128, 128 * m : 128 * m + 128])\n"
        "                acc[...] += nisa.nc_matmul(x_tile, w_tile[n, k, :, :])\n"
        "            result = nl.copy(acc)\n"
        "            nl.store(out[128 * m : 128 * m + 128, 512 * n : 512 * n + 512], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_what_an_instruction_needs_comes_along(case):
    after = case(
        """
        def kernel(x, g):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                row = nl.load(g)
                weight = nl.exp(row)
                tile = nl.load(x[i * 128 : (i + 1) * 128, 0:512])
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=nl.multiply(tile, weight))
            return out
        """,
        (256, 512),
        (128, 512),
    ).apply(HoistInvariant(), "`weight` (nl.exp) and what it needs out of the loop over i")
    assert after.source.index("nl.exp(row)") < after.source.index("for i in")


def test_everything_that_can_go_goes_at_once(case):
    kernel = case(
        """
        def kernel(x, g, h):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                g_tile = nl.load(g)
                h_tile = nl.load(h)
                tile = nl.load(x[i * 128 : (i + 1) * 128, 0:512])
                shifted = nl.add(nl.multiply(tile, g_tile), h_tile)
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=shifted)
            return out
        """,
        (256, 512),
        (128, 512),
        (128, 512),
    )
    after = kernel.apply(HoistInvariant(), "Hoist everything")
    assert after.source.index("nl.load(h)") < after.source.index("for i in")


def test_a_tensor_that_the_loop_changes_again_stays(case):
    kernel = case(
        """
        def kernel(x, g):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                tile = nl.load(g)
                tile[0:128, 0:512] = nl.multiply(tile, nl.load(x[i * 128 : (i + 1) * 128, 0:512]))
                nl.store(out[i * 128 : (i + 1) * 128, 0:512], value=tile)
            return out
        """,
        (256, 512),
        (128, 512),
    )
    assert kernel.options(HoistInvariant()) == []


def test_what_depends_on_the_loop_stays(case):
    kernel = case(MATMUL, (256, 256), (256, 1024))
    option = HoistOption((0,), (0, 0, 1, 0), "m", "x_tile", "nl.load")
    with pytest.raises(RewriteError, match="depends on the loop over m"):
        HoistInvariant().apply(kernel.kernel, option)


def test_an_operand_that_does_not_fit_stays(case):
    kernel = case(
        """
        def kernel(x, w):
            out = nl.ndarray((256, 16384), dtype=nl.float32, buffer=nl.shared_hbm)
            for m in nl.affine_range(2):
                for n in nl.affine_range(32):
                    acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(3):
                        x_tile = nl.load(x[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                        w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                        acc += nisa.nc_matmul(x_tile, w_tile)
                    nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(acc))
            return out
        """,
        (384, 256),
        (384, 16384),
    )
    assert "sbuf" in kernel.refusal(
        HoistInvariant(), "`w_tile` (nl.load) and what it needs out of the loop over m"
    )
    assert all("over m" not in o.describe() for o in kernel.options(HoistInvariant()))
