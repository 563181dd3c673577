"""Deterministic, semantics-preserving transformations of NKI kernels, and the printer that gives them back as source.

A rewrite works on the traced representation, where loops and indices are explicit: `Rewrite.analyze` lists where it
applies, `Rewrite.apply` returns a new kernel, and `print_kernel` turns any kernel into source that a person can read.
"""

from ..neuroncore.ir import Kernel
from .accumulate_in_psum import AccumulateInPsum
from .block_loop import BlockLoop
from .broadcast_once import BroadcastOnce
from .coarsen_dma import CoarsenDma
from .commute_row_scale import CommuteRowScale
from .drop_dead_code import DropDeadCode
from .exchange_division import ExchangeDivision
from .explicit_transpose import ExplicitTranspose
from .fold_into_activation import FoldIntoActivation
from .fuse_loops import FuseLoops
from .fuse_reduction import FuseReduction
from .fuse_scalar_tensor import FuseScalarTensor
from .fuse_tensor_scalar import FuseTensorScalar
from .hoist_invariant import HoistInvariant
from .interchange_loops import InterchangeLoops
from .move_engine import MoveEngine
from .narrow_tile import NarrowTile
from .printer import print_kernel
from .read_psum_directly import ReadPsumDirectly
from .refusal import RewriteError
from .remove_redundant_load import RemoveRedundantLoad
from .rewrite import Option, Rewrite
from .simplify_algebra import SimplifyAlgebra
from .use_fused_function import UseFusedFunction
from .widen_tile import WidenTile

REWRITES: tuple[Rewrite[Option], ...] = (
    WidenTile(),
    NarrowTile(),
    CoarsenDma(),
    HoistInvariant(),
    BroadcastOnce(),
    ExplicitTranspose(),
    BlockLoop(),
    InterchangeLoops(),
    FuseLoops(),
    AccumulateInPsum(),
    ReadPsumDirectly(),
    CommuteRowScale(),
    UseFusedFunction(),
    FoldIntoActivation(),
    FuseTensorScalar(),
    FuseScalarTensor(),
    FuseReduction(),
    SimplifyAlgebra(),
    ExchangeDivision(),
    MoveEngine(),
    RemoveRedundantLoad(),
    DropDeadCode(),
)  # type: ignore[assignment]
"""Every rewrite, those that change the structure of loops first."""


def rewrite_named(name: str) -> Rewrite[Option]:
    """The rewrite of a name.

    Raises:
        KeyError: if there is none.
    """
    for rewrite in REWRITES:
        if rewrite.name == name:
            return rewrite
    raise KeyError(name)


def applicable(kernel: Kernel) -> list[tuple[Rewrite[Option], Option]]:
    """Every rewrite with every option that it accepts for a kernel, in the order of `REWRITES`."""
    return [(rewrite, option) for rewrite in REWRITES for option in rewrite.analyze(kernel)]


__all__ = [
    "REWRITES",
    "Option",
    "Rewrite",
    "RewriteError",
    "applicable",
    "print_kernel",
    "rewrite_named",
]
