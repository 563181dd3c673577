"""The gate lets kernels through and nothing else, and says by which rule, at which line."""

import contextlib
import threading
from pathlib import Path

import pytest

from nkibench import load_problem, problem_names
from tools.gate import MAX_SOURCE_BYTES, Rule, inspect, launch_grid
from tools.neuroncore import ArraySpec, ir, trace

HEAD = """import numpy as np
import math
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
"""


def kernel(body: str, before: str = "", parameters: str = "x") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEAD}{before}\n@nki.jit\ndef kernel({parameters}):\n{lines}\n"


def rules(source: str) -> list[Rule]:
    return [rejection.rule for rejection in inspect(source)]


@pytest.mark.parametrize("name", problem_names())
def test_every_baseline_passes(name: str) -> None:
    assert inspect(load_problem(name).baseline_source()) == []


@pytest.mark.parametrize(
    "sizes", ["4", "4, 2", "TILES // 2, 2", "nl.nc(2) * TILES", "nl.spmd_dim(nl.nc(2), 3)"]
)
def test_a_launch_grid_of_constants_may_be_said_after_the_kernel(sizes: str) -> None:
    source = kernel("return x", before="TILES = 8\n") + f"launched = kernel[{sizes}]\n"
    assert inspect(source) == []
    assert launch_grid(source) in (sizes, f"({sizes})")
    assert launch_grid(kernel("return x")) is None and launch_grid("def") is None


UPSTREAM_FORM = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import neuronxcc.nki.isa as nisa
from neuronxcc.nki import trace
from neuronxcc.nki.language import par_dim

@nki.jit
def kernel(v1, v2):
    import numpy as np
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    from neuronxcc.nki import trace
    from neuronxcc.nki.language import par_dim
    v3 = nl.ndarray((128, 2048), dtype=np.float32, buffer=nl.shared_hbm)
    v4 = nl.shared_constant(np.identity(128, dtype=np.float32))
    v6 = nl.ndarray((nl.par_dim(128), 1), dtype=np.float32, name='memset.643', buffer=nl.sbuf)
    v6[nl.arange(128)[:, None], 0] = nisa.memset(shape=(128, 1), value=np.dtype(np.uint16).type(0),
                                                 dtype=np.float32, engine=nki.isa.unknown_engine)
    for i0 in nl.affine_range(86):
        v5 = nisa.tensor_scalar(data=v1, op0=np.multiply, operand0=np.dtype(np.float32).type(1e-05), op1=np.add)
        v7 = nl.loop_reduce(v5, op=np.max, loop_indices=[i0], mask=None, dtype=np.float32)
        ' end loop i0 '
    return v3
"""


RULER = "-" * 75
RULED = f"""
\"\"\"Doc.

{RULER}
Steps
{RULER}
\"\"\"
# {RULER}
# Load
# {RULER}
#{"+" * 80}
return x  # {RULER}
"""


def test_rulers_in_comments_and_docstrings_are_no_expressions() -> None:
    assert inspect(kernel(RULED)) == []


@pytest.mark.parametrize(
    "expression",
    [
        "-" * 200 + "1",
        "not " * 100 + "x",
        "lambda: " * 100 + "1",
        "-\n" * 100 + "1",
        "'#' if 1 else " + "~" * 90 + "1",
        '"""\n# """ if x else ' + "-" * 100 + "1",
    ],
)
def test_long_runs_of_prefixes_are_refused_wherever_they_hide(expression: str) -> None:
    source = f"{HEAD}\n@nki.jit\ndef kernel(x):\n    y = ({expression})\n    return x\n"
    assert Rule.nesting in rules(source)


def test_compiler_printed_kernels_pass() -> None:
    assert inspect(UPSTREAM_FORM) == []


@pytest.mark.parametrize(
    "source",
    [
        kernel("half = math.sqrt(x.shape[1])\nreturn x", before="TILE = 512\nSHAPE = (128, TILE * 2)\n"),
        kernel("return helper(x)", before="def helper(t, scale=1.0):\n    return nl.exp(t)\n"),
        kernel("tiles = [nl.load(x[i]) for i in range(4)]\nreturn tiles[0]"),
        kernel("assert x.shape[0] % 128 == 0, f'{x.shape[0]} rows'\nreturn x"),
        kernel("if x.shape[0] > 4:\n    raise ValueError('too large')\nreturn x"),
        kernel("inner = lambda t: nl.exp(t)\nreturn inner(x)"),
        kernel("return nisa.activation(op=np.copy, data=x, scale=-1.0)"),
        kernel("eps = np.float32(1e-5)\nreturn nisa.activation(op=nl.exp, data=x, scale=eps)"),
        kernel(
            "ones = nl.shared_constant(np.full((128, 128), 1.0 / x.shape[1], dtype=np.float32))\nreturn ones"
        ),
        kernel("low = np.zeros(x.shape, dtype=x.dtype)\nreturn low"),
        "import nki\nimport nki.language as nl\nimport nki.isa as nisa\n\n@nki.jit\ndef kernel(a):\n    return a\n",
        "from neuronxcc import nki\nimport neuronxcc.nki.language as nl\n\n@nki.jit\ndef kernel(a):\n    return a\n",
        "from neuronxcc.nki import jit\n\n@jit\ndef kernel(a):\n    return a\n",
        "import neuronxcc.nki as nki\n\n@nki.jit(mode='baremetal')\ndef kernel(a):\n    return a\n",
    ],
)
def test_honest_python_around_nki_passes(source: str) -> None:
    assert inspect(source) == []


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        (kernel("return x", before="import os\n"), Rule.imports, 6),
        (kernel("import subprocess\nreturn x"), Rule.imports, 9),
        (kernel("return x", before="from time import sleep\n"), Rule.imports, 6),
        (kernel("return x", before="from . import secrets\n"), Rule.imports, 6),
        (kernel("return x", before="from neuronxcc.nki.language import *\n"), Rule.imports, 6),
        (kernel("return x", before="import numpy.ctypeslib\n"), Rule.imports, 6),
        (kernel("return x", before="import neuronxcc.driver\n"), Rule.imports, 6),
        (kernel("return x", before="import nkibench\n"), Rule.imports, 6),
        (kernel("return x", before="import tools.gate\n"), Rule.imports, 6),
        (kernel("return x", before="import gc\n"), Rule.imports, 6),
        (kernel("open('f')\nreturn x"), Rule.builtin, 9),
        (kernel("return eval('x')"), Rule.builtin, 9),
        (kernel("return getattr(x, 'shape')"), Rule.builtin, 9),
        (kernel("return __import__('os')"), Rule.reflection, 9),
        (kernel("return globals()"), Rule.builtin, 9),
        (kernel("return type(x)"), Rule.builtin, 9),
        (kernel("return x.__class__"), Rule.reflection, 9),
        (kernel("return nl._module"), Rule.reflection, 9),
        (kernel("return '{0.x}'.format(x)"), Rule.reflection, 9),
        (kernel("g = (i for i in range(3))\nreturn g.gi_frame"), Rule.reflection, 10),
        (kernel("return nl.load.func_globals"), Rule.reflection, 9),
        (kernel("return __builtins__"), Rule.reflection, 9),
        (kernel("return nl.np.load('f')"), Rule.reflection, 9),
        (kernel("n = np\nreturn n.random.rand()"), Rule.reflection, 9),
        (kernel("return [nl][0].load"), Rule.reflection, 9),
        (kernel("nl = x\nreturn x"), Rule.state, 9),
        (kernel("return x", before="CACHE = {}\n"), Rule.state, 6),
        (kernel("return x") + "launched = kernel[[4]]\n", Rule.state, 10),
        (kernel("return x") + "launched = kernel[len('ab')]\n", Rule.state, 10),
        (kernel("return x", before="def f(t):\n    return t\n") + "launched = f[4]\n", Rule.state, 12),
        (kernel("return x") + "launched = kernel[4](1)\n", Rule.state, 10),
        (kernel("return x", before="CACHE = [0]\n"), Rule.state, 6),
        (kernel("return x", before="nl.load.cache = 1\n"), Rule.state, 6),
        (kernel("return x", before="print('imported')\n"), Rule.state, 6),
        (kernel("return x", parameters="x, seen=[]"), Rule.state, 8),
        (kernel("return x", before="def f(t, memo={}):\n    return t\n"), Rule.state, 6),
        (kernel("global count\nreturn x"), Rule.state, 9),
        (kernel("def f():\n    nonlocal y\n    y = 1\ny = 0\nreturn x"), Rule.state, 10),
        (kernel("try:\n    y = nl.load(x)\nexcept Exception:\n    y = x\nreturn y"), Rule.exceptions, 9),
        (kernel("try:\n    y = nl.load(x)\nexcept* ValueError:\n    y = x\nreturn y"), Rule.exceptions, 9),
        (kernel("return np.exp(x)"), Rule.host_array, 9),
        (kernel("return np.matmul(x, x)"), Rule.host_array, 9),
        (kernel("return np.add.reduce(x)"), Rule.host_array, 9),
        (kernel("return np.random.normal(size=4)"), Rule.host_array, 9),
        (kernel("return np.load('f')"), Rule.host_array, 9),
        (kernel("return np.array(x)"), Rule.host_array, 9),
        (kernel("return np.full((2, 2), x)"), Rule.host_array, 9),
        (kernel("return x", before="from numpy import linalg\n"), Rule.host_array, 6),
        (kernel("return nki.benchmark(x)"), Rule.runner, 9),
        (kernel("return x", before="from neuronxcc.nki import baremetal\n"), Rule.runner, 6),
        (kernel("return nki.simulate_kernel(x)"), Rule.runner, 9),
        (kernel("yield x"), Rule.construct, 9),
        (kernel("class A:\n    pass\nreturn x"), Rule.construct, 9),
        (kernel("async def f():\n    pass\nreturn x"), Rule.construct, 9),
        (HEAD + "@staticmethod\n@nki.jit\ndef kernel(x):\n    return x\n", Rule.builtin, 6),
        (kernel("np.zeros(4).tofile('f')\nreturn x"), Rule.reflection, 9),
        (kernel("raise x.error from None"), Rule.exceptions, 9),
    ],
)
def test_each_rule_names_its_line(source: str, rule: Rule, line: int) -> None:
    rejections = inspect(source)
    assert (rule, line) in [(rejection.rule, rejection.line) for rejection in rejections]
    assert all(rejection.message and rejection.advice for rejection in rejections)


def test_a_function_of_the_kernels_own_may_bear_a_forbidden_name() -> None:
    assert inspect(kernel("return open(x)", before="def open(t):\n    return t\n")) == []


def test_a_text_without_a_jit_function_is_no_kernel() -> None:
    assert rules("import neuronxcc.nki as nki\n\ndef kernel(x):\n    return x\n") == [Rule.no_kernel]
    assert Rule.no_kernel in rules("def jit(f):\n    return f\n\n@jit\ndef kernel(x):\n    return x\n")


def test_a_syntax_error_has_its_line() -> None:
    rejection = inspect(HEAD + "def f(:\n")[0]
    assert (rejection.rule, rejection.line) == (Rule.syntax, 6)


@pytest.mark.parametrize("source", ["\0", "x = '\ud800'", "", "\ufeff", "x\r=1\r\n"])
def test_odd_texts_get_a_verdict(source: str) -> None:
    assert inspect(source)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 100_000,
        "[" * 200 + "]" * 200,
        "x = " + "-" * 100_000 + "1",
        "x = " + "not " * 5_000 + "1",
        "x = " + "1+" * 100_000 + "1",
        "x = " + "1**" * 10_000 + "1",
        "x = " + "lambda:" * 5_000 + "1",
        "x = " + "1 if 1 else " * 20_000 + "1",
        "a" + ".b" * 100_000,
        "x = " + "f(" * 149 + ")" * 149 + "+1" * 5_000,
    ],
)
def test_deep_nesting_is_refused_and_not_followed(source: str) -> None:
    result: list[list[Rule]] = []
    # In a thread, where stacks are smaller.
    thread = threading.Thread(target=lambda: result.append(rules(source)))
    thread.start()
    thread.join(timeout=30)
    assert result and result[0][0] in (Rule.nesting, Rule.syntax)


def test_ten_megabytes_are_refused_at_once() -> None:
    assert rules("#" * (MAX_SOURCE_BYTES + 1)) == [Rule.size]


def test_at_most_twenty_rejections_are_listed() -> None:
    assert len(inspect(kernel("\n".join(f"open('{i}')" for i in range(100))))) == 20


def test_the_gate_itself_uses_none_of_what_it_inspects() -> None:
    source = Path(inspect.__code__.co_filename).read_text()
    assert "exec(" not in source and "eval(" not in source


def test_memory_of_the_process_is_no_constant() -> None:
    for body in ("y = np.ndarray((4096,), dtype=np.uint8)", "make = np.ndarray\ny = make((4096,))"):
        assert rules(kernel(body)) == [Rule.host_array]
    assert Rule.host_array in rules(kernel("y = ndarray((4096,))", before="from numpy import ndarray"))
    assert rules(kernel("y: np.ndarray = x", parameters="x: np.ndarray")) == []
    assert rules(kernel("y = make((4096,))", parameters="x: (make := np.ndarray)")) == [Rule.host_array]


HOLDINGS = """
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


@nki.jit
def kernel(x, look):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.int32)
    for i in nl.affine_range(2):
        tile = nl.load(x[nl.ds(128 * i, 128), :])
        k = nl.arange(128)[:, None]
        look(
            tile, x, out, i, i * 128 + k, i % 2, i <= 3, nl.mgrid[0:128, 0:512], nl.ds(i, 3), rows[k, 0] + 0, nl.float32,
            nl.par_dim(128), nl.tile_size, nl.sbuf, nt.tensor, ncc.sbuf, nisa.reduce_cmd.reset, nisa, nl, nki, kernel,
        )
        nl.store(out[nl.ds(128 * i, 128), :], tile)
    return out
"""


def test_no_attribute_that_passes_leads_from_what_a_kernel_holds_to_its_trace() -> None:
    reached: set[str] = set()
    asked: dict[str, bool] = {}

    def passes(name: str) -> bool:
        if name not in asked:
            text = f"import nki\n@nki.jit\ndef kernel(x):\n    y = x + 1\n    return y.{name}\n"
            asked[name] = not inspect(text)
        return asked[name]

    def look(*objects: object) -> None:
        seen: set[int] = set()

        def follow(value: object, path: str, depth: int) -> None:
            if id(value) in seen or depth > 4:
                return
            seen.add(id(value))
            if type(value).__module__ == ir.__name__ and not isinstance(value, ir.Buffer):
                reached.add(path)
                return
            if isinstance(value, list | tuple):
                for number, item in enumerate(value[:3]):
                    follow(item, f"{path}[{number}]", depth + 1)
            for name in dir(value):
                if passes(name):
                    # Asking for some needs a trace that does other things, or fails: those lead nowhere.
                    with contextlib.suppress(Exception):
                        follow(getattr(value, name), f"{path}.{name}", depth + 1)

        for number, value in enumerate(objects):
            follow(value, f"object {number}", 0)

    trace(HOLDINGS, [ArraySpec((256, 512)), look])
    assert {"shape", "dtype", "reshape"} <= {name for name, fine in asked.items() if fine}
    assert not reached
