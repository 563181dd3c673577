"""The modules that a kernel's imports find: `neuronxcc.nki` or `nki`, made of this simulator's functions."""

from __future__ import annotations

import functools
import types
from typing import Any

from ..dtypes import as_dtype
from ..errors import NKIError
from ..ir import Buffer
from .allocation import Memory
from .markers import TensorMarker
from .registry import ApiModule


@functools.cache
def neuron_modules(dialect: str) -> dict[str, types.ModuleType]:
    """Stand-ins for every importable module of a dialect, by full name."""
    return _beta1() if dialect == "neuronxcc.nki" else _later()


def _beta1() -> dict[str, types.ModuleType]:
    from . import isa, language, tracer

    def module(name: str, contents: dict[str, Any]) -> ApiModule:
        return ApiModule(name, "neuronxcc.nki", contents)

    nl = module("neuronxcc.nki.language", language.contents())
    nisa = module("neuronxcc.nki.isa", isa.contents())
    typing = module("neuronxcc.nki.typing", typing_contents())
    compiler = module("neuronxcc.nki.compiler", compiler_contents())
    constants = module("neuronxcc.nki.isa.constants", isa.enumerations())
    sizes = module(
        "neuronxcc.nki.language.constants", {"sizeinbytes": lambda dtype: as_dtype(dtype).itemsize}
    )
    nisa.__dict__["constants"], nl.__dict__["constants"] = constants, sizes
    nki = module(
        "neuronxcc.nki",
        {
            "jit": tracer.jit,
            "trace": tracer.old_trace,
            "baremetal": tracer.jit,
            "benchmark": tracer.jit,
            "profile": tracer.jit,
            "simulate_kernel": not_here,
            "language": nl,
            "isa": nisa,
            "typing": typing,
            "compiler": compiler,
            "tensor": TensorMarker("tensor"),
        },
    )
    root = module("neuronxcc", {"nki": nki})
    return {
        "neuronxcc": root,
        "neuronxcc.nki": nki,
        "neuronxcc.nki.language": nl,
        "neuronxcc.nki.isa": nisa,
        "neuronxcc.nki.typing": typing,
        "neuronxcc.nki.compiler": compiler,
        "neuronxcc.nki.isa.constants": constants,
        "neuronxcc.nki.language.constants": sizes,
    }


def _later() -> dict[str, types.ModuleType]:
    from .dialect_nki import modules

    return modules()


def typing_contents() -> dict[str, Any]:
    """The attributes of `neuronxcc.nki.typing`."""
    return {"tensor": TensorMarker("tensor"), "mutable_tensor": TensorMarker("mutable_tensor")}


def not_here(*_: Any, **__: Any) -> None:
    """``nki.simulate_kernel``: a kernel file may name it, not call it while it is loaded."""
    raise NKIError(
        "unsupported_api",
        "a kernel is run while its module is loaded",
        remedy='put what runs the kernel under `if __name__ == "__main__":`',
    )


def _passthrough(function: Any = None, **_: Any) -> Any:
    return _passthrough if function is None or not callable(function) else function


class _Context:
    """A context manager that does nothing, for scheduling hints."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def compiler_contents() -> dict[str, Any]:
    """The attributes of `neuronxcc.nki.compiler`: allocation, and scheduling hints, which have no effect on results."""
    from .tracer import force_auto_alloc

    return {
        "sbuf": Memory(Buffer.SBUF),
        "psum": Memory(Buffer.PSUM),
        "enable_stack_allocator": _passthrough,
        "force_auto_alloc": force_auto_alloc,
        "skip_middle_end_transformations": _passthrough,
        "multi_buffer": lambda factor=2: None,
        "no_reorder": _Context,
        "allocation_scope": _Context,
    }
