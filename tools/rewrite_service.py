"""The worker's side of rewriting: trace a kernel, say which rewrites apply, carry one out, print the result."""

from typing import Any

from .backends import ArrayType
from .backends.simulator import SimulatorBackend
from .channel import SharedArrays
from .kernel_service import refuse
from .rewrites import applicable
from .rewrites.printer import print_kernel
from .rewrites.refusal import RewriteError
from .worker import Answer, Fault, Operation


def preload() -> None:
    """Has the nursery import everything that a worker needs."""


def operations() -> dict[str, Operation]:
    """The operations of one worker."""
    return {"list": _list, "apply": _apply}


def _options(fields: dict[str, Any], tail: bytes) -> tuple[Any, list[tuple[Any, Any]]]:
    source = tail.decode("utf-8", "surrogatepass")
    refuse(source)
    arguments = [
        ArrayType(tuple(argument["shape"]), argument["dtype"]) if isinstance(argument, dict) else argument
        for argument in fields["arguments"]
    ]
    kernel = SimulatorBackend().compile(source, arguments, fields["target"]).ir
    return kernel, list(applicable(kernel))


def _list(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
    _, options = _options(fields, tail)
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
    kernel, options = _options(fields, tail)
    number = fields["number"]
    if not 0 <= number < len(options):
        raise Fault(
            "rejected",
            "unknown_option",
            f"there is no option {number}: the kernel has {len(options)}",
            remedy="list the rewrites of this very kernel first",
        )
    rewrite, option = options[number]
    try:
        return Answer({"rewrite": rewrite.name}, print_kernel(rewrite.apply(kernel, option)).encode())
    except RewriteError as error:
        raise Fault("rejected", "rewrite_refused", str(error)) from error
