"""The modules that a kernel's imports find: `neuronxcc.nki` or `nki`, made of this simulator's functions."""

from __future__ import annotations

import functools
import types
from typing import Any

from .registry import ApiModule


@functools.cache
def neuron_modules(dialect: str) -> dict[str, types.ModuleType]:
    """Stand-ins for every importable module of a dialect, by full name."""
    return _beta1() if dialect == "neuronxcc.nki" else _later()


def _beta1() -> dict[str, types.ModuleType]:
    from . import language
    from .tracer import jit

    def module(name: str, contents: dict[str, Any]) -> ApiModule:
        return ApiModule(name, "neuronxcc.nki", contents)

    nl = module("neuronxcc.nki.language", language.contents())
    nisa = module("neuronxcc.nki.isa", language.isa_contents())
    typing = module(
        "neuronxcc.nki.typing",
        {"tensor": MutableMarker("tensor"), "mutable_tensor": MutableMarker("mutable_tensor")},
    )
    compiler = module("neuronxcc.nki.compiler", compiler_contents())
    nki = module(
        "neuronxcc.nki",
        {
            "jit": jit,
            "trace": jit,
            "baremetal": jit,
            "benchmark": jit,
            "profile": jit,
            "language": nl,
            "isa": nisa,
            "typing": typing,
            "compiler": compiler,
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
    }


def _later() -> dict[str, types.ModuleType]:
    from .dialect_nki import modules

    return modules()


class MutableMarker:
    """``nt.tensor`` and ``nt.mutable_tensor``, for annotations: ``x: nt.mutable_tensor`` or ``nt.tensor[128, 512]``."""

    def __init__(self, name: str) -> None:
        """The marker's name is how the tracer recognises it."""
        self.name = name

    def __getitem__(self, shape: Any) -> MutableMarker:
        """Shapes in annotations are documentation."""
        return self

    def __repr__(self) -> str:
        """The name."""
        return self.name


class _Allocation:
    """``ncc.sbuf.alloc(...)`` and its siblings: direct allocation decides addresses, which results do not depend on."""

    def __init__(self, buffer: str) -> None:
        self.name = buffer

    def alloc(self, *_: Any, **__: Any) -> _Allocation:
        """Explicit addresses."""
        return self

    mod_alloc = auto_alloc = alloc


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
    """The attributes of `neuronxcc.nki.compiler`: allocation and scheduling hints, accepted without effect on results."""
    return {
        "sbuf": _Allocation("sbuf"),
        "psum": _Allocation("psum"),
        "enable_stack_allocator": _passthrough,
        "force_auto_alloc": _passthrough,
        "skip_middle_end_transformations": _passthrough,
        "multi_buffer": lambda *_, **__: None,
        "no_reorder": _Context,
    }
