"""How kernels are entered and left: parameters, annotations, decorators, results, direct allocation."""

from __future__ import annotations

import numpy as np
import pytest

from tools.neuroncore import ArraySpec, NKIError, interpret, trace

from .running import assert_close, ops, refusal, run, run_all, source, traced

RNG = np.random.default_rng(27)
COPY = "nl.store(out, nl.load(x))"


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


DECORATORS = [
    "@nki.jit",
    "@nki.jit()",
    "@nki.jit(mode='auto')",
    "@nki.jit(mode='simulation')",
    "@nki.baremetal",
    "@nki.benchmark(warmup=5, iters=10)",
    "@nki.profile(working_directory='/tmp', save_neff_name='a.neff')",
    "@nki.compiler.enable_stack_allocator\n    @nki.compiler.skip_middle_end_transformations\n    @nki.baremetal",
    "@nki.jit(experimental_flags='enable-mutable-parameter')",
]


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_kernel_is_found_by_its_decorator(decorator: str) -> None:
    body = f"""
    {decorator}
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        {COPY}
        return out
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)


def test_a_function_is_jitted_by_calling_nki_jit() -> None:
    body = f"""
    def plain(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        {COPY}
        return out

    kernel = nki.jit(plain, mode="simulation")
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)


def test_the_entry_is_the_last_kernel_unless_named() -> None:
    body = """
    @nki.jit
    def test_first(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.negative(nl.load(x)))
        return out

    @nki.jit
    def second(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)
    first = trace(source(body), [x], entry="test_first")
    np.testing.assert_array_equal(interpret(first, [x])[0], -x)


PARAMETERS = {
    "a default": ("x, scale=2.0", (), lambda x: 2 * x),
    "a number": ("x, scale", (3.0,), lambda x: 3 * x),
    "a keyword": ("x, *, scale", (4.0,), lambda x: 4 * x),
    "a keyword with a default": ("x, *, scale=5.0", (), lambda x: 5 * x),
    "an annotation": ("x: nt.tensor, scale: float = 6.0", (), lambda x: 6 * x),
    "a shape": ("x: nt.tensor[32, 20], scale=7.0", (), lambda x: 7 * x),
}


@pytest.mark.parametrize("form", PARAMETERS)
def test_arguments_reach_their_parameters(form: str) -> None:
    parameters, rest, function = PARAMETERS[form]
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), scale))
    return out
    """
    x = normal(32, 20)
    assert_close(run(body, x, *rest, parameters=parameters), function(x))


def test_any_number_of_tensors_is_taken() -> None:
    body = """
    out = nl.ndarray(xs[0].shape, dtype=xs[0].dtype, buffer=nl.shared_hbm)
    acc = nl.zeros(xs[0].shape, dtype=xs[0].dtype)
    for x in xs:
        acc += nl.load(x)
    nl.store(out, acc)
    return out
    """
    arrays = [normal(32, 20) for _ in range(3)]
    assert_close(run(body, *arrays, parameters="*xs"), sum(arrays))


def test_shapes_and_types_are_known_to_python() -> None:
    body = """
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    assert x.dtype == nl.float32 and x.ndim == 2 and len(x.shape) == 2 and x.size == rows * columns
    assert nl.tile_size.pmax == 128 and nl.tile_size.gemm_moving_fmax == 512 and nl.tile_size.psum_fmax == 512
    assert nl.finfo(nl.float32).max > 3e38 and nl.fp32.min < -3e38 and nl.bfp16.min < -3e38
    nl.store(out, nl.transpose(nl.load(x)))
    return out
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x.T)


def test_a_mutable_parameter_is_changed_and_returned() -> None:
    body = """
    nl.store(x[0:16], nl.multiply(nl.load(x[0:16]), 2.0))
    return x
    """
    x = normal(32, 20)
    expected = np.concatenate([2 * x[:16], x[16:]])
    kept = x.copy()
    np.testing.assert_array_equal(run(body, x, parameters="x: nt.mutable_tensor"), expected)
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize(
    "decorator", ["@nki.trace", "@nki.jit(mode='trace')", "@nki.jit(kernel_return=False)"]
)
def test_old_kernels_store_their_results_into_parameters(decorator: str) -> None:
    body = f"""
    {decorator}
    def kernel(x, out, other):
        nl.store(out, nl.load(x))
        nl.store(other, nl.negative(nl.load(x)))
    """
    x = normal(32, 20)
    found = run_all(body, x, np.zeros_like(x), np.zeros_like(x))
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], -x)


def test_a_kernel_of_today_does_not_write_into_parameters() -> None:
    body = "nl.store(y, nl.load(x))\nreturn y"
    x = normal(32, 20)
    assert refusal(body, [x, x], parameters="x, y").name == "err_cannot_update_immutable_parameter"


ANNOTATED = """
out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
t: nt.tensor[{shape}] = nl.load(x)
nl.store(out, t)
return out
"""


def test_an_annotated_shape_is_checked() -> None:
    x = normal(32, 20)
    np.testing.assert_array_equal(run(ANNOTATED.format(shape="32, x.shape[1]"), x), x)
    error = refusal(ANNOTATED.format(shape="20, 32"), [x])
    assert error.name == "err_annotation_shape_mismatch" and "[20, 32]" in error.message


def test_an_annotation_that_cannot_be_evaluated_is_documentation() -> None:
    x = normal(32, 20)
    np.testing.assert_array_equal(run(ANNOTATED.format(shape="rows, columns"), x), x)


def test_names_and_hints_change_nothing() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="result")
    with ncc.no_reorder():
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=ncc.sbuf.auto_alloc(), name="t")
        t[...] = nl.load(x, name="loading")
        u = nisa.activation(nl.copy, t, name="copying")
    nl.device_print("u is ", u)
    print("traced", u.shape)
    nl.store(out, u)
    return out
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)
    assert ops(traced(body, x)) == ["nl.load", "nisa.activation", "nl.store"]


IMPORTS = """\
from neuronxcc import nki
from neuronxcc.nki import isa as nisa, language as nl
from neuronxcc.nki.language import affine_range, par_dim
import neuronxcc.nki.typing as nt
import math, functools
from functools import partial

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in affine_range(math.ceil(x.shape[0] / 32)):
        negated = partial(nisa.tensor_scalar, op0=nl.multiply, operand0=-1.0)
        nl.store(out[32 * i:32 * (i + 1)], negated(nl.load(x[32 * i:32 * (i + 1)])))
    return out
"""


def test_modules_may_be_imported_in_any_way() -> None:
    x = normal(64, 20)
    np.testing.assert_array_equal(interpret(trace(IMPORTS, [x]), [x])[0], -x)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("import torch\n", "forbidden_import", "torch"),
        ("import neuronxcc.nki.kernels\n", "unknown_api", "neuronxcc.nki.kernels"),
        ("nl.zeros = None\n", "module_is_read_only", "zeros"),
        ("x = nl.zeros((4, 4), dtype=nl.float32)\n", "err_nki_api_outside_of_nki_kernel", ""),
        ("nki.simulate_kernel(None)\n", "unsupported_api", "loaded"),
    ],
)
def test_what_a_module_does_while_it_is_loaded_is_refused_with_its_line(
    text: str, name: str, said: str
) -> None:
    body = f"{text}\n@nki.jit\ndef kernel(x):\n    return x\n"
    error = refusal(body)
    assert error.name == name and said in str(error)
    assert error.line == 1 + source(body).splitlines().index(text.strip())


def test_a_kernel_launched_while_its_module_is_loaded_is_refused() -> None:
    body = """
    @nki.jit
    def kernel(x):
        return x

    kernel(np.zeros((4, 4)))
    """
    error = refusal(body)
    assert error.name == "unsupported_api" and "__main__" in (error.remedy or "")


def test_what_stands_under_main_is_not_run() -> None:
    body = f"""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        {COPY}
        return out

    if __name__ == "__main__":
        import torch
        kernel(torch.zeros(4))
    """
    x = normal(32, 20)
    np.testing.assert_array_equal(run(body, x), x)


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        ("x", "err_tensor_output_not_written_to"),
        ("out[0:16]", "invalid_return"),
        ("(out, 3)", "invalid_return"),
        ("None", "invalid_return"),
        ("nl.load(x)", "err_unsupported_memory"),
    ],
)
def test_what_cannot_be_returned_is_refused(returned: str, name: str) -> None:
    body = f"out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n{COPY}\nreturn {returned}"
    error = refusal(body, [normal(32, 20)])
    assert error.name == name and error.remedy


def test_what_every_iteration_creates_anew_cannot_be_returned() -> None:
    body = """
    for i in nl.affine_range(4):
        out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.private_hbm)
        nl.store(out, nl.load(x))
    return out
    """
    error = refusal(body, [normal(32, 20)])
    assert error.name == "err_local_variable_used_out_of_scope" and error.remedy


def test_an_optional_tensor_may_be_compared_with_none() -> None:
    body = """
    @nki.jit
    def kernel(x, y=None, z=None):
        assert x != None and not x == None and None != y and z == None
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x if y == None else y))
        return out
    """
    x, y = normal(32, 20), normal(32, 20)
    np.testing.assert_array_equal(run(body, x, y), y)


PLACED = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((128, 1), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    zero[...] = nisa.memset((128, 1), 0.0, dtype=nl.float32)
    t = nl.ndarray((2, nl.par_dim(128), 512), dtype=x.dtype, buffer={where})
    for i in nl.sequential_range(2):
        t[i] = nl.load(x[128 * i:128 * (i + 1), 0:512])
        t[i] = {call}
        nl.store(out, t[i])
    return out
"""
EXP = "nisa.activation(nl.exp, t[i], bias=zero)"


def test_a_kernel_may_place_its_tiles_itself() -> None:
    x = normal(256, 512)
    where = "ncc.sbuf.mod_alloc(base_addr=1024, num_free_tiles=(2,))"
    np.testing.assert_allclose(run(PLACED.format(where=where, call=EXP), x), np.exp(x[128:]), rtol=1e-6)


@pytest.mark.parametrize(
    ("where", "call", "name"),
    [
        ("ncc.sbuf.mod_alloc(base_addr=300000)", EXP, "invalid_allocation"),
        ("ncc.sbuf.mod_alloc(base_addr=0, base_partition=32)", EXP, "invalid_allocation"),
        ("ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, 0, 0))", EXP, "invalid_allocation"),
        ("ncc.psum.mod_alloc(base_bank=7, num_bank_tiles=(2,))", "nl.copy(t[i])", "invalid_allocation"),
        ("nl.sbuf", EXP, "mixed_allocation"),
        (
            "ncc.sbuf.mod_alloc(base_addr=1024)",
            "nisa.activation(nl.exp, t[i])",
            "err_bias_tensor_must_be_specified_in_allocation",
        ),
        (
            "ncc.sbuf.mod_alloc(base_addr=1024)",
            "nl.exp(t[i])",
            "err_bias_tensor_must_be_specified_in_allocation",
        ),
        (
            "ncc.sbuf.mod_alloc(base_addr=1024)",
            "nisa.nc_transpose(t[i, :, 0:128])[:, 0:1]",
            "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
        ),
        (
            "ncc.sbuf.mod_alloc(base_addr=1024)",
            "nl.zeros((128, 512), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=9000))",
            "err_tensor_creation_on_scratchpad_with_init_value_not_supported",
        ),
    ],
)
def test_a_kernel_that_places_its_tiles_must_place_them_all_and_well(
    where: str, call: str, name: str
) -> None:
    body = PLACED.format(where=where, call=call)
    error = refusal(body, [ArraySpec((256, 512))])
    assert error.name == name and error.remedy, error
    automatic = body.replace("@nki.jit", "@nki.compiler.force_auto_alloc\n@nki.jit")
    if call == EXP:
        traced(automatic, ArraySpec((256, 512)))


def test_scalar_arguments_are_part_of_the_trace() -> None:
    body = """
    out = nl.ndarray((x.shape[0], columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[:, 0:columns]))
    return out
    """
    x = normal(32, 20)
    kernel = traced(body, x, 7, parameters="x, columns")
    assert kernel.scalars == {"columns": 7} and kernel.outputs[0].shape == (32, 7)


def test_too_many_and_too_few_arguments_are_refused_with_the_signature() -> None:
    for given in ([], [normal(4, 4)] * 3):
        error = refusal("return x", given, parameters="x, y")
        assert error.name == "wrong_arguments" and "(x, y)" in error.message


def test_a_text_that_makes_python_wonder_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    error = refusal("t = 3 (x)\nreturn t", [normal(4, 4)])
    assert error.name == "python_error" and not list(recwarn)


def test_messages_hold_no_addresses_of_memory() -> None:
    error = refusal("return nl.ndarray((4, 4), dtype=nl.exp)", [normal(4, 4)])
    assert error.message == "exp is not an element type of NKI" and error.line and error.remedy


def test_an_error_never_leaves_as_anything_else() -> None:
    for body in (
        "return x.nothing",
        "return [][0]",
        "raise KeyError('a')",
        "import os",
        "x()",
        "return x @ x",
    ):
        with pytest.raises(NKIError):
            traced(body, normal(4, 4), parameters="x")


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        (
            "assert x.shape[0] % 100 == 0 and (\n    x.shape[1] == 3\n)",
            "x.shape[0] % 100 == 0 and x.shape[1] == 3",
        ),
        ("assert x.shape[1] == 3, f'{x.shape[1]} columns'", "1024 columns"),
    ],
)
def test_an_assertion_that_fails_is_told_by_what_it_says_or_else_asks(assertion: str, said: str) -> None:
    error = refusal(f"assert True\n{assertion}\nreturn x")
    assert error.message == f"assertion failed: {said}"
    assert "arguments" in (error.remedy or "")
