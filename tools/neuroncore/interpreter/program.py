"""The program that the interpreter's passes work on: a private copy of a kernel, in fewer kinds of instructions.

It is made of the IR's own `Loop`, `Instr`, `Access` and `Tensor`, with these differences:

* Plain data movement, whatever the API call, is ``move`` with one operand ``src`` whose axes are the destination's;
  transposes become moves with permuted axes. Constants are ``fill`` with the attribute ``value``.
* ``attrs["combine"]`` names a reduction: the result is combined with what the destination holds, except in the first
  iteration of all loops in ``attrs["reset"]`` (a tuple), where it replaces it; a reset of None means never.
* ``attrs["claims"]`` names what a matmul says of its operands and has to be looked at in the data (a tuple).
* Loops of one iteration are gone, and tensors that a kernel fills as soon as they exist carry that value in `inits`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..contents import Contents
from ..ir import Access, Affine, Buffer, Indirect, Instr, Kernel, Loop, LoopVar, Node, Tensor, TensorKind
from .semantics import FILLS, MATMULS, MOVES, reads_destination


@dataclasses.dataclass(slots=True)
class Program:
    """A kernel on its way to a plan.

    Attributes:
        params: input tensors.
        outputs: returned tensors.
        body: nodes.
        inits: value that a local tensor is filled with when it comes into being.
        shared: storages that are returned or seen through several tensors.
    """

    params: list[Tensor]
    outputs: list[Tensor]
    body: list[Node]
    inits: dict[Tensor, float]
    shared: set[Tensor] = dataclasses.field(default_factory=set)

    def is_private(self, tensor: Tensor) -> bool:
        """Whether nobody outside the kernel sees a tensor, and no other tensor shares its memory."""
        return tensor.kind is TensorKind.LOCAL and tensor.view_of is None and tensor not in self.shared


@dataclasses.dataclass(slots=True)
class Site:
    """An instruction in its place.

    Attributes:
        instr: the instruction.
        loops: loops around it, outermost first.
        position: its number in program order.
    """

    instr: Instr
    loops: tuple[Loop, ...]
    position: int


def sites(body: list[Node]) -> Iterator[Site]:
    """Every instruction in program order."""
    position = 0
    stack: list[tuple[Iterator[Node], tuple[Loop, ...]]] = [(iter(body), ())]
    while stack:
        nodes, loops = stack[-1]
        for node in nodes:
            if isinstance(node, Loop):
                stack.append((iter(node.body), (*loops, node)))
                break
            yield Site(node, loops, position)
            position += 1
        else:
            stack.pop()


def common_loops(a: tuple[Loop, ...], b: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops that enclose both of two places."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        n += 1
    return a[:n]


def inside(loops: tuple[Loop, ...], scope: Loop | None) -> tuple[Loop, ...]:
    """The part of a loop path below a scope."""
    return loops if scope is None else loops[loops.index(scope) + 1 :]


def is_partial(instr: Instr) -> bool:
    """Whether some elements of the destination may stay as they are: behind a mask, or at indices out of range."""
    return bool(instr.mask) or instr.attrs.get("oob_mode") == "skip"


def reads(instr: Instr) -> list[Access]:
    """Everything an instruction reads, index tiles and destinations that it keeps or combines with included."""
    tiles = [a for a in instr.args.values() if a.__class__ is Access]
    attrs = instr.attrs
    if is_partial(instr) or "combine" in attrs and attrs["reset"] is None:
        tiles.extend(instr.dsts)
    else:
        tiles.extend(instr.dsts[k] for k in reads_destination(instr.op, attrs))
    for access in (*tiles, *instr.dsts):
        for e in access.index:
            if e.__class__ is Indirect:
                tiles.append(e.tile)
    return tiles


class Copier:
    """Copies nodes while replacing loop variables and moving tensors to new scopes.

    Attributes:
        inits: init values, extended for copies.
        simplify: applied to every instruction before it is copied.
        bindings: what loop variables become.
        scopes: what loops become as scopes of tensors (None: top level); tensors of other scopes stay.
        tensors: copies made so far.
    """

    def __init__(self, inits: dict[Tensor, float], simplify: Callable[[Instr], Instr] | None = None) -> None:
        """`inits` is updated in place."""
        self.inits = inits
        self.simplify = simplify
        self.bindings: dict[LoopVar | int, Affine | int] = {}
        self.scopes: dict[Loop, Loop | None] = {}
        self.tensors: dict[Tensor, Tensor] = {}

    def tensor(self, t: Tensor) -> Tensor:
        """The copy of a tensor whose scope is copied, else the tensor itself."""
        known = self.tensors.get(t)
        if known is not None:
            return known
        if t.scope is None or t.scope not in self.scopes:
            return t
        made = Tensor(
            t.name, t.shape, t.dtype, t.buffer, par_dim=t.par_dim, kind=t.kind, scope=self.scopes[t.scope], value=t.value,
            view_of=t.view_of, declared=t.declared, mutable=t.mutable, line=t.line,
        )  # fmt: skip
        self.tensors[t] = made
        if t in self.inits:
            self.inits[made] = self.inits[t]
        return made

    def access(self, a: Access) -> Access:
        """A copy of an access."""
        index: list[Affine | Indirect] = []
        for e in a.index:
            if isinstance(e, Indirect):
                index.append(Indirect(self.access(e.tile), e.offset.substitute(self.bindings), e.scale))
            else:
                index.append(e.substitute(self.bindings))
        return Access(self.tensor(a.tensor), tuple(index), a.shape)

    def attr(self, key: str, value: Any) -> Any:
        """A copy of an attribute."""
        if key == "reset":
            return self._reset(value)
        if isinstance(value, Affine):
            return value.substitute(self.bindings)
        if isinstance(value, Access):
            return self.access(value)
        if isinstance(value, tuple):
            return tuple(self.attr("", v) for v in value)
        return value

    def _reset(self, loops: tuple[LoopVar, ...] | None) -> tuple[LoopVar, ...] | None:
        if loops is None:
            return None
        kept: list[LoopVar] = []
        for v in loops:
            bound = self.bindings.get(v)
            if bound is None:
                kept.append(v)
                continue
            start = bound if isinstance(bound, int) else bound.const
            if start:
                return None
            if not isinstance(bound, int):
                kept.extend(bound.loops())
        return tuple(kept)

    def instr(self, instr: Instr) -> Instr:
        """A copy of an instruction."""
        if self.simplify is not None:
            instr = self.simplify(instr)
        copied = instr.map_accesses(self.access)
        copied.attrs = {k: self.attr(k, v) for k, v in instr.attrs.items()}
        copied.mask = tuple(m.substitute(self.bindings) for m in instr.mask)
        if copied.attrs.get("reset") == ():
            del copied.attrs["reset"], copied.attrs["combine"]
        return copied

    def body(self, nodes: list[Node], parent: Loop | None) -> list[Node]:
        """Copies of nodes below `parent`; loops of one iteration are dissolved into their parents."""
        out: list[Node] = []
        for node in nodes:
            if isinstance(node, Instr):
                out.append(self.instr(node))
            elif node.trips == 1:
                self.bindings[node.var] = 0
                self.scopes[node] = parent
                out.extend(self.body(node.body, parent))
            elif node.trips > 1:
                out.append(self.loop(node, 0, node.trips))
        return out

    def loop(self, node: Loop, start: int, stop: int) -> Loop:
        """A copy of a part of a loop's iterations (more than one)."""
        var = LoopVar(node.var.name, stop - start)
        self.bindings[node.var] = Affine(start, {var: 1})
        copied = Loop(var, node.kind, [], node.line)
        self.scopes[node] = copied
        copied.body = self.body(node.body, copied)
        return copied


def normalised(kernel: Kernel) -> Program:
    """A program that does what a kernel does.

    The kernel is left alone; loops and the tensors inside loops are copies.
    """
    inits: dict[Tensor, float] = {}
    contents = Contents(kernel)
    body = Copier(inits, lambda instr: _simplified(_with_claims(instr, contents))).body(kernel.body, None)
    program = Program(list(kernel.params), list(kernel.outputs), body, inits)
    program.shared = {t.storage for t in kernel.tensors() if t.view_of is not None} | {
        t.storage for t in kernel.outputs
    }
    _resolve_transposes(program)
    return program


def _with_claims(instr: Instr, contents: Contents) -> Instr:
    claims = contents.open_claims(instr) if instr.op == "nisa.nc_matmul" else ()
    return instr.replace(attrs={**instr.attrs, "claims": claims}) if claims else instr


def _simplified(instr: Instr) -> Instr:
    op, attrs = instr.op, instr.attrs
    if op in FILLS:
        default = 1 if "ones" in op else 0
        return instr.replace(op="fill", args={}, attrs={"value": attrs.get("value", default)})
    if op in MOVES and attrs.get("oob_mode") != "skip":
        source = instr.args["value" if op == "nl.store" else "src"]
        combine = {"combine": attrs["dst_rmw_op"], "reset": None} if attrs.get("dst_rmw_op") else {}
        return _move(instr, source, combine)
    if op == "nl.atomic_rmw":
        return _move(instr, instr.args["value"], {"combine": attrs["op"], "reset": None})
    if op == "nl.loop_reduce":
        return _move(instr, instr.args["x"], {"combine": attrs["op"], "reset": tuple(attrs["loops"])})
    if op in MATMULS and attrs.get("accumulate"):
        kept = {k: v for k, v in attrs.items() if k != "accumulate"}
        return instr.replace(attrs={**kept, "combine": "add", "reset": None})
    if op in ("nl.transpose", "nisa.nc_transpose", "nl.load_transpose2d", "nisa.dma_transpose"):
        return _transposed(instr, next(a for a in instr.args.values() if isinstance(a, Access)))
    return _in_place(instr)


def _move(instr: Instr, source: Any, attrs: dict[str, Any]) -> Instr:
    if isinstance(source, Access) and source.shape != instr.dst.shape:
        # Axes do not correspond one to one; the general copy regroups them.
        return instr.replace(op="nl.copy", args={"src": source}, attrs=attrs)
    if not isinstance(source, Access):
        return instr.replace(op="fill", args={}, attrs={"value": source, **attrs})
    return instr.replace(op="move", args={"src": source}, attrs=attrs)


def _transposed(instr: Instr, source: Access) -> Instr:
    rank = len(source.shape)
    order = tuple(instr.attrs.get("axes") or (1, 0)) if instr.op == "nisa.dma_transpose" else (1, 0)
    if len(order) != rank or instr.dst.shape != tuple(source.shape[a] for a in order):
        return instr
    # Axis k of the destination runs over axis order[k] of the source.
    turned = source.substitute({a: Affine.of(k) for k, a in enumerate(order)})
    return instr.replace(
        op="move", args={"src": Access(turned.tensor, turned.index, instr.dst.shape)}, attrs={}
    )


_IN_PLACE = {"add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum"}


def _in_place(instr: Instr) -> Instr:
    """``t = op(t, x)`` as ``t op= x``, which can be taken over several iterations at once."""
    if instr.op == "nisa.tensor_tensor":
        name, (x, y) = instr.attrs["op"], (instr.args["data1"], instr.args["data2"])
    elif instr.op.startswith("nl.") and "y" in instr.args:
        name, (x, y) = instr.op[3:], (instr.args["x"], instr.args["y"])
    else:
        return instr
    if name not in _IN_PLACE or instr.dst.dtype != np.float32 or len(instr.dsts) > 1:
        return instr
    for kept, other in ((x, y), (y, x)):
        if (
            kept == instr.dst
            and isinstance(other, Access)
            and other.tensor.storage is not instr.dst.tensor.storage
        ):
            return _move(instr, other, {"combine": name, "reset": None})
    return instr


def constant_value(access: Access, writers: dict[Tensor, list[Site]]) -> np.ndarray[Any, Any] | None:
    """What a tile that holds (part of) a constant tensor contains, as far as that is plain to see.

    Args:
        access: no loop variables in its index.
        writers: the instructions that write each tensor.
    """
    if access.is_indirect or access.loops():
        return None
    tensor = access.tensor
    if tensor.kind is TensorKind.CONSTANT and tensor.value is not None:
        whole: np.ndarray[Any, Any] | None = np.asarray(tensor.value).reshape(tensor.shape)
    else:
        whole = _moved_constant(tensor, writers)
    if whole is None:
        return None
    grids = np.meshgrid(*(np.arange(n) for n in access.shape), indexing="ij", sparse=True)
    index = tuple(
        np.asarray(e.const + sum((c * grids[s] for s, c in e.terms.items() if isinstance(s, int)), start=0))
        for e in access.affine
    )
    return np.broadcast_to(whole[index], access.shape)


def _moved_constant(tensor: Tensor, writers: dict[Tensor, list[Site]]) -> np.ndarray[Any, Any] | None:
    sites_ = writers.get(tensor, [])
    if len(sites_) != 1 or tensor.kind is not TensorKind.LOCAL:
        return None
    instr = sites_[0].instr
    if instr.op != "move" or instr.mask or instr.dst != tensor.whole():
        return None
    source = instr.args["src"]
    assert isinstance(source, Access)
    return constant_value(source, writers)


def written_by(body: list[Node]) -> dict[Tensor, list[Site]]:
    """The instructions that write each tensor."""
    writers: dict[Tensor, list[Site]] = {}
    for site in sites(body):
        for dst in site.instr.dsts:
            writers.setdefault(dst.tensor, []).append(site)
    return writers


def _resolve_transposes(program: Program) -> None:
    """Turn matmuls by an identity, where they are marked as transposes, into moves.

    Hardware passes the stationary tile through exactly, NaN and infinity included, in transpose mode.
    """
    candidates = [
        s for s in sites(program.body) if s.instr.op == "nisa.nc_matmul" and s.instr.attrs.get("is_transpose")
    ]
    if not candidates:
        return
    writers = written_by(program.body)
    for site in candidates:
        instr = site.instr
        stationary, moving = instr.args["stationary"], instr.args["moving"]
        assert isinstance(stationary, Access) and isinstance(moving, Access)
        if "combine" in instr.attrs or len(stationary.shape) != 2 or len(moving.shape) != 2:
            continue
        value = constant_value(moving, writers)
        if (
            value is None
            or value.shape[0] != value.shape[1]
            or not np.array_equal(value, np.eye(value.shape[0]))
        ):
            continue
        turned = stationary.substitute({0: Affine.of(1), 1: Affine.of(0)})
        instr.op, instr.attrs = "move", {}
        instr.args = {"src": Access(turned.tensor, turned.index, instr.dst.shape)}


def on_chip(tensor: Tensor) -> bool:
    """SBUF or PSUM."""
    return tensor.buffer in (Buffer.SBUF, Buffer.PSUM)
