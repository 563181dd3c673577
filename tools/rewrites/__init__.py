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


def applicable(kernel: Kernel, most_tried: int | None = None) -> list[tuple[Rewrite[Option], Option]]:
    """Every rewrite with every option that it accepts for a kernel, in the order of `REWRITES`.

    Args:
        kernel: what to look at; it is not changed.
        most_tried: options that are tried at most, evenly chosen from all that every rewrite offers; None for all. Trying
            one costs as much as carrying it out, and long unrolled kernels offer thousands.
    """
    offered = {rewrite: list(rewrite.candidates(kernel)) for rewrite in REWRITES}
    shares = _shares([len(options) for options in offered.values()], most_tried)
    return [
        (rewrite, option)
        for (rewrite, options), share in zip(offered.items(), shares, strict=True)
        for option in _spread(options, share)
        if rewrite.accepts(kernel, option)
    ]


def matching(kernel: Kernel, sentence: str) -> tuple[Rewrite[Option], Option] | None:
    """The rewrite and the option that a sentence describes, whether or not it can be carried out."""
    return next(
        (
            (rewrite, option)
            for rewrite in REWRITES
            for option in rewrite.candidates(kernel)
            if option.describe() == sentence
        ),
        None,
    )


def _shares(numbers: list[int], most: int | None) -> list[int]:
    """How many of each to take so that there are `most` in all: as equal as the numbers let them be."""
    if most is None or sum(numbers) <= most:
        return numbers
    level = next(n for n in range(max(numbers), -1, -1) if sum(min(n, number) for number in numbers) <= most)
    return [min(level, number) for number in numbers]


def _spread(options: list[Option], share: int) -> list[Option]:
    """That many of the options, from the last and evenly back to the first."""
    return (
        options
        if share == len(options)
        else [options[-1 - k * len(options) // share] for k in range(share)][::-1]
    )


__all__ = [
    "REWRITES",
    "Option",
    "Rewrite",
    "RewriteError",
    "applicable",
    "matching",
    "print_kernel",
    "rewrite_named",
]
