"""The transfers of an array that leaves SBUF.

A load is read again before each reader, a result is saved after its writer and reloaded before each later reader, an
accumulator is saved at every update and reloaded before the next. Slices that repeat over inner loops are reloaded
once for all of them, and two readers that go through the same tiles in the same pass share one reload (swiglu's gate
and up halves; its spill_reload is exact).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..ir import Access, Affine, Buffer, LoopVar, Tensor, TensorKind
from .liveness import Lifetime, Use
from .program import Engine, Kind, Nest, Node, Op, Program, Role, Transfer


@dataclasses.dataclass(frozen=True, slots=True)
class Leaving:
    """What is to leave.

    Attributes:
        life: the tensor's uses.
        share: fraction of it that leaves.
        accumulates: it is updated in place over a loop.
        loaded: all writers are loads.
        large_tiles: number of its tiles, if they are few and large and leave one by one; 0 otherwise.
        size: bytes per partition of one instance.
        pass_loops: per reader, the loops over which it is read through again.
    """

    life: Lifetime
    share: float
    accumulates: bool
    loaded: bool
    large_tiles: int
    size: int
    pass_loops: dict[Use, list[Nest]]


def spill(program: Program, leaving: Leaving) -> None:
    """Put the transfers of one array into the program."""
    _Spilling(program, leaving).apply()


class _Spilling:
    """Puts the transfers of one array that leaves into the program."""

    def __init__(self, program: Program, leaving: Leaving) -> None:
        self.program = program
        self.array = leaving
        self.life = leaving.life
        self.tensor = leaving.life.tensor
        self.share = leaving.share
        self.flight: Access | None = None
        if self.array.large_tiles and self.array.accumulates:
            # The tile that comes and goes takes room only between its reload and its save.
            width = math.ceil(self.array.size / self.array.large_tiles * self.share)
            bytes_only = np.dtype(np.uint8)
            self.flight = Tensor(
                f"{self.tensor.name}.flight",
                (self.tensor.shape[self.tensor.par_dim], width),
                bytes_only,
                Buffer.SBUF,
            ).whole()
        self.reloads: list[tuple[Use, frozenset[LoopVar], Tensor]] = []
        self.area = Tensor(
            f"{self.tensor.name}.spill",
            self.tensor.shape,
            self.tensor.dtype,
            Buffer.HBM,
            kind=TensorKind.LOCAL,
        )

    def apply(self) -> None:
        if self.array.loaded:
            self._read_again()
        elif self.array.accumulates:
            self._per_update()
        else:
            self._save_and_reload()

    # -- loads ------------------------------------------------------------------------------------------------------

    def _read_again(self) -> None:
        loads = [u for u in self.life.writers]
        hoisted = {v for u in loads for v in u.op.once}
        if hoisted and all(u.loops == loads[0].loops[: len(u.loops)] for u in self.life.readers):
            # The loop body loads it anyway: it is simply not hoisted.
            for u in loads:
                u.op.once = u.op.once - hoisted
            return
        source = loads[0].op
        assert source.transfer is not None
        for use in self._later_readers():
            self._insert_reload(use, source.reads[0], source.transfer, 1.0)
        if not any(self.tensor is a.tensor for op, _ in self.program.walk() for a in op.tiles_read()):
            # Every reader fetches for itself: the load ahead of the loop is gone (matmul, exact).
            for u in loads:
                (u.loops[-1].body if u.loops else self.program.body).remove(u.op)
            _drop_empty_loops(self.program.body)

    # -- results ----------------------------------------------------------------------------------------------------

    def _save_and_reload(self) -> None:
        for use in self.life.writers:
            if use.op.kind is not Kind.MEMSET:
                self._insert_save(use, self.share)
        for use in self._later_readers():
            self._insert_reload(use, None, None, self.share)

    def _per_update(self) -> None:
        """An accumulator: saved at every update, reloaded before every later one and before the last readers."""
        updates = [u for u in self.life.writers if u.op.kind is not Kind.MEMSET]
        ops = {u.op for u in updates}
        tiles = self.array.large_tiles
        for use in updates:
            used = set(use.access.loops())
            loops = tuple(n.var for n in self.life.inner_loops(use) if n.var not in used)
            # With whole tiles leaving, the last update's value is still there when the pressure ends.
            count = math.prod(v.trips for v in loops)
            share = self.share * (count - 1) / count if tiles and count > 1 else self.share
            self._insert_save(use, share)
            if loops:
                self._insert_in_place_reload(use, loops, self.share)
        if not tiles:
            seen: set[Op] = set()
            for use in self._later_readers():
                if use.op not in ops and use.op not in seen:
                    seen.add(use.op)
                    self._insert_reload(use, None, None, self.share)

    def _later_readers(self) -> list[Use]:
        """Readers outside the body that writes, one use per op and tile."""
        home = [u.loops for u in self.life.writers]
        found: dict[tuple[Op, Access], Use] = {}
        hoisted = any(u.op.once for u in self.life.writers)
        for use in self.life.readers:
            if use.loops in home and not hoisted and not self.array.accumulates and self._near(use):
                continue
            found.setdefault((use.op, use.access), use)
        return list(found.values())

    def _near(self, use: Use) -> bool:
        """Whether a reader in the writer's body follows it at once."""
        return bool(self.life.scope) or all(abs(use.position - w.position) <= 8 for w in self.life.writers)

    # -- insertion ----------------------------------------------------------------------------------------------------

    def _insert_save(self, use: Use, share: float) -> None:
        area = Access(self.area, use.access.index, use.access.shape)
        save = Op(
            Kind.DMA, Engine.DMA, "spill", use.op.line, (area,), (use.access,),
            side_reads=(self.flight,) if self.flight is not None else (), elements=use.access.free_size,
            transfer=_spill_shape(Role.SAVE, use.access), share=share, once=use.op.once,
            after_first=use.op.after_first if not use.op.accumulates else (), last_of=use.op.last_of,
            source="spill save", home=use.op.home,
        )  # fmt: skip
        body = use.loops[-1].body if use.loops else self.program.body
        body.insert(body.index(use.op) + 1, save)

    def _insert_reload(self, use: Use, source: Access | None, shape: Transfer | None, share: float) -> None:
        """A tile of its own, filled before the reader, kept over inner loops that read the same slice."""
        inner = self.life.inner_loops(use)
        passes = {n.var for n in self.array.pass_loops[use]}
        used = set(use.access.loops())
        kept_over = frozenset(n.var for n in inner if n.var not in used and n.var not in passes)
        hoisted = {v for u in self.life.writers for v in u.op.once}
        first_pass = tuple(n.var for n in inner if n.var in hoisted)
        tile = Tensor(
            f"{self.tensor.name}.reload", self.tensor.shape, self.tensor.dtype, Buffer.SBUF,
            par_dim=self.tensor.par_dim, line=self.tensor.line,
        )  # fmt: skip
        target, access = use.access, use.access

        def swap(a: Access, new: Tensor) -> Access:
            return Access(new, a.index, a.shape) if a == access else a

        for earlier, over, made in self.reloads:
            if over and _same_slices(earlier, use):
                # The same tiles are read twice in one pass (swiglu's gate and up halves): one reload serves both.
                use.op.reads = tuple(swap(a, made) for a in use.op.reads)
                return
        if shape is not None:
            # A load moves its own tile, of which the reader may use a part at a time.
            target, kept_over = self._load_tile(use, kept_over)
        reload = Op(
            Kind.DMA, Engine.DMA, "reload", use.op.line, (Access(tile, target.index, target.shape),),
            (source if source is not None else Access(self.area, target.index, target.shape),),
            side_reads=(use.access,) if first_pass else (), elements=target.free_size,
            transfer=shape if shape is not None else _spill_shape(Role.RELOAD, target), share=share,
            once=kept_over | use.op.once, after_first=first_pass, source="reload", home=use.op.home,
        )  # fmt: skip
        body = use.loops[-1].body if use.loops else self.program.body
        body.insert(body.index(use.op), reload)
        self.reloads.append((use, kept_over, tile))
        use.op.reads = tuple(swap(a, tile) for a in use.op.reads)
        use.op.side_reads = tuple(swap(a, tile) for a in use.op.side_reads)

    def _load_tile(self, use: Use, kept_over: frozenset[LoopVar]) -> tuple[Access, frozenset[LoopVar]]:
        """The loader's whole tile in terms of the reader's loops."""
        par = self.tensor.par_dim
        index: list[Affine] = []
        shape: list[int] = [use.access.shape[0]]
        dropped: set[LoopVar] = set()
        for d, expression in enumerate(use.access.affine):
            if d < par:
                index.append(expression)
            elif d == par:
                index.append(Affine.of(0))
            else:
                dropped.update(expression.loops())
                index.append(Affine.of(len(shape)))
                shape.append(self.tensor.shape[d])
        still = {v for e in index for v in e.loops()}
        inner = {n.var for n in self.life.inner_loops(use)}
        return Access(self.tensor, tuple(index), tuple(shape)), kept_over | frozenset(
            (dropped - still) & inner
        )

    def _insert_in_place_reload(self, use: Use, loops: tuple[LoopVar, ...], share: float) -> None:
        area = Access(self.area, use.access.index, use.access.shape)
        reload = Op(
            Kind.DMA, Engine.DMA, "reload", use.op.line,
            (use.access, self.flight) if self.flight is not None else (use.access,), (area,), elements=use.access.free_size,
            transfer=_spill_shape(Role.RELOAD, use.access), share=share, after_first=loops, source="reload",
            home=use.op.home,
        )  # fmt: skip
        body = use.loops[-1].body if use.loops else self.program.body
        body.insert(body.index(use.op), reload)


def _drop_empty_loops(body: list[Node]) -> None:
    for node in list(body):
        if isinstance(node, Nest):
            _drop_empty_loops(node.body)
            if not node.body:
                body.remove(node)


def _same_slices(a: Use, b: Use) -> bool:
    """Whether two readers go through the same tiles in the same order, up to the names of their own inner loops."""
    if a.access.shape != b.access.shape or len(a.loops) != len(b.loops):
        return False
    shared = sum(1 for x, y in zip(a.loops, b.loops, strict=True) if x is y)
    if shared < len(a.loops) - 1:
        return False
    names: dict[LoopVar | int, Affine | int] = {}
    for x, y in zip(a.loops, b.loops, strict=True):
        if x.trips != y.trips:
            return False
        names[y.var] = Affine.of(x.var)
    return b.access.substitute(names).index == a.access.index


def _spill_shape(role: Role, tile: Access) -> Transfer:
    """Spills move a tile in runs of its free size."""
    return Transfer(
        role, tile.shape[0], 1, tile.free_size * tile.dtype.itemsize, hbm_read=role is Role.RELOAD,
        hbm_write=role is Role.SAVE, scratch=True,
    )  # fmt: skip
