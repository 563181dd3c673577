"""How loops and launch grids are traced: once where the body allows it, unrolled where Python needs integers."""

from __future__ import annotations

import textwrap
import time

import numpy as np
import pytest

from tools.neuroncore import ArraySpec, Limits, NKIError, interpret, trace
from tools.neuroncore.ir import Kernel, Loop, LoopKind

from .running import assert_close, line_of, ops, refusal, run, run_all, source, traced

RNG = np.random.default_rng(26)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def loops(kernel: Kernel) -> list[tuple[LoopKind, int]]:
    """Kinds and trip counts of the loops, outermost first."""
    found: list[tuple[LoopKind, int]] = []

    def visit(body: list[object]) -> None:
        for node in body:
            if isinstance(node, Loop):
                found.append((node.kind, node.var.trips))
                visit(list(node.body))

    visit(list(kernel.body))
    return found


ROWS = """
out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
for i in {loop}:
    nl.store(out[32 * i:32 * (i + 1)], nl.exp(nl.load(x[32 * i:32 * (i + 1)])))
return out
"""


@pytest.mark.parametrize(
    ("loop", "kind"),
    [
        ("nl.affine_range(4)", LoopKind.AFFINE),
        ("nl.sequential_range(4)", LoopKind.SEQUENTIAL),
        ("range(4)", LoopKind.RANGE),
        ("nl.affine_range(0, 4)", LoopKind.AFFINE),
        ("nl.affine_range(x.shape[0] // 32)", LoopKind.AFFINE),
    ],
)
def test_a_loop_is_traced_once(loop: str, kind: LoopKind) -> None:
    x = normal(128, 20)
    body = ROWS.format(loop=loop)
    kernel = traced(body, x)
    assert loops(kernel) == [(kind, 4)] and ops(kernel) == ["nl.load", "nl.exp", "nl.store"]
    assert_close(run(body, x), np.exp(x))


@pytest.mark.parametrize(
    "loop",
    [
        "nl.static_range(4)",
        "[0, 1, 2, 3]",
        "(k for k in range(4))",
        "reversed(range(4))",
        "sorted(nl.affine_range(4))",
    ],
)
def test_an_iterable_of_python_is_unrolled(loop: str) -> None:
    x = normal(128, 20)
    body = ROWS.format(loop=loop)
    kernel = traced(body, x)
    assert loops(kernel) == [] and ops(kernel).count("nl.exp") == 4
    assert_close(run(body, x), np.exp(x))


NEEDS_INTEGERS = {
    "an if": "if i == 2:\n        t = nl.negative(t)",
    "a modulus": "if i % 2 == 0:\n        t = nl.negative(t)",
    "a quotient as position": "t = nl.add(t, nl.load(x[32 * (i // 2):32 * (i // 2) + 32]))",
    "a product of indices": "t = nl.add(t, nl.load(x[nl.ds(i * i * 8, 32)]))",
    "a Python list": "t = nl.multiply(t, [1.0, 2.0, 3.0, 4.0][i])",
    "a number of Python": "t = nl.multiply(t, float(i))",
    "a minimum": "t = nl.load(x[32 * min(i, 2):32 * min(i, 2) + 32])",
    "a range within": "for k in range(i):\n        t = nl.add(t, 1.0)",
    "an enumeration": "t = nl.add(t, sum(a * b for a, b in enumerate(range(int(i) + 1))))",
}


@pytest.mark.parametrize("need", NEEDS_INTEGERS)
@pytest.mark.parametrize("loop", ["nl.affine_range", "range"])
def test_a_loop_whose_body_needs_integers_is_unrolled(loop: str, need: str) -> None:
    body = f"""\
out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
for i in {loop}(4):
    t = nl.load(x[32 * i:32 * (i + 1)])
    {NEEDS_INTEGERS[need]}
    nl.store(out[32 * i:32 * (i + 1)], t)
return out
"""
    x = normal(128, 20)
    assert loops(traced(body, x)) == []
    static = run(body.replace(f"{loop}(4)", "nl.static_range(4)"), x)
    np.testing.assert_array_equal(run(body, x), static)


def test_only_the_loop_that_needs_integers_is_unrolled() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            t = nl.load(x[32 * i:32 * (i + 1), 10 * j:10 * (j + 1)])
            nl.store(out[32 * i:32 * (i + 1), 10 * j:10 * (j + 1)], -t if j == 1 else t)
    return out
    """
    x = normal(128, 20)
    assert loops(traced(body, x)) == [(LoopKind.AFFINE, 4)]
    np.testing.assert_array_equal(run(body, x), x * np.repeat([1, -1], 10).astype(np.float32))


def test_a_variable_carried_around_a_python_loop_unrolls_it() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((32, 20), dtype=x.dtype)
    for i in range(4):
        total = nl.add(total, nl.load(x[32 * i:32 * (i + 1)]))
    nl.store(out, total)
    return out
    """
    x = normal(128, 20)
    assert loops(traced(body, x)) == []
    assert_close(run(body, x), x.reshape(4, 32, 20).sum(0), rtol=1e-5, atol=1e-5)


def test_a_number_that_a_traced_loop_changes_changes_once() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    count = 0
    acc = nl.zeros((32, 20), dtype=x.dtype)
    for i in nl.sequential_range(4):
        acc += nl.load(x[32 * i:32 * (i + 1)])
        count += 1
    nl.store(out, nl.multiply(acc, 1.0 / count))
    return out
    """
    x = normal(128, 20)
    assert_close(run(body, x), x.reshape(4, 32, 20).sum(0), rtol=1e-5, atol=1e-5)


def test_a_break_makes_a_python_loop_run_for_real() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((32, 20), dtype=x.dtype)
    for i in range(4):
        if i == 2:
            break
        acc += nl.load(x[32 * i:32 * (i + 1)])
    nl.store(out, acc)
    return out
    """
    x = normal(128, 20)
    assert_close(run(body, x), x.reshape(4, 32, 20)[:2].sum(0))


def test_a_loop_runs_over_any_progression() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(96, -1, -32):
        nl.store(out[i:i + 32], nl.load(x[i:i + 32]))
    return out
    """
    x = normal(128, 20)
    assert loops(traced(body, x)) == [(LoopKind.RANGE, 4)]
    np.testing.assert_array_equal(run(body, x), x)


def test_a_sequential_loop_hands_tiles_on_in_place() -> None:
    body = """
    out = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    most = nl.full((32, 1), -1e30, dtype=x.dtype)
    for i in nl.sequential_range(4):
        here = nl.max(nl.load(x[32 * i:32 * (i + 1)]), axis=1)
        most[...] = nl.maximum(most, here)
    nl.store(out, most)
    return out
    """
    x = normal(128, 20)
    np.testing.assert_array_equal(run(body, x), x.reshape(4, 32, 20).max((0, 2))[:, None])


def test_tiles_collected_in_a_list_unroll_the_loop_that_collects_them() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for i in nl.affine_range(4):
        tiles.append(nl.load(x[32 * i:32 * (i + 1)]))
    nl.store(out, tiles[3] - tiles[0])
    return out
    """
    x = normal(128, 20)
    np.testing.assert_array_equal(run(body, x), x[96:] - x[:32])


def test_functions_of_the_kernel_are_traced_where_they_are_called() -> None:
    body = """
    def scaled(t, factor=2.0):
        def inner(u):
            return nl.multiply(u, factor)
        return inner(t)

    @nki.jit
    def plus_one(t):
        return nl.add(t, 1.0)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            t = nl.load(x[32 * i:32 * (i + 1)])
            nl.store(out[32 * i:32 * (i + 1)], plus_one(scaled(t, factor=3.0)))
        return out
    """
    x = normal(128, 20)
    assert_close(run(body, x), 3 * x + 1)


GRID = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(axis=1)
    assert nl.num_programs(0) == 4 and nl.num_programs() == 8 and nl.program_ndim() == 2
    assert nl.num_programs(axes=[0, 1]) == (4, 2)
    t = nl.load(x[32 * i:32 * (i + 1), 10 * j:10 * (j + 1)])
    {extra}
    nl.store(out[32 * i:32 * (i + 1), 10 * j:10 * (j + 1)], t)
    return out
"""


def grid(text: str, x: np.ndarray, shape: tuple[int, ...]) -> Kernel:
    return trace(source(text), [x], grid=shape)


def test_a_launch_grid_is_a_loop_around_the_kernel() -> None:
    x = normal(128, 20)
    kernel = grid(GRID.format(extra=""), x, (4, 2))
    assert loops(kernel) == [(LoopKind.SPMD, 4), (LoopKind.SPMD, 2)]
    np.testing.assert_array_equal(interpret(kernel, [x])[0], x)


@pytest.mark.parametrize(
    "extra",
    [
        "t = -t if i == 1 and j == 0 else t",
        "t = nl.multiply(t, [1.0, 2.0][j % 2])",
        "t = nl.add(t, float(i))",
    ],
)
def test_a_kernel_that_needs_its_place_in_the_grid_runs_once_for_each(extra: str) -> None:
    x = normal(128, 20)
    kernel = grid(GRID.format(extra=extra), x, (4, 2))
    assert loops(kernel) == [] and ops(kernel).count("nl.store") == 8
    found = interpret(kernel, [x])[0]
    expected = x.copy().reshape(4, 32, 2, 10)
    for i in range(4):
        for j in range(2):
            scope = {"i": i, "j": j, "t": expected[i, :, j].copy(), "nl": np}
            exec(extra, scope)
            expected[i, :, j] = scope["t"]
    np.testing.assert_array_equal(found, expected.reshape(128, 20))


@pytest.mark.parametrize("dims", ["nl.spmd_dim(nl.nc(2), 2)", "nl.nc(2) * 2", "4"])
def test_a_grid_may_be_spread_over_cores(dims: str) -> None:
    body = f"""
    @nki.jit
    def inner(x, out):
        i = nl.program_id(0)
        nl.store(out[32 * i:32 * (i + 1)], nl.load(x[32 * i:32 * (i + 1)]))

    sizes = {dims}

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        assert nl.num_programs(0) == sizes
        i = nl.program_id(0)
        nl.store(out[32 * i:32 * (i + 1)], nl.load(x[32 * i:32 * (i + 1)]))
        return out

    kernel = kernel[sizes]
    """
    x = normal(128, 20)
    np.testing.assert_array_equal(run(body, x), x)


def test_instances_of_a_grid_may_not_write_the_same_elements() -> None:
    text = GRID.format(extra="").replace("out[32 * i:32 * (i + 1), 10 * j:10 * (j + 1)]", "out[0:32, 0:10]")
    with pytest.raises(NKIError) as caught:
        grid(text, normal(128, 20), (4, 2))
    assert caught.value.name == "err_unexpected_output_dependencies"


def test_a_grid_axis_that_does_not_exist_is_refused() -> None:
    body = """
    out = nl.ndarray((1, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[nl.program_id(0)]))
    return out
    """
    error = refusal(body)
    assert error.name == "invalid_grid_axis" and "grid" in (error.remedy or "")


DEPENDENT = {
    "a constant position": ("out[0:32]", True),
    "the loop's index": ("out[32 * i:32 * (i + 1)]", False),
    "a reversed index": ("out[96 - 32 * i:128 - 32 * i]", False),
    "overlapping rows": ("out[16 * i:16 * i + 32]", True),
}


@pytest.mark.parametrize("case", DEPENDENT)
def test_iterations_that_overwrite_each_other_are_refused_in_affine_loops_only(case: str) -> None:
    index, overlap = DEPENDENT[case]
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    for i in nl.affine_range(4):
        nl.store({index}, nl.load(x[32 * i:32 * (i + 1)]))
    return out
    """
    x = normal(128, 20)
    if overlap:
        error = refusal(body, [x])
        assert error.name == "err_unexpected_output_dependencies"
        assert error.line == line_of(f"nl.store({index}", body)
    else:
        traced(body, x)
    traced(body.replace("affine_range", "sequential_range"), x)


INDEPENDENT = {
    "interleaved rows": "out[nl.arange(32)[:, None] * 4 + i, nl.arange(20)[None, :]]",
    "masked triangles": "out[nl.arange(32)[:, None] + 32 * i, nl.arange(20)[None, :]], mask=(nl.arange(20)[None, :] > i)",
    "digits": "out.reshape((2, 2, 32, 20))[i // 2, i % 2]",
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_independent_iterations_raise_no_false_alarm(case: str) -> None:
    index, _, mask = INDEPENDENT[case].partition(", mask")
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        t = nl.load(x[32 * i:32 * (i + 1)])
        nl.store({index}, t{", mask" + mask if mask else ""})
    return out
    """
    traced(body, normal(128, 20))


CARRIED = {
    "a chain of tiles": "s[i + 1] = nl.add(s[i], t)",
    "a chain of tiles, backwards": "s[3 - i] = nl.add(s[4 - i], t)",
    "a chain through an inner loop": (
        "for j in nl.affine_range(2):\n    s[i + 1, :, 10 * j:10 * j + 10] = nl.copy(s[i, :, 0:10])"
    ),
    "a window on what the next one writes": "s[i] = nl.add(s[i + 1], t)",
    "a running sum": "a[...] += t\ns[i] = nl.copy(a)",
    "a sum that decays": "a[...] = nl.multiply(a, 0.5)\na[...] += t",
    "a recurrence in one instruction": (
        "a[...] = nisa.scalar_tensor_tensor(data=a, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=t)"
    ),
    "a recurrence with a number": (
        "a[...] = nisa.tensor_scalar(a, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)"
    ),
    "a difference that changes sides": "a[...] = nl.subtract(t, a)",
}
FREE = {
    "sums": "a[...] += t\na[...] = nl.subtract(a, t)",
    "maxima": "a[...] = nl.maximum(a, t)",
    "a tile of its own": "s[i] = nl.multiply(t, 2.0)\ns[i] = nl.add(s[i], t)",
    "halves of two tiles": "s[i, :, 0:10] = nl.copy(t[:, 0:10])\ns[i + 1, :, 10:20] = nl.copy(s[i, :, 0:10])",
}


@pytest.mark.parametrize("case", [*CARRIED, *FREE])
def test_what_one_iteration_hands_to_the_next_is_refused_in_affine_loops_only(case: str) -> None:
    body = (
        "out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "s = nl.zeros((8, nl.par_dim(32), 20), dtype=nl.float32, buffer=nl.sbuf)\n"
        "a = nl.zeros((nl.par_dim(32), 20), dtype=nl.float32, buffer=nl.sbuf)\n"
        "for i in nl.affine_range(4):\n"
        "    t = nl.load(x[32 * i:32 * (i + 1)])\n"
        + textwrap.indent({**CARRIED, **FREE}[case], "    ")
        + "\nnl.store(out, nl.add(s[3], a))\nreturn out\n"
    )
    x = normal(128, 20)
    if case in CARRIED:
        error = refusal(body, [x])
        assert error.name == "err_unexpected_output_dependencies" and error.line and error.remedy
    else:
        traced(body, x)
    traced(body.replace("affine_range", "sequential_range"), x)


def test_an_affine_loop_may_accumulate() -> None:
    body = """
    out = nl.ndarray((32, 20), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((32, 20), dtype=x.dtype)
    for i in nl.affine_range(4):
        acc[...] += nl.load(x[32 * i:32 * (i + 1)])
    nl.store(out, acc)
    return out
    """
    x = normal(128, 20)
    assert_close(run(body, x), x.reshape(4, 32, 20).sum(0), rtol=1e-5, atol=1e-5)


def test_tracing_twice_gives_the_same_program() -> None:
    x = normal(128, 20)
    body = GRID.format(extra="t = nl.softmax(t, axis=1)")
    first, second = grid(body, x, (4, 2)), grid(body, x, (4, 2))
    assert [repr(i) for i, _ in first.walk()] == [repr(i) for i, _ in second.walk()]


def test_a_trace_ends_within_its_budget() -> None:
    x = normal(128, 20)
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(100000):
        nl.store(out, nl.load(x))
    return out
    """
    with pytest.raises(NKIError) as caught:
        trace(source(body), [x], limits=Limits(instructions=500))
    assert caught.value.name == "too_many_instructions" and caught.value.remedy


def test_ten_thousand_unrolled_calls_take_a_fraction_of_a_second() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(32):
        for j in nl.static_range(64):
            t = nl.load(x[128 * i:128 * (i + 1), 128 * j:128 * (j + 1)])
            u = nl.exp(t)
            v = nl.add(u, 1.0)
            w = nl.multiply(v, t)
            nl.store(out[128 * i:128 * (i + 1), 128 * j:128 * (j + 1)], w)
    return out
    """
    begin = time.process_time()
    kernel = traced(body, ArraySpec((4096, 8192)))
    took = time.process_time() - begin
    assert len(ops(kernel)) == 10240
    assert took < 2.0  # 0.25 s on an idle machine


def test_several_results_of_one_loop_nest() -> None:
    body = """
    sums = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        t = nl.load(x[32 * i:32 * (i + 1)])
        nl.store(sums[32 * i:32 * (i + 1)], nl.sum(t, axis=1))
        nl.store(out[32 * i:32 * (i + 1)], nl.square(t))
    return sums, out
    """
    x = normal(128, 20)
    sums, out = run_all(body, x)
    assert_close(sums, x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
    assert_close(out, x * x)
