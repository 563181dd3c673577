"""The worker's side of rewriting: trace a kernel, say which rewrites apply, carry one out, print the result."""

from typing import Any

from .backends import ArrayType
from .backends.simulator import SimulatorBackend
from .channel import SharedArrays
from .kernel_service import refuse
from .rewrites import applicable, matching
from .rewrites.printer import print_kernel
from .rewrites.refusal import RewriteError
from .worker import Answer, Fault, Operation

MOST_WORK = 80_000
"""Instructions that trying options goes over at most, which takes some 20 s; a kernel of a hundred has 800 options tried."""


def preload() -> None:
    """Has the nursery import everything that a worker needs."""


def operations() -> dict[str, Operation]:
    """The operations of one worker."""
    return {"list": _list, "apply": _apply, "carry_out": _carry_out}


def _traced(fields: dict[str, Any], source: str) -> Any:
    refuse(source)
    arguments = [
        ArrayType(tuple(argument["shape"]), argument["dtype"]) if isinstance(argument, dict) else argument
        for argument in fields["arguments"]
    ]
    return SimulatorBackend().compile(source, arguments, fields["target"]).ir


def _options(fields: dict[str, Any], source: str) -> tuple[Any, list[tuple[Any, Any]]]:
    kernel = _traced(fields, source)
    size = sum(1 for _ in kernel.walk())
    return kernel, applicable(kernel, most_tried=MOST_WORK // max(1, size))


def _list(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
    _, options = _options(fields, _text(tail))
    described = [
        {
            "rewrite": rewrite.name,
            "summary": rewrite.summary,
            "targets": list(rewrite.targets),
            "what": option.describe(),
        }
        for rewrite, option in options
    ]
    return Answer({"options": described})


def _apply(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
    kernel, options = _options(fields, _text(tail))
    number = fields["number"]
    if not 0 <= number < len(options):
        raise Fault(
            "rejected",
            "unknown_option",
            f"there is no option {number}: the kernel has {len(options)}",
            remedy="list the rewrites of this very kernel first",
        )
    rewrite, option = options[number]
    return Answer({"rewrite": rewrite.name}, _applied(kernel, rewrite, option).encode())


def _carry_out(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
    source = _text(tail)
    for step in fields["steps"]:
        kernel = _traced(fields, source)
        found = matching(kernel, step)
        if found is None:
            raise Fault("rejected", "unknown_option", f"the kernel has no option {step!r}")
        source = _applied(kernel, *found)
    return Answer({}, source.encode("utf-8", "surrogatepass"))


def _text(tail: bytes) -> str:
    return tail.decode("utf-8", "surrogatepass")


def _applied(kernel: Any, rewrite: Any, option: Any) -> str:
    try:
        return print_kernel(rewrite.apply(kernel, option))
    except RewriteError as error:
        raise Fault("rejected", "rewrite_refused", str(error)) from error
