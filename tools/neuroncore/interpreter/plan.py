"""Plans: a kernel prepared once, run on any number of inputs."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import NKIError, RuntimeAccessError
from ..ir import Kernel, Tensor, TensorKind
from . import executors
from .binding import Binder, OutOfBounds, Position, Scope
from .coalescing import coalesce
from .coverage import tensors_to_fill
from .functions import Array, converted
from .masks import apply_masks
from .memory import Layout, lay_out
from .placement import Placement, Storage, place
from .program import normalised
from .schedule import Budgets, Pieces, Run, Schedule, schedule
from .scoping import find_first_iterations, scope_tensors

SEED = 0
"""Of the random numbers that `nl.rand` and dropout draw."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How a kernel is executed.

    Attributes:
        kernel: the kernel.
        placement: its statements on storage.
        schedule: their order and piece sizes.
        layout: where its temporaries lie.
    """

    kernel: Kernel
    placement: Placement
    schedule: Schedule
    layout: Layout

    def run(self, args: Sequence[Any], into: Sequence[Array] | None = None) -> list[Array]:
        """Execute the kernel.

        Args:
            args: one array for each parameter, or one value for each name of the signature, scalars included.
            into: contiguous arrays of the results' shapes and types, to be used as their memory where that can be.

        Returns:
            the kernel's results, in order; those of `into`, or new arrays.

        Raises:
            NKIError: for arguments that do not fit the kernel.
            RuntimeAccessError: if an index read at run time lies outside its tensor.
        """
        memory = self._memory(args, into)
        binder = Binder(memory, self.layout)
        with np.errstate(all="ignore"):
            _Runner(self, binder).run()
        results = []
        for tensor, storage in zip(self.kernel.outputs, self.placement.outputs, strict=True):
            results.append(memory[storage].view(storage.dtype).reshape(tensor.shape))
        return results

    @property
    def temporary_bytes(self) -> int:
        """Size of the memory that temporaries share."""
        return self.layout.nbytes

    def _memory(self, args: Sequence[Any], into: Sequence[Array] | None) -> dict[Storage, Array]:
        memory: dict[Storage, Array] = {}
        given = dict(zip(self.placement.outputs, into, strict=True)) if into is not None else {}
        for tensor, storage, value in zip(
            self.kernel.params, self.placement.params, tensor_arguments(self.kernel, args), strict=True
        ):  # fmt: skip
            array = _argument(tensor, value)
            if tensor.mutable or any(storage is o for o in self.placement.outputs):
                array = array.copy()
            memory[storage] = array.reshape(-1).view(np.uint8)
        block = _aligned(self.layout.nbytes)
        for storage in self.placement.storages:
            if storage in memory:
                continue
            nbytes = storage.size * storage.dtype.itemsize
            home = self.layout.homes.get(storage)
            if storage.tensor.kind is TensorKind.CONSTANT:
                value = np.ascontiguousarray(storage.tensor.value, dtype=storage.dtype)
                memory[storage] = value.reshape(-1).view(np.uint8)
            elif home is not None:
                size = home.elements * storage.dtype.itemsize
                memory[storage] = block[home.offset : home.offset + size]
            elif storage.is_output:
                place = given.get(storage)
                memory[storage] = (
                    np.empty(nbytes, np.uint8) if place is None else place.reshape(-1).view(np.uint8)
                )
                if storage.fill is not None:
                    memory[storage].view(storage.dtype)[...] = poison(storage.dtype, storage.fill)
        return memory


def compile_plan(kernel: Kernel, budgets: Budgets | None = None) -> Plan:
    """Prepare a kernel for execution.

    Args:
        kernel: a traced kernel.
        budgets: how much may be in flight at a time.

    Raises:
        NKIError: for a kernel that cannot be executed.
    """
    with _collector_paused():
        program = normalised(kernel)
        scope_tensors(program)
        apply_masks(program)
        find_first_iterations(program)
        exposed = tensors_to_fill(program)
        coalesce(program, exposed)
        placement = place(program, exposed)
        order = schedule(placement, budgets or Budgets())
        return Plan(kernel, placement, order, lay_out(order))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No cyclic garbage collection while programs grow: on large ones it takes half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def tensor_arguments(kernel: Kernel, args: Sequence[Any]) -> list[Any]:
    """The arguments for the tensor parameters, out of those or of a whole call.

    Raises:
        NKIError: if their number fits neither.
    """
    if len(args) == len(kernel.params):
        return list(args)
    if len(args) == len(kernel.signature):
        by_name = dict(zip(kernel.signature, args, strict=True))
        names = [n for n in kernel.signature if n not in kernel.scalars]
        return [by_name[n] for n in names]
    raise NKIError(
        "invalid_arguments",
        f"{kernel.name} takes {len(kernel.params)} tensors, {len(args)} arguments were given",
    )


def _argument(tensor: Tensor, value: Any) -> Array:
    array = np.asarray(value)
    if array.shape != tensor.shape:
        raise NKIError(
            "invalid_arguments",
            f"argument `{tensor.name}` has shape {list(array.shape)}, the kernel was traced with {list(tensor.shape)}",
        )
    return np.ascontiguousarray(converted(array, tensor.dtype))


def _aligned(nbytes: int) -> Array:
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def poison(dtype: np.dtype[Any], fill: float) -> Array:
    """What fresh memory of a type reads as: the fill value; for NaN in an integer type, its smallest value."""
    if fill != fill and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(info.min if dtype.kind == "i" else info.max, dtype)
    return converted(np.asarray(fill, np.float64), dtype)


class _Runner:
    def __init__(self, plan: Plan, binder: Binder) -> None:
        self.plan = plan
        self.binder = binder
        self.rng = np.random.default_rng(SEED)

    def run(self) -> None:
        position: Position = []
        for execute in self.bind(self.plan.schedule.body, Scope()):
            execute(position)

    def bind(self, nodes: list[Run | Pieces], scope: Scope) -> list[executors.Executor]:
        bound: list[executors.Executor] = []
        for node in nodes:
            for storage in self.plan.layout.fills.get(id(node), ()):
                bound.append(self.fill(storage))
            bound.append(
                self.pieces(node, scope) if isinstance(node, Pieces) else self.statement(node, scope)
            )
        return bound

    def fill(self, storage: Storage) -> executors.Executor:
        target = self.binder.flat(storage)
        assert storage.fill is not None
        value = poison(storage.dtype, storage.fill)

        def execute(position: Position) -> None:
            target[...] = value

        return execute

    def statement(self, run: Run, scope: Scope) -> executors.Executor:
        line = run.statement.line
        try:
            execute = executors.build(run, scope, self.binder, self.rng)
        except OutOfBounds as error:
            raise RuntimeAccessError("err_tensor_access_out_of_bound", str(error), line=line) from error
        return execute

    def pieces(self, node: Pieces, scope: Scope) -> executors.Executor:
        whole, rest = divmod(node.var.trips, node.size)
        depth = len(scope.levels)
        parts: list[tuple[int, list[executors.Executor]]] = []
        if whole:
            parts.append(
                (whole, self.bind(node.body, scope.entered(node.var, node.size, node.size, whole, 0)))
            )
        if rest:
            start = whole * node.size
            parts.append((1, self.bind(node.body, scope.entered(node.var, node.size, rest, 1, start))))

        def execute(position: Position) -> None:
            own = [*position[:depth], 0]
            for count, body in parts:
                for k in range(count):
                    own[depth] = k
                    for step in body:
                        step(own)

        return execute
