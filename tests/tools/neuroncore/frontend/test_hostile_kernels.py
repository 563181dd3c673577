"""Absurd or hostile kernels end in a typed error, soon, and leave the tracer usable."""

from __future__ import annotations

import threading

import pytest

from tools.neuroncore import ArraySpec, Limits, NKIError, trace

HEADER = """\
import itertools
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
"""
X = ArraySpec((128, 512))
SHORT = Limits(seconds=0.5, instructions=5_000)

GOOD = (
    HEADER
    + """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
"""
)


def kernel(body: str) -> str:
    """A kernel with a body before its store."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return HEADER + f"\n@nki.jit\ndef kernel(x):\n{lines}\n    return x\n"


HOSTILE = {
    "an_endless_while": ("while True:\n    pass", "trace_timeout"),
    "an_endless_iterator": ("for i in itertools.count():\n    i + 1", "trace_timeout"),
    "a_trillion_unrolled_iterations": (
        "for i in nl.static_range(10**12):\n    t = nl.load(x)",
        "too_many_instructions",
    ),
    "a_trillion_empty_iterations": ("for i in nl.static_range(10**12):\n    pass", "trace_timeout"),
    "an_endless_loop_that_swallows_exceptions": (
        "while True:\n    try:\n        1 / 0\n    except Exception:\n        pass",
        "trace_timeout",
    ),
    "a_trillion_element_tensor": (
        "t = nl.ndarray((10**6, nl.par_dim(128), 10**6), dtype=nl.float32)",
        "err_size_of_dimension_exceed_arch_limit",
    ),
    "a_trillion_element_output": (
        "t = nl.ndarray((10**6, 10**6), dtype=nl.float32, buffer=nl.shared_hbm)",
        "err_size_of_dimension_exceed_arch_limit",
    ),
    "endless_recursion": ("f = lambda n: f(n + 1)\nf(0)", "recursion_limit"),
    "a_negative_shape": ("t = nl.zeros((-5, 512), dtype=nl.float32)", "invalid_shape"),
    "an_index_beyond_any_integer": ("t = nl.load(x[10**30, 0:512])", "err_tensor_access_out_of_bound"),
    **{
        f"a_masked_index_{name}": (
            "j = nl.arange(512)[None, :]\n"
            "for k in nl.affine_range(4):\n"
            f"    i = nl.arange(128)[:, None] + {index}\n"
            "    t = nl.load(x[i, j], mask=(i < 128))",
            "unsupported_index_expression",
        )
        for name, index in {
            "times_a_huge_float": "k * 1e38",
            "times_a_huge_integer": "k * 10**30",
            "that_grows_step_by_step": "k * 65536 * 65536 * 65536",
            "plus_a_huge_integer": "10**30",
            "plus_a_huge_float": "1e38",
        }.items()
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_kernel_ends_in_a_typed_error_and_the_next_one_traces(name: str) -> None:
    body, expected = HOSTILE[name]
    with pytest.raises(NKIError) as caught:
        trace(kernel(body), [X], limits=SHORT)
    assert caught.value.name == expected, caught.value
    assert trace(GOOD, [X]).outputs


def test_a_source_of_ten_megabytes_is_refused_unread() -> None:
    with pytest.raises(NKIError) as caught:
        trace(HEADER + "#" * 10_000_000, [X])
    assert caught.value.name == "source_too_long"


def test_deeply_nested_source_is_a_syntax_error_not_a_crash() -> None:
    with pytest.raises(NKIError):
        trace(HEADER + "x = " + "(" * 5000 + "1" + ")" * 5000, [X])
    with pytest.raises(NKIError):
        trace(HEADER + "x = " + "-" * 50_000 + "1", [X])


def test_the_deadline_holds_in_a_thread_too() -> None:
    names: list[str] = []

    def run() -> None:
        try:
            trace(kernel("while True:\n    pass"), [X], limits=SHORT)
        except NKIError as error:
            names.append(error.name)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=20)
    assert names == ["trace_timeout"]
