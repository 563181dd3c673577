"""Kernels of tests around a body: their text, their trace, and what the simulator computes for them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tools.neuroncore import ArraySpec, NKIError, trace
from tools.neuroncore.interpreter import interpret
from tools.neuroncore.ir import Instr, Kernel

Array = np.ndarray[Any, Any]

BETA1 = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


"""

LATER = """\
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


"""

TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
}
"""Element types by their names in `nki.language`."""


def source(body: str, parameters: str = "x", *, header: str = BETA1) -> str:
    """A module around a kernel's body; a text that defines functions itself is a module without imports."""
    text = textwrap.dedent(body).strip("\n")
    if "@nki." in text or "nki.jit(" in text:
        return f"{header}{text}\n"
    return f"{header}@nki.jit\ndef kernel({parameters}):\n{textwrap.indent(text, '    ')}\n"


def traced(
    body: str, *args: Any, parameters: str | None = None, target: str = "trn1", header: str = BETA1
) -> Kernel:
    """The kernel around a body. Its parameters are called x, y, z, ... unless named."""
    names = parameters if parameters is not None else ", ".join("xyzuvw"[: len(args)])
    return trace(source(body, names, header=header), args, target=target)


def run_all(
    body: str, *args: Any, parameters: str | None = None, target: str = "trn1", header: str = BETA1
) -> list[Array]:
    """Every output of the kernel around a body."""
    kernel = traced(body, *args, parameters=parameters, target=target, header=header)
    return interpret(kernel, [a for a in args if isinstance(a, np.ndarray)])


def run(
    body: str, *args: Any, parameters: str | None = None, target: str = "trn1", header: str = BETA1
) -> Array:
    """The first output of the kernel around a body."""
    return run_all(body, *args, parameters=parameters, target=target, header=header)[0]


def refusal(
    body: str,
    args: Sequence[Any] = (ArraySpec((256, 1024)),),
    *,
    parameters: str | None = None,
    target: str = "trn1",
    header: str = BETA1,
) -> NKIError:
    """The error that the kernel around a body is refused with."""
    try:
        traced(body, *args, parameters=parameters, target=target, header=header)
    except NKIError as error:
        return error
    raise AssertionError("the kernel is not refused")


def line_of(needle: str, body: str, *, header: str = BETA1) -> int:
    """Line of a kernel's text, made from a body, that something stands in."""
    lines = source(body, header=header).splitlines()
    return next(k for k, line in enumerate(lines, 1) if needle in line)


def instructions(kernel: Kernel) -> list[Instr]:
    """Instructions in program order."""
    return [instr for instr, _ in kernel.walk()]


def ops(kernel: Kernel) -> list[str]:
    """Their API names."""
    return [instr.op for instr in instructions(kernel)]


def stored(values: Any, dtype: Any) -> Array:
    """What a tile of an element type holds after values are written to it: rounded to nearest even, integers saturated."""
    kind = np.dtype(dtype)
    wide = np.asarray(values)
    if kind.kind not in "iu":
        return wide.astype(np.float32).astype(kind)
    limits = np.iinfo(kind)
    if wide.dtype.kind not in "iub":
        wide = np.rint(wide.astype(np.float64))
    return np.clip(wide, limits.min, limits.max).astype(kind)


def assert_close(found: Array, expected: Array, rtol: float = 3e-6, atol: float = 1e-6) -> None:
    """Equal element types and shapes, values within the precision of the type."""
    assert found.dtype == expected.dtype
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, expected)
        return
    precision = float(ml_dtypes.finfo(found.dtype).eps)
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected.astype(np.float64),
        rtol=max(rtol, precision if found.dtype.itemsize < 4 else 0.0),
        atol=atol,
    )
