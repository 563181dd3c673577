"""Views of memory for the statements of a schedule, made once before they run.

A `Window` is a NumPy view of everything a run touches, for all pieces of the loops around it: its leading dimensions
count pieces, and an index into them gives the view for one piece.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ..ir import LoopVar
from .functions import Array
from .memory import Layout
from .overlap import Linear
from .placement import Ref, Storage

Dim = tuple[int, int]
"""Extent and stride in elements."""

Position = list[int]
"""Number of the current piece of each loop over pieces, by slot."""


class Window:
    """A view for every piece.

    Attributes:
        array: the view; as many leading dimensions as there are slots.
        slots: entries of the position that index them.
    """

    __slots__ = ("array", "slots")

    def __init__(self, array: Array, slots: tuple[int, ...]) -> None:
        """See the class attributes."""
        self.array = array
        self.slots = slots

    def at(self, position: Position) -> Array:
        """The view for the current pieces."""
        slots = self.slots
        if not slots:
            return self.array
        if len(slots) == 1:
            return self.array[position[slots[0]]]
        return self.array[tuple([position[s] for s in slots])]


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """One loop over pieces, as the runs inside it see it.

    Attributes:
        slot: its entry of the position.
        size: iterations of a full piece.
        extent: iterations of the pieces at hand: `size`, or fewer for the last piece.
        count: number of pieces at hand.
        start: first iteration of the first piece at hand.
    """

    slot: int
    size: int
    extent: int
    count: int
    start: int


class Scope:
    """The loops over pieces around a run, outermost first."""

    __slots__ = ("levels",)

    def __init__(self, levels: dict[LoopVar, Level] | None = None) -> None:
        """No levels at the top."""
        self.levels = levels or {}

    def entered(self, v: LoopVar, size: int, extent: int, count: int, start: int) -> Scope:
        """The scope inside a further loop."""
        return Scope({**self.levels, v: Level(len(self.levels), size, extent, count, start)})

    def extent(self, v: LoopVar) -> int:
        """Iterations of a loop in flight."""
        level = self.levels.get(v)
        return v.trips if level is None else level.extent


class Binder:
    """Makes windows on the memory of one run.

    Attributes:
        memory: bytes of every storage.
        layout: homes of the temporaries.
    """

    def __init__(self, memory: dict[Storage, Array], layout: Layout) -> None:
        """See the class attributes."""
        self.memory = memory
        self.layout = layout
        self._scratch: dict[str, Array] = {}

    def stride(self, ref: Ref, v: LoopVar) -> int:
        """Elements between successive iterations of a loop in flight."""
        step = ref.map.loops.get(v, 0)
        home = self.layout.homes.get(ref.storage)
        if home is not None and v in home.loops:
            step += home.strides()[v]
        return step

    def step(self, ref: Ref, v: LoopVar) -> int:
        """Elements between an iteration in one piece of a loop and the same one in the next, per iteration."""
        step = ref.map.loops.get(v, 0)
        home = self.layout.homes.get(ref.storage)
        if home is not None and v in home.loops and v not in home.renewed:
            step += home.strides()[v]
        return step

    def window(self, ref: Ref, scope: Scope, dims: list[Dim]) -> Window:
        """A window on direct accesses.

        Args:
            ref: what is accessed; runtime indices are left out.
            scope: the loops around the run.
            dims: dimensions of each view: extent and stride.

        Raises:
            OutOfBounds: if the access leaves its storage.
        """
        memory = self.memory[ref.storage]
        size = ref.dtype.itemsize
        elements = memory.size // size
        const = ref.map.const
        lead: list[Dim] = []
        slots: list[int] = []
        for v, level in scope.levels.items():
            step = self.step(ref, v)
            if not step:
                continue
            const += step * level.start
            if level.count > 1:
                lead.append((level.count, step * level.size))
                slots.append(level.slot)
        # A view that is indexed away entirely would be a number, not a place to write to.
        every = [*lead, *(dims or [(1, 0)])]
        low = const + sum(s * (n - 1) for n, s in every if s < 0)
        high = const + sum(s * (n - 1) for n, s in every if s > 0)
        if low < 0 or high >= elements:
            raise OutOfBounds(ref.storage.name, low, high, elements)
        array: Array = np.ndarray(
            tuple(n for n, _ in every), ref.dtype, memory, const * size, tuple(s * size for _, s in every)
        )  # fmt: skip
        return Window(array, tuple(slots))

    def dims(self, ref: Ref, scope: Scope, loops: tuple[LoopVar, ...]) -> list[Dim]:
        """Batch dimensions for `loops`, then the axes of the tile."""
        batch = [(scope.extent(v), self.stride(ref, v)) for v in loops]
        return [*batch, *((n, s) for s, n in ref.map.axes)]

    def flat(self, storage: Storage) -> Array:
        """All elements of a storage (of the first copy, for temporaries with several)."""
        return self.memory[storage].view(storage.dtype)

    def scratch(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Room for intermediate values; what is in it lasts until the next call with the same name."""
        nbytes = math.prod(shape) * dtype.itemsize
        room = self._scratch.get(name)
        if room is None or room.size < nbytes:
            room = self._scratch[name] = np.empty(nbytes, np.uint8)
        return room[:nbytes].view(dtype).reshape(shape)


class OutOfBounds(Exception):
    """A direct access leaves its storage (where a mask does not let it)."""

    def __init__(self, name: str, low: int, high: int, elements: int) -> None:
        """`low` and `high`: first and last element accessed."""
        super().__init__(f"elements {low} to {high} of `{name}`, which has {elements}")


def values_of(e: Linear, starts: Scope, loops: tuple[LoopVar, ...], scope: Scope) -> Array:
    """The values of an affine map: batch dimensions for `loops`, then tile axes; for the first pieces.

    Args:
        e: the map.
        starts: loops whose first iteration at hand counts.
        loops: loops in flight.
        scope: how many of their iterations.
    """
    const = e.const + sum(c * starts.levels[v].start for v, c in e.loops.items() if v in starts.levels)
    rank = len(loops) + len(e.axes)
    total: Any = np.full((1,) * rank, const, np.int64)
    for k, v in enumerate(loops):
        c = e.loops.get(v, 0)
        if c:
            total = total + (c * np.arange(scope.extent(v))).reshape(-1, *(1,) * (rank - k - 1))
    for k, (stride, n) in enumerate(e.axes):
        if stride and n > 1:
            total = total + (stride * np.arange(n)).reshape(-1, *(1,) * (len(e.axes) - k - 1))
    return np.asarray(total)


def piece_steps(e: Linear, scope: Scope) -> tuple[tuple[int, int], ...]:
    """What later pieces add to an affine map: pairs of slot and step."""
    return tuple(
        (level.slot, e.loops[v] * level.size)
        for v, level in scope.levels.items()
        if e.loops.get(v) and level.count > 1
    )
