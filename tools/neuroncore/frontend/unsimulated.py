"""What NKI documents and the simulator has not: named as such, so that nobody takes it for a typing error.

The names are those of the API reference from SDK 2.26 (Beta 1) to 2.32 (`nki` 0.6).
"""

from __future__ import annotations

from typing import Any

from ..errors import NKIError
from .session import current

_CORES = ("one core is simulated", "compute on one core, without exchange between cores")
_V4 = ("it needs NeuronCore-v4", "express it with the other instructions")
_RANDOM = ("states of random generators are not kept", "use nl.rand, or pass random values in as an input")
_REGISTERS = ("the program has no registers at run time", "use numbers and loop indices of Python")
_CONTENT = ("how many results there are depends on the data", "use nisa.max8 and nisa.nc_match_replace8")
_PACKED = ("packed types need NeuronCore-v4", "use nl.float8_e4m3 or nl.bfloat16")
_HERE = ("kernels are run by their evaluation", "write the kernel only, under @nki.jit")

FUNCTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "neuronxcc.nki.isa": {
        "builtin_custom_op": ("operators in libraries of their own cannot be run", "write it in NKI"),
    },
    "neuronxcc.nki.language": {
        name: ("it makes indices of a fixed size", "use nl.mgrid[0:128, 0:512]")
        for name in ("gemm_grid", "gemm_stationary_grid")
    },
    "nki.isa": {
        **dict.fromkeys(("nc_matmul_mx", "quantize_mx", "activate2", "exponential"), _V4),
        **dict.fromkeys(("core_barrier", "sendrecv"), _CORES),
        **dict.fromkeys(("rng", "rand2", "rand_set_state", "rand_get_state", "set_rng_seed"), _RANDOM),
        **dict.fromkeys(("nonzero_with_count", "topk"), _CONTENT),
        "tensor_scalar_cumulative": ("there is no model of it", "use nisa.tensor_tensor_scan"),
        **dict.fromkeys(("register_alloc", "register_load", "register_move", "register_store"), _REGISTERS),
        "VirtualRegister": _REGISTERS,
        "tensor_copy_dynamic_src": ("only Beta 1 has it here", "use tile.ap(..., scalar_offset=)"),
        "tensor_copy_dynamic_dst": ("only Beta 1 has it here", "use tile.ap(..., scalar_offset=)"),
    },
    "nki.language": {
        "while_loop": (
            "loops run a constant number of times",
            "use nl.sequential_range with a constant bound",
        ),
        "abs_max": ("it needs NeuronCore-v4", "compare nl.abs of both"),
        "abs_min": ("it needs NeuronCore-v4", "compare nl.abs of both"),
    },
    "nki.collectives": dict.fromkeys(
        (
            "ReplicaGroup all_reduce all_gather all_gather_v reduce_scatter all_to_all all_to_all_v collective_permute "
            "collective_permute_implicit collective_permute_implicit_reduce rank_id "
            "collective_permute_implicit_current_processing_rank_id"
        ).split(),
        _CORES,
    ),
}
"""By module, what is called: why it is not simulated, and what to do instead."""

VALUES: dict[str, dict[str, tuple[str, str]]] = {
    "neuronxcc.nki": {"FrameworkKernel": _HERE},
    "nki.isa": {"NkiValidationError": ("kernels handle no exceptions", "let the error end the trace")},
    "nki.language": {
        **dict.fromkeys(
            ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4", "float8_e8m0fnu"), _PACKED
        ),
        "average": ("there is no model of it", "add, then multiply by the reciprocal of the number"),
        "prelu": ("there is no model of it", "use nl.maximum and nl.minimum with a factor"),
        "bypass": ("an operation that does nothing is left out here", "leave op0 or op1 out"),
        "NKIObject": ("kernels define no classes", "pass sizes as arguments, or in tuples"),
    },
}
"""By module, what is used as a value."""


def refusing(module: str) -> dict[str, Any]:
    """Functions for a module's unsimulated ones; calling one is refused with the reason."""
    return {name: _function(module, name) for name in FUNCTIONS.get(module, {})}


def refusal(module: str, name: str) -> NKIError | None:
    """The error for a value of a module that is not simulated; None for one that NKI does not document."""
    found = VALUES.get(module, {}).get(name)
    return None if found is None else _error(module, name, found)


def _function(module: str, name: str) -> Any:
    def function(*_: Any, **__: Any) -> None:
        raise _error(module, name, FUNCTIONS[module][name])

    function.__name__ = function.__qualname__ = name
    return function


def _error(module: str, name: str, found: tuple[str, str]) -> NKIError:
    why, advice = found
    return NKIError(
        "unsupported_api", f"{module}.{name} is not simulated: {why}", line=kernel_line(), remedy=advice
    )


def kernel_line() -> int:
    """Line of the kernel being traced; outside of one there is none."""
    try:
        return current().line()
    except NKIError:
        return 0
