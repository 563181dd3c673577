"""What tiles are known to hold, as far as the kernel shows it.

A kernel may say of a matmul's operand that it holds ones and zeros only, or that the other one is the identity; the
array then does it in fewer cycles. On other data the machine would lose bits or compute something else. So the compiler
model counts a claim only where the tile's contents follow from how it was made, and the interpreter holds all others
against the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .ir import Access, Instr, Kernel, Tensor, TensorKind

_FILLS = {"nl.zeros": 0, "nl.zeros_like": 0, "nl.ones": 1, "nl.full": None, "nisa.memset": None}
_MOVES = frozenset(["nl.load", "nl.copy", "nisa.dma_copy", "nisa.tensor_copy"])

_CLAIMS = {
    "is_stationary_onezero": "stationary",
    "is_moving_onezero": "moving",
    "is_transpose": "moving",
}
"""The operand that each attribute of `nisa.nc_matmul` speaks of."""


class Contents:
    """Looks up what the tensors of a kernel hold."""

    def __init__(self, kernel: Kernel) -> None:
        """Collects who writes what."""
        self._writers: dict[Tensor, list[Instr]] = {}
        for instr, _ in kernel.walk():
            for access in instr.dsts:
                self._writers.setdefault(access.tensor.storage, []).append(instr)

    def open_claims(self, instr: Instr) -> tuple[str, ...]:
        """What a matmul says of its operands that does not follow from how they were made, by the attributes' names."""
        found = []
        for name, operand in _CLAIMS.items():
            access = instr.args.get(operand)
            if instr.attrs.get(name) and isinstance(access, Access):
                shown = self.identity(access) if name == "is_transpose" else self.ones_and_zeros(access)
                if not shown:
                    found.append(name)
        return tuple(found)

    def ones_and_zeros(self, access: Access) -> bool:
        """Whether a tile can hold nothing else."""
        return self._binary(access.tensor, set())

    def identity(self, access: Access) -> bool:
        """Whether a tile is the identity matrix, taken from a constant."""
        value = self._constant(access)
        return value is not None and value.ndim == 2 and np.array_equal(value, np.eye(*value.shape))

    def _binary(self, tensor: Tensor, asked: set[Tensor]) -> bool:
        if tensor.kind is TensorKind.CONSTANT and tensor.value is not None:
            return bool(np.isin(tensor.value, (0, 1)).all())
        if tensor.kind is not TensorKind.LOCAL:
            return False
        if tensor.storage in asked:
            return True
        asked.add(tensor.storage)
        writers = self._writers.get(tensor.storage, [])
        return bool(writers) and all(self._writes_binary(instr, asked) for instr in writers)

    def _writes_binary(self, instr: Instr, asked: set[Tensor]) -> bool:
        if len(instr.dsts) > 1 or instr.attrs.get("dst_rmw_op"):
            return False
        if instr.op in _FILLS:
            default = _FILLS[instr.op]
            return instr.attrs.get("value", default) in (0, 1)
        if instr.op in _MOVES:
            sources = [a for a in instr.args.values() if isinstance(a, Access)]
            return len(sources) == 1 and self._binary(sources[0].tensor, asked)
        return False

    def _constant(self, access: Access) -> np.ndarray[Any, Any] | None:
        tensor = access.tensor
        if access.is_indirect or access.loops():
            return None
        if tensor.kind is TensorKind.CONSTANT and tensor.value is not None:
            whole: np.ndarray[Any, Any] | None = np.asarray(tensor.value).reshape(tensor.shape)
        else:
            whole = self._copied(tensor)
        if whole is None:
            return None
        grids = np.meshgrid(*(np.arange(n) for n in access.shape), indexing="ij", sparse=True)
        index = tuple(
            np.asarray(
                e.const + sum((c * grids[s] for s, c in e.terms.items() if isinstance(s, int)), start=0)
            )
            for e in access.affine
        )
        return np.broadcast_to(whole[index], access.shape)

    def _copied(self, tensor: Tensor) -> np.ndarray[Any, Any] | None:
        writers = self._writers.get(tensor, [])
        if len(writers) != 1 or tensor.kind is not TensorKind.LOCAL:
            return None
        instr = writers[0]
        sources = [a for a in instr.args.values() if isinstance(a, Access)]
        plain = instr.op in _MOVES and not instr.mask and instr.dst == tensor.whole()
        if not plain or len(sources) != 1 or sources[0].shape != tensor.shape:
            return None
        return self._constant(sources[0])
