"""Small constant tiles that instructions need as operands."""

from __future__ import annotations

import numpy as np

from ..neuroncore.dtypes import FLOAT32
from ..neuroncore.ir import Access, Affine, Buffer, Instr, Kernel, Tensor


def constant_column(kernel: Kernel, value: float, partitions: int) -> Access:
    """A [partitions, 1] float32 tile that holds one value, set once at the top of the kernel.

    A tile of that value and size that is there already is used again.
    """
    for node in kernel.body:
        if not isinstance(node, Instr) or node.op != "nisa.memset":
            continue
        tensor = node.dst.tensor
        same = tensor.shape == (partitions, 1) and tensor.dtype == FLOAT32 and tensor.scope is None
        if same and node.attrs["value"] == value and not node.mask and _is_constant(kernel, tensor, node):
            return tensor.whole()
    tensor = Tensor("bias", (partitions, 1), np.dtype(np.float32), Buffer.SBUF)
    access = Access(tensor, (Affine.of(0) if partitions > 1 else Affine(0), Affine(0)), (partitions, 1))
    kernel.body.insert(0, Instr("nisa.memset", (access,), {}, {"value": value, "engine": "unknown"}))
    return access


def _is_constant(kernel: Kernel, tensor: Tensor, definition: Instr) -> bool:
    return all(
        instr is definition or all(d.tensor.storage is not tensor for d in instr.dsts)
        for instr, _ in kernel.walk()
    )
