"""Loop-invariant work runs once, if the array it makes fits on chip.

An op whose inputs do not change over a loop is executed in that loop's first iteration only, even if the loop is
outermost and the op sits several loops deeper, provided that everything it produces over the loops in between fits
into usable SBUF. Loads, explicit transposes with their evictions, partition broadcasts and element-wise work behave
alike; the transposes hidden in `nl.matmul` are expanded late and never hoisted.

Evidence (bytes per partition of the array, decision): 64 and 128 KiB weights of the rmsnorm kernels over 32 row blocks,
hoisted, hbm_read exact; 128 KiB activations of swiglu over 3, hoisted, FLOPs exact; 4 to 16 KiB of bmm over 4, hoisted;
704 KiB of transpose_matmul over 4 and 640 KiB of matmul over 12, not hoisted, both exact; lora's 640 KiB, of which one
iteration of a sequential loop needs 160, hoisted: so the array is measured inside one iteration of a sequential loop.
mamba's delta*u is hoisted out of the states, its broadcasts of single rows are not shared between channel tiles.
"""

from __future__ import annotations

from ..ir import Access, Affine, LoopKind, LoopVar, Tensor
from ..machine import Machine
from .liveness import Use, lifetimes, touched_bytes
from .program import Kind, Nest, Op, Program
from .rewriting import map_accesses


def hoist(program: Program, machine: Machine) -> None:
    """Mark invariant ops with the loops they leave, and give their results room for all iterations."""
    _Hoisting(program, machine).run()


class _Hoisting:
    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.capacity = int(machine.sbuf_usable_bytes)
        self.ops = list(program.walk())
        self.loops = {op: loops for op, loops in self.ops}
        self.lives = lifetimes(program)
        self.hbm_writers: dict[Tensor, list[tuple[Nest, ...]]] = {}
        for op, loops in self.ops:
            for access in op.writes:
                if not access.tensor.buffer.on_chip:
                    self.hbm_writers.setdefault(access.tensor.storage, []).append(loops)
        self.invariant: dict[Op, set[LoopVar]] = {}

    def run(self) -> None:
        for op, loops in self.ops:
            self.invariant[op] = {nest.var for nest in loops} - op.varies if _movable(op) else set()
        self._settle(self.invariant, self._stays_invariant)
        # Single rows kept for a later broadcast are not shared over part of their loops: mamba loads and broadcasts b
        # and c once per channel tile.
        for op, loops in self.ops:
            if _single_row(op) and len(self.invariant[op]) < len(loops):
                self.invariant[op] = set()
        self._settle(self.invariant, self._stays_invariant)
        chosen = {
            op: {v for v in self.invariant[op] if self._fits(op, v) or self._feeds_tensor(op)}
            for op, _ in self.ops
        }
        self._settle(chosen, lambda op, var: self._consistent(op, var, chosen))
        self._apply(chosen)

    def _settle(self, sets: dict[Op, set[LoopVar]], keeps: object) -> None:
        """Shrink the sets until every member passes."""
        assert callable(keeps)
        changed = True
        while changed:
            changed = False
            for op, _ in self.ops:
                for var in list(sets[op]):
                    if not keeps(op, var):
                        sets[op].discard(var)
                        changed = True

    # -- invariance -------------------------------------------------------------------------------------------------

    def _stays_invariant(self, op: Op, var: LoopVar) -> bool:
        for access in (*op.reads, *op.side_reads):
            tensor = access.tensor
            if not tensor.buffer.on_chip:
                if var in access.loops():
                    return False
                if any(_inside(loops, var) for loops in self.hbm_writers.get(tensor.storage, ())):
                    return False
                continue
            writers = [u for u in self.lives[tensor].writers if _inside(u.loops, var)]
            if not writers:
                if var in access.loops():
                    return False
                continue
            for w in writers:
                if var not in self.invariant[w.op] or _pattern(w.access, var) != _pattern(access, var):
                    return False
        for access in op.writes:
            life = self.lives[access.tensor]
            shape = _pattern(access, var)
            for use in life.uses:
                if not _inside(use.loops, var) or _pattern(use.access, var) != shape:
                    return False
                if use.write and var not in self.invariant[use.op]:
                    return False
        return all(e.coefficient(var) == 0 for e in op.mask)

    # -- capacity ---------------------------------------------------------------------------------------------------

    def _fits(self, op: Op, var: LoopVar) -> bool:
        """Whether the array that an op fills inside one iteration of a loop fits into SBUF."""
        loops = self.loops[op]
        depth = next(k for k, nest in enumerate(loops) if nest.var is var)
        inner = [nest for nest in loops[depth + 1 :]]
        for k in range(len(inner) - 1, -1, -1):
            if inner[k].kind is LoopKind.SEQUENTIAL or inner[k].kind is LoopKind.RANGE:
                inner = inner[k + 1 :]
                break
        size = touched_bytes(op.writes[0], ())
        for nest in inner:
            if nest.var not in self.invariant[op]:
                size *= nest.trips
        return size <= self.capacity

    def _feeds_tensor(self, op: Op) -> bool:
        """A matmul result in PSUM has no array of its own: its consumers decide."""
        return not any(w.tensor.buffer.on_chip and w.tensor.buffer != "psum" for w in op.writes)

    def _consistent(self, op: Op, var: LoopVar, chosen: dict[Op, set[LoopVar]]) -> bool:
        """Inputs made inside the loop must be there in later iterations too, or not be needed; so with shared results."""
        for access in (*op.reads, *op.side_reads):
            if access.tensor.buffer.on_chip:
                for w in self.lives[access.tensor].writers:
                    if _inside(w.loops, var) and var not in self.invariant[w.op]:
                        return False
        for access in op.writes:
            life = self.lives[access.tensor]
            if any(u.write and var not in chosen[u.op] for u in life.uses):
                return False
            if access.tensor.buffer == "psum" and any(
                not u.write and var not in chosen[u.op] for u in life.uses
            ):
                return False
        return True

    # -- application ------------------------------------------------------------------------------------------------

    def _apply(self, chosen: dict[Op, set[LoopVar]]) -> None:
        # Whatever only feeds hoisted work is needed once as well.
        changed = True
        while changed:
            changed = False
            for op, _ in reversed(self.ops):
                for var in self.invariant[op] - chosen[op]:
                    readers = [
                        u for w in op.writes if w.tensor in self.lives for u in self.lives[w.tensor].readers
                    ]
                    if readers and all(_inside(u.loops, var) and var in chosen[u.op] for u in readers):
                        chosen[op].add(var)
                        changed = True
        for op, loops in self.ops:
            leaves = frozenset(v for v in chosen[op])
            if leaves:
                op.once = op.once | leaves
                names = ", ".join(n.var.name for n in loops if n.var in leaves)
                self.program.notes.append(f"line {op.line}: {op.label} runs once over {names}")
        replaced: dict[Tensor, tuple[Tensor, tuple[Nest, ...], frozenset[LoopVar]]] = {}
        for tensor, life in self.lives.items():
            leaves = frozenset(v for u in life.writers for v in chosen.get(u.op, ()))
            if leaves:
                replaced[tensor] = self._widen(tensor, life.uses, leaves)
        for op, _ in self.ops:
            map_accesses(op, lambda a: _redirect(a, replaced))

    def _widen(
        self, tensor: Tensor, uses: list[Use], leaves: frozenset[LoopVar]
    ) -> tuple[Tensor, tuple[Nest, ...], frozenset[LoopVar]]:
        """A tensor created afresh inside inner loops gets a block dimension for each of them."""
        loops = uses[0].loops
        for use in uses[1:]:
            loops = tuple(a for a, b in zip(loops, use.loops, strict=False) if a is b)
        outermost = min(k for k, nest in enumerate(loops) if nest.var in leaves) if loops else 0
        extra = tuple(
            nest
            for nest in loops[outermost + 1 :]
            if nest.var not in leaves
            and all(nest.var not in u.access.loops() for u in uses)
            and any(nest.var not in self.invariant[u.op] for u in uses if u.write)
        )
        if not extra:
            return tensor, (), leaves
        shape = (*(nest.trips for nest in extra), *tensor.shape)
        wide = Tensor(
            tensor.name, shape, tensor.dtype, tensor.buffer, par_dim=tensor.par_dim + len(extra), kind=tensor.kind,
            line=tensor.line, declared=tensor.declared,
        )  # fmt: skip
        return wide, extra, leaves


def _redirect(
    access: Access, replaced: dict[Tensor, tuple[Tensor, tuple[Nest, ...], frozenset[LoopVar]]]
) -> Access:
    found = replaced.get(access.tensor)
    if found is None:
        return access
    tensor, extra, leaves = found
    settled = access.substitute(dict.fromkeys(leaves, 0))
    prefix = tuple(Affine.of(nest.var) for nest in extra)
    return Access(tensor, (*prefix, *settled.index), access.shape)


def _movable(op: Op) -> bool:
    if op.hidden or op.accumulates or op.after_first or op.last_of:
        return False
    if op.transfer is not None and op.transfer.hbm_write:
        return False
    if any(not w.tensor.buffer.on_chip for w in op.writes):
        return False
    return op.kind is not Kind.MEMSET


def _single_row(op: Op) -> bool:
    return op.transfer is not None and op.transfer.rows == 1


def _inside(loops: tuple[Nest, ...], var: LoopVar) -> bool:
    return any(nest.var is var for nest in loops)


def _pattern(access: Access, var: LoopVar) -> tuple[int, ...]:
    return tuple(e.coefficient(var) if isinstance(e, Affine) else 0 for e in access.index)
