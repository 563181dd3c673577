"""From the intermediate representation back to NKI source that a person can read.

``trace(print_kernel(k))`` is the same program as ``k`` up to names and source lines, so a rewrite that edits the
representation always has a kernel to show for it, and one that a person can take over. A launch grid is printed as loops
around the kernel, which is then launched without one: on one core that is the same program.

What the text looks like: results of API calls are plain assignments (``x_tile = nl.load(...)``); tensors that are
written in pieces are declared with ``nl.ndarray`` in the block they belong to, right before they are needed; an access
to a box of a tensor is written with slices, anything else (masks, steps, two tile axes in one dimension) with index
tiles from ``nl.arange`` that are defined once at the top. One subscript never mixes the two, as the compiler demands.
"""

from ...neuroncore.ir import Kernel
from ..refusal import RewriteError
from .beta1 import Beta1Printer
from .destination import DestinationPrinter

_PRINTERS = {"neuronxcc.nki": Beta1Printer, "nki": DestinationPrinter}


def print_kernel(kernel: Kernel) -> str:
    """The source of a kernel, in its own dialect.

    Args:
        kernel: as traced or as left by a rewrite.

    Returns:
        A complete module: imports and one function decorated with ``@nki.jit``.

    Raises:
        RewriteError: for what has no source form: an array constant too large to be written out; in the
            later ``nki`` dialect also masks and block dimensions.
    """
    printer = _PRINTERS.get(kernel.dialect)
    if printer is None:
        raise RewriteError("dialect", f"kernels of the `{kernel.dialect}` dialect cannot be printed")
    return printer(kernel).text()


__all__ = ["print_kernel"]
