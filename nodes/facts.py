"""What every prompt of a run says about the problem and the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nkibench.problem import Problem
from nkibench.syntax import parse
from tools.backends import ArrayType
from tools.kernel import Kernel
from tools.neuroncore.machine import machine_for

from .context import RunContext


@dataclass(frozen=True)
class Facts:
    """Texts and numbers for the templates, the same all through a run."""

    problem: str
    reference: str
    arguments: str
    target: str
    dialect: str
    partitions: int
    sbuf_kib: int

    @property
    def values(self) -> dict[str, Any]:
        """By the names that templates use."""
        return {
            "problem": self.problem,
            "reference": fenced(self.reference),
            "arguments": self.arguments,
            "target": self.target,
            "partitions": self.partitions,
            "sbuf_kib": self.sbuf_kib,
            **_of_machine(self.target),
        }


def facts_of(problem: Problem, context: RunContext, arguments: Sequence[ArrayType | float]) -> Facts:
    """The facts of a problem on a target, with its kernel's arguments."""
    machine = machine_for(context.target)
    kernel = Kernel.from_source(problem.baseline_source())
    sizes = problem.small_shape if context.small else problem.shape
    shape = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return Facts(
        problem="\n".join(line for line in (problem.title, problem.description, shape) if line),
        reference=problem.reference_source(),
        arguments=describe_arguments(arguments, argument_names(kernel.source)),
        target=context.target,
        dialect=kernel.dialect.value,
        partitions=int(machine.partitions),
        sbuf_kib=int(machine.sbuf_usable_bytes) // 1024,
    )


def _of_machine(target: str) -> dict[str, str]:
    """What differs between machines, in words."""
    machine = machine_for(target)
    engines = ("tensor", "vector", "scalar", "gpsimd")
    clocks = ", ".join(f"{name} ({float(getattr(machine, f'{name}_clock_ghz')):g} GHz)" for name in engines)
    shared = []
    if machine.vector_gpsimd_port_shared:
        shared.append("vector and gpsimd take turns at SBUF")
    if machine.vector_scalar_port_shared:
        shared.append("vector and scalar take turns at PSUM")
    ports = ", and ".join(shared) or "all engines use SBUF and PSUM at the same time"
    return {
        "clocks": clocks,
        # Never empty: a section whose value is missing is left out.
        "ports": f" On this machine {ports}.",
    }


def describe_arguments(values: Iterable[ArrayType | float], names: Sequence[str]) -> str:
    """The kernel's arguments, one a line: `- x: float32[4096, 7168]`, `- eps: 1e-05`."""
    lines = []
    for index, value in enumerate(values):
        name = names[index] if index < len(names) else f"argument {index}"
        if isinstance(value, ArrayType):
            lines.append(f"- {name}: {value.dtype}[{', '.join(map(str, value.shape))}]")
        else:
            lines.append(f"- {name}: {value!r}")
    return "\n".join(lines)


def argument_names(source: str) -> list[str]:
    """Names of a kernel's arguments: of the decorated function, the last if there are several."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    if not functions:
        return []
    arguments = functions[-1].args
    return [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]


def fenced(source: str, language: str = "python") -> str:
    """Source text as a code block that it cannot break out of."""
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{source.rstrip()}\n{fence}"
