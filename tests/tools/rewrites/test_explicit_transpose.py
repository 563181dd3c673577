"""The transpose of nl.matmul's left operand, made visible and taken out of loops."""

from __future__ import annotations

from tools.rewrites.explicit_transpose import ExplicitTranspose

SOURCE = """
    def kernel(x, w):
        out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
        x_tile = nl.load(x)
        for n in nl.affine_range(2):
            acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                w_tile = nl.load(w[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                acc += nl.matmul(x_tile[0:128, k * 128 : (k + 1) * 128], w_tile)
            nl.store(out[0:128, n * 512 : (n + 1) * 512], value=nl.copy(acc))
        return out
"""


def test_the_transpose_is_done_once_for_all_columns(case):
    after = case(SOURCE, (128, 256), (256, 1024)).apply(ExplicitTranspose(), "once before the loop over n")
    assert after.printed == (
        "def kernel(x, w):\n"
        "    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    x_tile = nl.load(x)\n"
        "    x_tile_t = nl.ndarray((2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    for k in nl.affine_range(2):\n"
        "        x_tile_t_psum = nisa.nc_transpose(x_tile[:, 128 * k : 128 * k + 128], engine=nisa.tensor_engine)\n"
        "        x_tile_t[k, :, :] = nl.copy(x_tile_t_psum)\n"
        "    for n in nl.affine_range(2):\n"
        "        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "        for k in nl.affine_range(2):\n"
        "            w_tile = nl.load(w[128 * k : 128 * k + 128, 512 * n : 512 * n + 512])\n"
        "            acc[...] += nisa.nc_matmul(x_tile_t[k, :, :], w_tile)\n"
        "        copy = nl.copy(acc)\n"
        "        nl.store(out[:, 512 * n : 512 * n + 512], value=copy)\n"
        "\n"
        "    return out\n"
    )


def test_it_can_stay_beside_the_matmul(case):
    kernel = case(SOURCE, (128, 256), (256, 1024))
    (option,) = [o for o in kernel.options(ExplicitTranspose()) if not o.levels]
    after = ExplicitTranspose().apply(kernel.kernel, option)
    assert sum(i.op == "nisa.nc_transpose" for i, _ in after.walk()) == 1


def test_an_operand_given_transposed_needs_none(case):
    after = case(
        """
        def kernel(x, w):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            product = nl.matmul(nl.load(x), nl.load(w), transpose_x=True)
            nl.store(out, value=nl.copy(product))
            return out
        """,
        (128, 128),
        (128, 512),
    ).apply(ExplicitTranspose(), "explicitly")
    assert "nc_transpose" not in after.source
    assert "nisa.nc_matmul(" in after.source


def test_an_operand_that_changes_with_the_loop_is_transposed_inside_it(case):
    kernel = case(
        """
        def kernel(x, w):
            out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            w_tile = nl.load(w)
            for m in nl.affine_range(2):
                x_tile = nl.load(x[m * 128 : (m + 1) * 128, 0:128])
                product = nl.matmul(x_tile, w_tile)
                nl.store(out[m * 128 : (m + 1) * 128, 0:512], value=nl.copy(product))
            return out
        """,
        (256, 128),
        (128, 512),
    )
    assert "depends on the loop over m" in kernel.refusal(ExplicitTranspose(), "once before the loop over m")
