"""Memory for the outputs of kernels, used again and wiped in between.

New memory costs more than what is computed into it: the system clears it page by page. Old memory must not give away
what the kernel before computed, so whoever borrows some finds it full of NaN. That is also the poison by which an
element that was never written shows.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from ..channel import SharedArrays

Signature = tuple[tuple[str, tuple[int, ...]], ...]


class OutputMemory:
    """A small stock of shared arrays, by shapes and types. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        """Keeps at most `max_bytes` while nobody uses them."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._stock: list[tuple[Signature, SharedArrays]] = []

    @contextlib.contextmanager
    def borrow(self, specs: Sequence[tuple[str, tuple[int, ...]]]) -> Iterator[SharedArrays]:
        """Arrays of the given dtype names and shapes, poisoned, for as long as the block lasts."""
        signature = tuple((dtype, tuple(shape)) for dtype, shape in specs)
        shared = self._take(signature) or SharedArrays.allocate(signature)
        try:
            for array in shared.arrays(writable=True):
                _poison(array)
            yield shared
        finally:
            self._give_back(signature, shared)

    def close(self) -> None:
        """Gives up what nobody uses."""
        with self._lock:
            for _, shared in self._stock:
                shared.close()
            self._stock.clear()

    def _take(self, signature: Signature) -> SharedArrays | None:
        with self._lock:
            for number, (kept, shared) in enumerate(self._stock):
                if kept == signature:
                    del self._stock[number]
                    return shared
        return None

    def _give_back(self, signature: Signature, shared: SharedArrays) -> None:
        with self._lock:
            self._stock.append((signature, shared))
            while sum(entry.nbytes for _, entry in self._stock) > self._max_bytes:
                self._stock.pop(0)[1].close()


def _poison(array: np.ndarray) -> None:
    if array.dtype.kind in "iu":
        array.fill(np.iinfo(array.dtype).max)
    elif array.dtype.kind == "b":
        array.fill(True)
    else:
        array.fill(np.nan)
