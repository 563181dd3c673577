"""The compiler model: from a traced kernel to the hardware program that neuronx-cc would make of it.

Read the passes in the order of `compile_kernel`; each file is one idea with its evidence.
"""

from __future__ import annotations

from ..ir import Kernel
from ..machine import Machine
from .capacity import check_rows, fit, psum_overflow
from .chains import merge_scalar_chains
from .fills import distribute_fills
from .fusion import fuse_nests
from .hoisting import hoist
from .lowering import lower
from .program import Engine, Kind, Nest, Op, Program, Role, Transfer
from .psum import place_in_psum
from .renaming import rename_refilled

__all__ = ["Engine", "Kind", "Nest", "Op", "Program", "Role", "Transfer", "compile_kernel", "joined"]


def joined(kernel: Kernel, machine: Machine) -> Program:
    """Lower a kernel and join its loops: the passes after which it is known whether PSUM and single partitions hold it.

    Raises:
        NKIError: if they do not.
    """
    program = lower(kernel, machine)
    check_rows(program, machine)
    overflow = psum_overflow(program, machine)
    distribute_fills(program)
    fuse_nests(program)
    # An array of products that another loop reads at once needs room for one iteration's when the two are joined, as in
    # the tiled step of AWS's attention tutorial, which keeps 512 KiB between them.
    if overflow is not None and psum_overflow(program, machine) is not None:
        raise overflow
    return program


def compile_kernel(kernel: Kernel, machine: Machine) -> Program:
    """Lower a kernel and run every pass, in the compiler's order.

    Raises:
        NKIError: for a kernel that does not fit into the on-chip memories.
    """
    program = joined(kernel, machine)
    hoist(program, machine)
    merge_scalar_chains(program)
    rename_refilled(program, machine)
    place_in_psum(program, machine)
    fit(program, machine)
    return program
