"""What is right: inputs and reference outputs, each made once, by a process of their own."""

import contextlib
import hashlib
import json
import mmap
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nkibench.errors import InvalidReference
from nkibench.problem import ArraySize, Problem
from nkibench.regime import Regime

from ..backends import ArrayType
from ..channel import ArrayLayout, SharedArrays
from ..pool import Lease, WorkerLost, WorkerPool
from ..verification import Expected
from ..worker import Answer, Fault
from .settings import EvaluationSettings

_SERVICE = "tools.reference_service"
_FORMAT = 1
"""Part of the key of what is cached; changed when the same key would mean something else."""


class Drawn(NamedTuple):
    """The kernel's arguments for one seed and regime."""

    tensors: SharedArrays
    values: list[ArrayType | float]
    """Every argument in order; tensors without data."""

    def duplicate(self) -> "Drawn":
        """The same memory under a handle of its own."""
        return Drawn(SharedArrays(os.dup(self.tensors.fd), self.tensors.layouts), self.values)


class ReferenceFailed(InvalidReference):
    """A reference that does not answer: it crashed, hung, or took more memory than allowed."""


class References:
    """Inputs and right outputs of problems, cached in memory and on disk by content."""

    def __init__(self, settings: EvaluationSettings, pool: WorkerPool, threads: int) -> None:
        """Nothing is computed before it is asked for."""
        self._settings = settings
        self._pool = pool
        self._threads = threads
        self._store = ResultStore(settings.cache, settings.cache_mb << 20) if settings.cache else None
        self._drawn: OrderedDict[tuple[str, int, Regime], Drawn] = OrderedDict()
        self._types: dict[str, list[ArrayType | float]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def open(self, problem: Problem) -> Iterator["ReferenceSession"]:
        """A session on one problem; its worker starts when something has to be computed."""
        session = ReferenceSession(self, problem)
        try:
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """Gives up the inputs held in memory."""
        with self._lock:
            for drawn in self._drawn.values():
                drawn.tensors.close()
            self._drawn.clear()


class ReferenceSession:
    """One problem's reference, with at most one worker."""

    def __init__(self, owner: References, problem: Problem) -> None:
        """Made by `References.open`."""
        self._owner = owner
        self._settings = owner._settings
        self.problem = problem
        self._text = problem.reference_source()
        ours = problem.source == "accelopt"
        self._constants = problem.sizes(self._settings.small) if ours else None
        identity = json.dumps([_FORMAT, self._constants, self._text], sort_keys=True)
        self.key = hashlib.sha256(identity.encode()).hexdigest()
        self._stack = contextlib.ExitStack()
        self._worker: Lease | None = None
        self._drawn_there: tuple[int, Regime] | None = None
        self._memory: SharedArrays | None = None
        # One conversation with the worker at a time; results of the next run are prepared during one.
        self._turn = threading.RLock()

    def argument_types(self) -> list[ArrayType | float]:
        """The kernel's arguments without data.

        Raises:
            InvalidReference: the reference does not tell.
        """
        known = self._owner._types.get(self.key)
        if known is None:
            if self.problem.arguments is not None:
                known = [
                    ArrayType(value.shape, value.dtype) if isinstance(value, ArraySize) else value
                    for value in self.problem.argument_values(self._settings.small)
                ]
            else:
                known = self._draw(self._settings.seeds[0], Regime.normal)
            self._owner._types[self.key] = known
        return known

    def draw(self, seed: int, regime: Regime, *, keep: bool = False) -> Drawn:
        """The arguments for a seed and regime, for the caller to close; with `keep`, held for the next kernel too.

        Raises:
            InvalidReference: the reference fails.
        """
        owner = self._owner
        key = (self.key, seed, regime)
        with owner._lock:
            if key in owner._drawn:
                owner._drawn.move_to_end(key)
                return owner._drawn[key].duplicate()
        with self._turn:
            values = self._draw(seed, regime)
            tensors = SharedArrays.allocate([(v.dtype, v.shape) for v in values if isinstance(v, ArrayType)])
            drawn = Drawn(tensors, values)
            self._call("copy_arguments", writable=[tensors])
        budget = self._settings.inputs_mb << 20
        if keep and tensors.nbytes <= budget:
            with owner._lock:
                if key in owner._drawn:
                    return drawn
                owner._drawn[key] = drawn.duplicate()
                while sum(entry.tensors.nbytes for entry in owner._drawn.values()) > budget:
                    _, oldest = owner._drawn.popitem(last=False)
                    oldest.tensors.close()
        return drawn

    def expected(self, seed: int, regime: Regime) -> Expected:
        """The right outputs for a seed and regime, from the cache or computed now.

        Raises:
            InvalidReference: the reference fails.
        """
        store = self._owner._store
        name = hashlib.sha256(f"{self.key} {seed} {regime}".encode()).hexdigest()
        if store is not None:
            found = store.load(name)
            if found is not None:
                return found
        with self._turn:
            if self._drawn_there != (seed, regime):
                self._draw(seed, regime)
            answer = self._call("forward")
            memory = self._memory_for([_spec(output) for output in answer.fields["outputs"]])
            self._call("copy_outputs", writable=[memory])
            expected = Expected.of(memory.arrays(), self._owner._threads)
            if store is not None:
                store.save(name, expected)
                kept = store.load(name)
                if kept is not None:
                    return kept
            # The arrays keep this memory for themselves.
            self._memory = None
            return expected

    def translate(self, returned: SharedArrays, expected: Expected) -> list[np.ndarray]:
        """A kernel's outputs in the shapes of the reference's.

        Raises:
            Fault: they cannot be brought to those shapes; the kernel is to blame.
            InvalidReference: the reference fails.
        """
        shapes = [array.shape for array in expected.arrays]
        if (
            "transform_nki_outputs" not in self._text
            and [layout.shape for layout in returned.layouts] == shapes
        ):
            return returned.arrays()
        blank = SharedArrays.allocate([(array.dtype.name, array.shape) for array in expected.arrays])
        with self._turn, blank:
            # Only shapes matter to a translation; the values stay here.
            answer = self._call("from_nki", arrays=[returned, blank])
            described = answer.fields["outputs"]
            copied = SharedArrays.allocate([_spec(item) for item in described if item["offset"] is None])
            with copied:
                if copied.layouts:
                    self._call("copy_translated", writable=[copied])
                moved = iter(copied.arrays())
        layouts = [
            ArrayLayout(*_spec(item), item["offset"]) for item in described if item["offset"] is not None
        ]
        in_place = iter(SharedArrays(os.dup(returned.fd), layouts).arrays())
        return [next(moved) if item["offset"] is None else next(in_place) for item in described]

    def close(self) -> None:
        """Ends the worker."""
        self._memory = None
        self._stack.close()

    def _memory_for(self, specs: list[tuple[str, tuple[int, ...]]]) -> SharedArrays:
        """Memory for results, used again because new memory costs more than what is copied into it.

        By this session alone: its worker may still look at it.
        """
        if self._memory is None or [layout[:2] for layout in self._memory.layouts] != specs:
            self._memory = SharedArrays.allocate(specs)
        return self._memory

    def _draw(self, seed: int, regime: Regime) -> list[ArrayType | float]:
        answer = self._call("draw", {"seed": seed, "regime": str(regime)})
        self._drawn_there = (seed, regime)
        return [
            ArrayType(tuple(value["shape"]), value["dtype"]) if isinstance(value, dict) else value
            for value in answer.fields["arguments"]
        ]

    def _call(
        self,
        operation: str,
        fields: dict[str, Any] | None = None,
        *,
        arrays: Sequence[SharedArrays] = (),
        writable: Sequence[SharedArrays] = (),
    ) -> Answer:
        patience = self._settings.reference_timeout_s
        try:
            if self._worker is None:
                self._worker = self._start()
            return self._worker.call(operation, fields, arrays=arrays, writable=writable, timeout_s=patience)
        except Fault as fault:
            if fault.status == "incorrect":
                raise
            raise InvalidReference(fault.message) from fault
        except WorkerLost as lost:
            self._worker = None
            self._drawn_there = None
            why = f"no answer within {patience:g} s" if lost.timed_out else str(lost)
            raise ReferenceFailed(f"the reference of {self.problem.name} failed: {why}") from lost

    def _start(self) -> Lease:
        settings = self._settings
        worker = self._stack.enter_context(
            self._owner._pool.lease(
                _SERVICE,
                # Every call has its own patience; this bounds the whole of a promotion.
                timeout_s=settings.reference_timeout_s
                * (2 + len(settings.seeds) + len(self.problem.regimes)),
                memory_bytes=settings.memory_mb << 20,
                shared_bytes=16 << 30,
            )
        )
        name = str(self.problem.reference_file.path or f"reference of {self.problem.name}")
        worker.call(
            "load",
            {"constants": self._constants, "name": name},
            tail=self._text.encode(),
            timeout_s=settings.reference_timeout_s,
        )
        return worker


def _spec(item: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    return str(item["dtype"]), tuple(int(extent) for extent in item["shape"])


# Linux 5.14 and later; Python's mmap module does not name it.
_MADV_POPULATE_READ = 22


def _mapped(path: Path) -> np.ndarray:
    """An array on disk, mapped with all of its pages at once: one by one they would cost more than reading them."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(array.base, mmap.mmap):
        with contextlib.suppress(OSError, AttributeError):
            array.base.madvise(_MADV_POPULATE_READ)
    return array


class ResultStore:
    """Reference outputs on disk, named by the hash of what they are the result of.

    Files appear whole or not at all, so processes may share the folder. The least recently used go when it grows past
    its size.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Creates the folder with the first result."""
        self._folder = folder
        self._max_bytes = max_bytes

    def load(self, name: str) -> Expected | None:
        """What was saved under `name`, mapped and not read; None where nothing, or nothing whole, is there."""
        arrays: list[np.ndarray] = []
        squares: list[np.ndarray] = []
        try:
            count = json.loads((self._folder / f"{name}.json").read_text())["outputs"]
            for number in range(count):
                path = self._folder / f"{name}.{number}.npy"
                arrays.append(_mapped(path))
                squares.append(np.load(self._folder / f"{name}.{number}.tiles.npy", allow_pickle=False))
                with contextlib.suppress(OSError):
                    os.utime(path)
        except (OSError, ValueError, KeyError, EOFError):
            return None
        return Expected(arrays, squares)

    def save(self, name: str, expected: Expected) -> None:
        """Saves what fits; a disk that is full or read-only costs the cache, not the result."""
        size = sum(array.nbytes for array in expected.arrays)
        if size > self._max_bytes:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(size)
            for number, (array, squares) in enumerate(
                zip(expected.arrays, expected.tile_squares, strict=True)
            ):
                self._write(f"{name}.{number}.npy", array)
                self._write(f"{name}.{number}.tiles.npy", squares)
            # Last, because it is what makes the result visible.
            temporary = self._folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
            temporary.write_text(json.dumps({"outputs": len(expected.arrays), "saved": time.time()}))
            temporary.replace(self._folder / f"{name}.json")
        except OSError:
            return

    def _write(self, name: str, array: np.ndarray) -> None:
        temporary = self._folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            with temporary.open("wb") as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
            temporary.replace(self._folder / name)
        finally:
            temporary.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        entries = []
        for path in self._folder.glob("*.npy"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        used = sum(entry[1] for entry in entries)
        for _, freed, path in sorted(entries):
            if used + size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            used -= freed
