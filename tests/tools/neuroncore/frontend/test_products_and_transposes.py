"""Matrix products and transposes against NumPy: shapes, element types, accumulation, where results land."""

from __future__ import annotations

import numpy as np
import pytest

from .running import TYPES, assert_close, instructions, line_of, ops, refusal, run, stored, traced

RNG = np.random.default_rng(23)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return stored(RNG.normal(size=shape), TYPES[dtype])


PRODUCT = """
out = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.shared_hbm)
a, b = nl.load(x), nl.load(y)
nl.store(out, {expression})
return out
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize(
    ("expression", "turned"),
    [
        ("nisa.nc_matmul(a, b)", True),
        ("nl.matmul(a, b, transpose_x=True)", True),
        ("nl.matmul(a, b)", False),
    ],
)
@pytest.mark.parametrize("sizes", [(7, 19, 45), (128, 128, 512), (1, 128, 3)], ids=str)
def test_products_add_up_in_float32(
    expression: str, turned: bool, dtype: str, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    found = run(
        PRODUCT.format(shape=(m, n), expression=expression), np.ascontiguousarray(a.T) if turned else a, b
    )
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert_close(found, stored(expected, np.float32), rtol=1e-5, atol=2e-4)


def test_short_floats_may_mix() -> None:
    a, b = normal(19, 7, dtype="bfloat16"), normal(19, 45, dtype="float8_e4m3")
    found = run(PRODUCT.format(shape=(7, 45), expression="nisa.nc_matmul(a, b)"), a, b)
    assert_close(found, a.astype(np.float32).T @ b.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_free_axes_of_the_moving_operand_stay() -> None:
    a, b = normal(19, 3, 4), normal(19, 5, 9)
    found = run(PRODUCT.format(shape=(12, 5, 9), expression="nisa.nc_matmul(a, b)"), a, b)
    assert_close(found, np.einsum("km,knj->mnj", a.reshape(19, 12), b), rtol=1e-5, atol=1e-5)


ACCUMULATED = {
    "zeros and +=": ("nl.zeros((16, 20), dtype=nl.float32, buffer=nl.psum)", "acc += nisa.nc_matmul(a, b)"),
    "zeros and += of a part": (
        "nl.zeros((16, 20), dtype=nl.float32, buffer=nl.psum)",
        "acc[0:16, 0:20] += nl.matmul(a, b, transpose_x=True)",
    ),
    "an undefined tile": (
        "nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.psum)",
        "acc += nisa.nc_matmul(a, b)",
    ),
}


@pytest.mark.parametrize("form", ACCUMULATED)
@pytest.mark.parametrize("loop", ["affine_range", "sequential_range", "static_range"])
def test_products_accumulate_in_psum(form: str, loop: str) -> None:
    make, update = ACCUMULATED[form]
    body = f"""
    out = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = {make}
    for k in nl.{loop}(3):
        a, b = nl.load(x[32 * k:32 * (k + 1), :]), nl.load(y[32 * k:32 * (k + 1), :])
        {update}
    nl.store(out, nl.copy(acc))
    return out
    """
    x, y = normal(96, 16), normal(96, 20)
    kernel = traced(body, x, y)
    assert all(i.attrs["accumulate"] for i in instructions(kernel) if "matmul" in i.op)
    assert_close(run(body, x, y), x.T @ y, rtol=1e-5, atol=1e-5)


def test_a_sum_begun_by_a_product_needs_no_zero() -> None:
    body = """
    out = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.psum)
    acc[...] = nisa.nc_matmul(nl.load(x[0:32, :]), nl.load(y[0:32, :]))
    acc[...] += nisa.nc_matmul(nl.load(x[32:64, :]), nl.load(y[32:64, :]))
    nl.store(out, acc)
    return out
    """
    x, y = normal(64, 16), normal(64, 20)
    assert "nl.zeros" not in ops(traced(body, x, y))
    assert_close(run(body, x, y), x.T @ y, rtol=1e-5, atol=1e-5)


def test_sums_in_sbuf_are_additions() -> None:
    body = """
    out = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((16, 20), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        acc += nisa.nc_matmul(nl.load(x[32 * k:32 * (k + 1), :]), nl.load(y[32 * k:32 * (k + 1), :]))
    nl.store(out, acc)
    return out
    """
    x, y = normal(64, 16), normal(64, 20)
    assert ops(traced(body, x, y)).count("nl.add") == 1
    assert_close(run(body, x, y), x.T @ y, rtol=1e-5, atol=1e-5)


def test_a_transpose_feeds_a_product_without_a_copy_in_the_kernel() -> None:
    body = """
    out = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    turned = nisa.nc_transpose(nl.load(x))
    nl.store(out, nisa.nc_matmul(turned, nl.load(y)))
    return out
    """
    x, y = normal(16, 32), normal(32, 20)
    assert ops(traced(body, x, y)) == [
        "nl.load",
        "nisa.nc_transpose",
        "nl.load",
        "nl.copy",
        "nisa.nc_matmul",
        "nl.store",
    ]
    assert_close(run(body, x, y), x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8"])
@pytest.mark.parametrize(
    "expression",
    ["nl.transpose({t})", "nisa.nc_transpose({t})", "nisa.nc_transpose({t}, engine=nisa.tensor_engine)"],
)
def test_transposes_move_elements_exactly(expression: str, dtype: str) -> None:
    x = stored(RNG.normal(size=(37, 60)) * 10, TYPES[dtype])
    body = f"""
    out = nl.ndarray((60, 37), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, {expression.format(t="nl.load(x)")})
    return out
    """
    np.testing.assert_array_equal(run(body, x), x.T)


def test_free_axes_are_flattened_by_a_transpose() -> None:
    x = normal(37, 4, 15)
    body = """
    out = nl.ndarray((60, 37), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_transpose(nl.load(x)))
    return out
    """
    np.testing.assert_array_equal(run(body, x), x.reshape(37, 60).T)


@pytest.mark.parametrize("buffer", ["sbuf", "psum"])
def test_the_vector_engine_transposes_small_tiles_from_either_memory(buffer: str) -> None:
    body = f"""
    out = nl.ndarray((32, 30), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((30, 32), dtype=x.dtype, buffer=nl.{buffer})
    t[...] = nl.load(x)
    nl.store(out, nisa.nc_transpose(t, engine=nisa.vector_engine))
    return out
    """
    x = normal(30, 32)
    np.testing.assert_array_equal(run(body, x), x.T)


@pytest.mark.parametrize(
    ("shape", "order", "axes"),
    [
        ((30, 45), (1, 0), ""),
        ((30, 45), (1, 0), ", axes=(1, 0)"),
        ((6, 9, 20), (2, 1, 0), ""),
        ((3, 4, 5, 6), (3, 1, 2, 0), ", axes=(3, 1, 2, 0)"),
    ],
)
def test_dma_transposes_while_it_loads(shape: tuple[int, ...], order: tuple[int, ...], axes: str) -> None:
    x = normal(*shape, dtype="bfloat16")
    turned = x.transpose(order)
    body = f"""
    out = nl.ndarray({turned.shape}, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.dma_transpose(x{axes}))
    return out
    """
    np.testing.assert_array_equal(run(body, x), turned)


def test_a_load_may_transpose() -> None:
    x = normal(200, 90)
    body = """
    out = nl.ndarray((90, 200), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load_transpose2d(x))
    return out
    """
    np.testing.assert_array_equal(run(body, x), x.T)


def test_a_product_with_the_identity_transposes() -> None:
    body = """
    out = nl.ndarray((60, 37), dtype=nl.float32, buffer=nl.shared_hbm)
    one = nl.load(nl.shared_identity_matrix(37, dtype=nl.float32))
    nl.store(out, nisa.nc_matmul(nl.load(x), one, is_moving_onezero=True, is_transpose=True))
    return out
    """
    x = normal(37, 60)
    np.testing.assert_array_equal(run(body, x), x.T)


def test_pairs_of_rows_are_contracted_at_once_on_trn2() -> None:
    body = """
    out = nl.ndarray((24, 40), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_matmul(nl.load(x), nl.load(y), perf_mode="double_row_gen3"))
    return out
    """
    x, y = normal(32, 2, 24, dtype="float8_e4m3"), normal(32, 2, 40, dtype="float8_e4m3")
    expected = np.einsum("krm,krn->mn", x.astype(np.float32), y.astype(np.float32))
    assert_close(run(body, x, y, target="trn2"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "name", "said"),
    [
        ("nisa.nc_matmul(t[0:64, 0:128], t[:, 0:512])", "err_num_partition_mismatch", "64 and 128"),
        ("nisa.nc_matmul(t[:, 0:129], t[:, 0:512])", "err_size_of_dimension_exceed_arch_limit", "129"),
        ("nisa.nc_matmul(t[:, 0:128], t[:, 0:513])", "err_size_of_dimension_exceed_arch_limit", "513"),
        ("nisa.nc_matmul(t[:, 0:128], h[:, 0:512])", "invalid_operand_dtype", "both must be"),
        ("nisa.nc_matmul(i[:, 0:128], h[:, 0:512])", "invalid_operand_dtype", "int32"),
        ("nisa.nc_matmul(p[:, 0:128], t[:, 0:512])", "err_unsupported_memory", "psum"),
        ("nl.matmul(t[:, 0:64], t[:, 0:512])", "shape_mismatch", "inner sizes differ"),
        ("nl.matmul(t[:, 0:128], t[:, 0:513])", "err_size_of_dimension_exceed_arch_limit", "513"),
        ("nl.matmul(x, t)", "err_unsupported_memory", "hbm"),
        (
            "nisa.nc_matmul(h[:, 0:128], h[:, 0:512], perf_mode='double_row_gen3')",
            "unsupported_on_target",
            "v3",
        ),
        ("nisa.nc_matmul(h[:, 0:128], h[:, 0:512], perf_mode='fast')", "unsupported_api", "fast"),
        ("nisa.nc_matmul(t[:, 0:64], t[:, 0:512], tile_position=(0, 0))", "invalid_operand", "together"),
        (
            "nisa.nc_matmul(t[:, 0:64], t[:, 0:512], tile_position=(0, 0), tile_size=(64, 64))",
            "invalid_operand",
            "does not hold",
        ),
        (
            "nisa.nc_matmul(t[0:32, 0:32], t[0:32, 0:512], tile_position=(0, 0), tile_size=(32, 32))",
            "invalid_operand",
            "32x32",
        ),
        ("nisa.nc_transpose(t)", "err_size_of_dimension_exceed_arch_limit", "1024"),
        ("nisa.nc_transpose(p, engine=nisa.tensor_engine)", "err_unsupported_memory", "tensor engine"),
        (
            "nisa.nc_transpose(t[:, 0:64], engine=nisa.vector_engine)",
            "err_size_of_dimension_exceed_arch_limit",
            "128x64",
        ),
        ("nisa.nc_transpose(t[:, 0:64], engine=nisa.scalar_engine)", "unsupported_engine", "scalar"),
        ("nisa.dma_transpose(x, axes=(0, 1))", "unsupported_axis", "(0, 1)"),
    ],
)
def test_what_the_tensor_engine_cannot_take_is_refused(call: str, name: str, said: str) -> None:
    body = f"""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x[0:128, 0:1024])
    h = nl.copy(t, dtype=nl.bfloat16)
    i = nl.copy(t, dtype=nl.int32)
    p = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
    r = {call}
    nl.store(out, t[:, 0:512])
    return out
    """
    error = refusal(body)
    assert error.name == name and said in error.message, error
    assert error.line == line_of(call, body) and error.remedy


@pytest.mark.parametrize("size", ["(64, 128)", "(128, 64)"])
def test_small_products_may_say_where_in_the_array_they_run(size: str) -> None:
    body = f"""
    out = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_matmul(nl.load(x), nl.load(y), tile_position=(0, 0), tile_size={size}))
    return out
    """
    x, y = normal(64, 32), normal(64, 40)
    assert_close(run(body, x, y), x.T @ y, rtol=1e-5, atol=1e-5)


MASKED = """
out = nl.ndarray((100, 300), dtype=nl.float32, buffer=nl.shared_hbm)
k, m, n = nl.arange(64)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
a, b = nl.load(x), nl.load(y)
product = {product}
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
nl.store(out[p, f], nl.copy(product, mask=(p < 100) & (f < 300)), mask=(p < 100) & (f < 300))
return out
"""


@pytest.mark.parametrize(
    ("product", "rows"),
    [
        ("nisa.nc_matmul(a[m < 100], b[n < 300])", slice(64)),
        ("nisa.nc_matmul(a[m < 100], b[n < 300], mask=(nl.arange(128)[:, None] >= 0))", slice(64)),
        ("nisa.nc_matmul(a[k, m + 28][m + 28 < 128], b[k, n + 212][n < 300])", slice(64)),
        ("nisa.nc_matmul(a[m < 100][k < 40], b[n < 300])", slice(40)),
        ("nisa.nc_matmul(a[m < 100][k < 40], b[2 * k >= 63][n < 300])", slice(32, 40)),
        ("nl.matmul(a[m <= 99], b[k > 31][n <= 299], transpose_x=True)", slice(32, 64)),
    ],
)
def test_operands_of_a_product_may_have_masks_of_their_own(product: str, rows: slice) -> None:
    a, b = normal(64, 128), normal(64, 512)
    wanted = (a[:, 28:], b[:, 212:]) if "+ 28" in product else (a[:, :100], b[:, :300])
    found = run(MASKED.format(product=product), a, b)
    assert_close(found, wanted[0][rows].T @ wanted[1][rows], rtol=1e-5, atol=1e-4)


def test_the_masked_operand_of_a_product_as_written_has_its_rows_along_the_free_axis() -> None:
    body = """
    out = nl.ndarray((100, 300), dtype=nl.float32, buffer=nl.shared_hbm)
    m, k, n = nl.arange(128)[:, None], nl.arange(64)[None, :], nl.arange(512)[None, :]
    product = nl.matmul(nl.load(x)[m < 100][k < 40], nl.load(y)[n < 300])
    nl.store(out, product[0:100, 0:300])
    return out
    """
    a, b = normal(128, 64), normal(64, 512)
    assert_close(run(body, a, b), a[:100, :40] @ b[:40, :300], rtol=1e-5, atol=1e-4)


def test_a_mask_on_rows_that_depends_on_a_loop_unrolls_it() -> None:
    body = """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    k, m, n = nl.arange(64)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(3):
        row = 64 * i + k
        a, b = nl.load(x[row, m], mask=(row < 150)), nl.load(y[row, n], mask=(row < 150))
        total += nisa.nc_matmul(a[row < 150], b[row < 150])
    nl.store(out, total)
    return out
    """
    a, b = normal(150, 128), normal(150, 512)
    assert_close(run(body, a, b), a.T @ b, rtol=1e-5, atol=1e-4)
    products = [i for i in instructions(traced(body, a, b)) if i.op == "nisa.nc_matmul"]
    assert [i.args["moving"].shape[0] for i in products] == [64, 64, 22]


@pytest.mark.parametrize(
    "use",
    [
        "nl.exp(a[f < 4])", "nl.add(a, a[f < 4])", "a[f < 4] * 2.0", "-a[f < 4]", "a[f < 4].reshape((64, 128))",
        "a[f < 4][0:4, 0:4]", "nisa.tensor_copy(a[f < 4])", "nl.load(x[f < 4])", "nl.sum(a[f < 4], axis=1)",
        "a[p, f < 4]",
    ],
)  # fmt: skip
def test_only_products_take_operands_with_masks(use: str) -> None:
    body = f"p, f = nl.arange(64)[:, None], nl.arange(128)[None, :]\na = nl.load(x)\nt = {use}\nreturn t"
    error = refusal(body, [normal(64, 128)])
    assert error.name == "unsupported_index" and "indexed with a comparison" in error.message
    assert "mask=" in (error.remedy or "")


def test_a_mask_of_an_operand_compares_one_axis_at_a_time() -> None:
    body = MASKED.format(product="nisa.nc_matmul(a[k + m < 100], b)")
    error = refusal(body, [normal(64, 128), normal(64, 512)], parameters="x, y")
    assert error.name == "err_unsupported_expression_in_mask"
