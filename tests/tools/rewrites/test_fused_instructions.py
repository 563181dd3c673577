"""One instruction for several: scalar operations, activations, reductions, functions."""

from __future__ import annotations

from tools.rewrites.fold_into_activation import FoldIntoActivation
from tools.rewrites.fuse_reduction import FuseReduction
from tools.rewrites.fuse_scalar_tensor import FuseScalarTensor
from tools.rewrites.fuse_tensor_scalar import FuseTensorScalar
from tools.rewrites.use_fused_function import UseFusedFunction


def elementwise(*lines: str, load: str = "tile = nl.load(x)") -> str:
    """A kernel over one [128, 256] tile whose result is `result`."""
    body = "".join(f"    {line}\n" for line in (load, *lines))
    return (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        f"{body}"
        "    nl.store(out, value=result)\n"
        "    return out\n"
    )


SHAPES = ((128, 256), (128, 256))


def test_two_operations_with_scalars_are_one_tensor_scalar(case):
    source = elementwise("scaled = nl.multiply(tile, 3.0)", "result = nl.subtract(1.5, scaled)")
    after = case(source, *SHAPES).apply(FuseTensorScalar(), "`scaled` and `result`")
    assert after.printed == (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    tile = nl.load(x)\n"
        "    result = nisa.tensor_scalar(\n"
        "        data=tile,\n"
        "        op0=nl.multiply,\n"
        "        operand0=3.0,\n"
        "        op1=nl.subtract,\n"
        "        operand1=1.5,\n"
        "        reverse1=True,\n"
        "    )\n"
        "    nl.store(out[...], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_a_value_per_partition_is_a_scalar_too(case):
    source = elementwise(
        "total = nl.sum(tile, axis=[1])", "a = nl.add(tile, total)", "result = nl.multiply(a, 0.5)"
    )
    after = case(source, *SHAPES).apply(FuseTensorScalar(), "`a` and `result`")
    assert "operand0=total" in after.source


def test_a_step_that_others_read_is_kept_for_them(case):
    source = elementwise("a = nl.add(tile, 2.0)", "b = nl.multiply(a, 0.5)", "result = nl.add(a, b)")
    after = case(source, *SHAPES).apply(FuseTensorScalar(), "`a` and `b`")
    assert "a = nl.add(tile, 2.0)" in after.source


def test_a_step_whose_operand_changes_in_between_is_not_moved(case):
    source = elementwise(
        "column = nl.sum(tile, axis=[1])",
        "a = nl.multiply(tile, column)",
        "column[0:128, 0:1] = nl.multiply(column, 2.0)",
        "result = nl.add(a, column)",
    )
    assert "changes before" in case(source, *SHAPES).refusal(FuseTensorScalar(), "`a` and `result`")


def test_steps_under_different_masks_stay_apart(case):
    source = elementwise(
        "i_p = nl.arange(128)[:, None]",
        "i_f = nl.arange(256)[None, :]",
        "a = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.sbuf)",
        "b = nl.multiply(tile, 2.0)",
        "a[i_p, i_f] = nl.add(b, 1.0, mask=(i_f < 100))",
        "result = nl.copy(a)",
    )
    assert "mask" in case(source, *SHAPES).refusal(FuseTensorScalar(), "`b` and `a`")


def test_scale_and_bias_fold_into_an_activation(case):
    source = elementwise("a = nl.multiply(tile, -2.0)", "b = nl.add(a, 0.25)", "result = nl.exp(b)")
    first = case(source, *SHAPES).apply(FoldIntoActivation(), "the add that makes `b`")
    after = first.apply(FoldIntoActivation(), "the multiply that makes `a`")
    assert after.printed == (
        "def kernel(x, y):\n"
        "    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    bias = nisa.memset((128, 1), value=0.25, dtype=nl.float32)\n"
        "    tile = nl.load(x)\n"
        "    result = nisa.activation(nl.exp, data=tile, bias=bias, scale=-2.0)\n"
        "    nl.store(out[...], value=result)\n"
        "\n"
        "    return out\n"
    )


def test_a_subtracted_column_becomes_a_negated_bias(case):
    source = elementwise("top = nl.max(tile, axis=[1])", "a = nl.subtract(tile, top)", "result = nl.exp(a)")
    after = case(source, *SHAPES).apply(FoldIntoActivation(), "the subtract that makes `a`")
    assert "neg_top = nl.multiply(top, -1.0)" in after.source
    assert "nisa.activation(nl.exp, data=tile, bias=neg_top)" in after.source


def test_a_second_bias_finds_no_place(case):
    source = elementwise(
        "column = nl.sum(tile, axis=[1])",
        "a = nl.add(tile, column)",
        "result = nisa.activation(nl.tanh, a, bias=column)",
    )
    assert "bias already" in case(source, *SHAPES).refusal(FoldIntoActivation(), "the add that makes `a`")


def test_silu_and_sigmoid_are_recognized_however_they_are_spelled(case):
    scaled = "e = nisa.activation(nl.exp, tile, scale=-1.0)"
    chains = (
        ("e = nl.exp(nl.negative(tile))", "d = nl.add(e, 1.0)", "result = nl.divide(tile, d)"),
        (scaled, "d = nl.add(1.0, e)", "i = nl.reciprocal(d)", "result = nl.multiply(i, tile)"),
        ("s = nl.sigmoid(tile)", "result = nisa.tensor_tensor(tile, s, nl.multiply)"),
    )
    for chain in chains:
        after = case(elementwise(*chain), *SHAPES).apply(UseFusedFunction(), "`result` with one silu")
        assert after.printed.count("nisa.") == 1
        assert "result = nisa.activation(nl.silu, data=tile)" in after.source


def test_a_gate_of_another_tile_is_no_silu(case):
    source = elementwise("s = nl.sigmoid(nl.load(y))", "result = nl.multiply(tile, s)")
    assert case(source, *SHAPES).options(UseFusedFunction()) == []


def test_a_root_and_its_reciprocal_are_one_rsqrt(case):
    source = elementwise(
        "mean = nl.multiply(nl.sum(nl.square(tile), axis=[1]), 1.0 / 256)",
        "root = nl.sqrt(nl.add(mean, 1e-5))",
        "inverse = nl.reciprocal(root)",
        "result = nl.multiply(tile, inverse)",
    )
    after = case(source, *SHAPES).apply(UseFusedFunction(), "one rsqrt")
    assert "nl.sqrt" not in after.source and "nisa.activation(nl.rsqrt" in after.source


def test_a_sum_comes_with_the_activation_it_sums(case):
    source = elementwise("e = nl.exp(tile)", "total = nl.sum(e, axis=[1])", "result = nl.multiply(e, total)")
    after = case(source, *SHAPES).apply(FuseReduction(), "nisa.activation_reduce")
    assert (
        "e = nisa.activation_reduce(nl.exp, data=tile, reduce_op=nl.add, reduce_res=total[...])"
        in after.source
    )


def test_a_mean_is_a_sum_that_comes_with_the_activation(case):
    source = elementwise("e = nl.exp(tile)", "mean = nl.mean(e, axis=[1])", "result = nl.multiply(e, mean)")
    after = case(source, *SHAPES).apply(FuseReduction(), "nisa.activation_reduce")
    assert "reduce_op=nl.add, reduce_res=mean_sum[...])" in after.source
    assert "mean = nl.multiply(mean_sum, 0.00390625)" in after.source


def test_a_maximum_comes_with_the_scalar_operation_before_it(case):
    source = elementwise(
        "s = nl.multiply(tile, 0.125)", "top = nl.max(s, axis=[1])", "result = nl.subtract(s, top)"
    )
    after = case(source, *SHAPES).apply(FuseReduction(), "nisa.tensor_scalar_reduce")
    assert "reduce_op=nl.maximum" in after.source


def test_a_maximum_of_an_activation_is_not_a_sum(case):
    source = elementwise("e = nl.exp(tile)", "top = nl.max(e, axis=[1])", "result = nl.subtract(e, top)")
    assert "cannot be fused" in case(source, *SHAPES).refusal(FuseReduction(), "`top`")


def test_a_scaled_tile_and_another_one_are_one_instruction(case):
    source = elementwise("other = nl.load(y)", "s = nl.multiply(tile, 0.9)", "result = nl.subtract(other, s)")
    after = case(source, *SHAPES).apply(FuseScalarTensor(), "`s` and `result`")
    assert "nisa.scalar_tensor_tensor(" in after.source and "reverse1=True" in after.source


def test_a_row_spread_over_the_partitions_is_not_an_operand_of_the_fused_call(case):
    source = elementwise(
        "row = nl.load(y[0:1, 0:256])",
        "s = nl.multiply(tile, 0.9)",
        "result = nl.multiply(s, row.broadcast_to((128, 256)))",
    )
    assert "repeats along the partitions" in case(source, *SHAPES).refusal(
        FuseScalarTensor(), "`s` and `result`"
    )
