"""Kernels of measured shapes, traced without data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tools.neuroncore import ArraySpec, trace
from tools.neuroncore.ir import Kernel

KERNELS = Path(__file__).parents[2] / "kernels"

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "silu": [(128, 32, 7168)],
    "adamw": [(10944, 2048)] * 4,
    "matmul": [(32, 128, 5120), (40, 128, 12288)],
    "bmm": [(16, 4096, 64), (16, 64, 4096)],
    "mamba": [(256, 7168), (256, 7168), (256, 16), (16, 7168), (16, 7168)],
    "rope": [(128, 262144), (64, 262144), (64, 262144)],
}


@cache
def load_kernel(name: str, shapes: tuple[tuple[int, ...], ...] | None = None, target: str = "trn1") -> Kernel:
    sizes = shapes if shapes is not None else SHAPES[name.split("_")[0]]
    arguments = [ArraySpec(tuple(shape), np.dtype(np.float32)) for shape in sizes]
    return trace((KERNELS / f"{name}.py").read_text(encoding="utf-8"), arguments, target=target)


@pytest.fixture
def kernel_of() -> Callable[..., Kernel]:
    """A kernel of tests/kernels by name, at its measured shape unless others are given."""
    return load_kernel


@pytest.fixture
def traced() -> Callable[..., Kernel]:
    """A kernel from the body of a function over named fp32 inputs."""

    def make(body: str, target: str = "trn1", dtype: str = "float32", **shapes: tuple[int, ...]) -> Kernel:
        lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
        source = (
            "import numpy as np\nimport neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\n"
            "import neuronxcc.nki.language as nl\n\n\n@nki.jit\n"
            f"def kernel({', '.join(shapes)}):\n{lines}\n"
        )
        import ml_dtypes

        element = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        return trace(source, [ArraySpec(shape, element) for shape in shapes.values()], target=target)

    return make
