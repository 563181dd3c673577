"""The trace in progress: where instructions go, which loops are open, what the budget is.

One `Session` traces a kernel once. Python runs the kernel's body; loops yield one symbolic index, so the body of a loop
runs once. Where Python needs the integer behind an index (a list subscript, an ``if``), `NeedsInteger` ends the attempt
and the driver starts again with that loop unrolled.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..errors import NKIError, TraceLimitError
from ..ir import Access, Indirect, Instr, Loop, LoopKind, LoopVar, Node, Tensor
from .source import KERNEL_FILE, SourceMap

if TYPE_CHECKING:
    from .arch import Architecture

Site = tuple[int, int]
"""A place in the kernel's code: identity of the code object (alive as long as the trace) and bytecode offset."""


class NeedsInteger(Exception):
    """Python needs the value of a loop index: the loops named must be unrolled."""

    def __init__(self, loops: list[LoopVar], why: str) -> None:
        """`loops`: the symbolic indices involved."""
        super().__init__(why)
        self.loops = loops
        self.why = why


class Retrace(Exception):
    """The attempt rests on a wrong assumption that the session has noted; trace again."""


@dataclasses.dataclass
class Assumptions:
    """What earlier attempts at the same trace found out.

    Attributes:
        unrolled: loop sites whose bodies need integers.
        kept: instruction sites whose result is used after it was assigned into another tensor, so that the result and
            the copy must both exist.
        flattened: creation sites of on-chip tensors that are reshaped, and therefore have a single free dimension.
        grid_unrolled: whether the kernel is run once for every instance of its launch grid, with integers as program ids.
    """

    unrolled: set[Site] = dataclasses.field(default_factory=set)
    kept: set[Site] = dataclasses.field(default_factory=set)
    flattened: set[Site] = dataclasses.field(default_factory=set)
    grid_unrolled: bool = False


@dataclasses.dataclass(frozen=True)
class Limits:
    """Budget of one trace. Absurd kernels end in a `TraceLimitError` well within these.

    Attributes:
        instructions: API calls in the traced program.
        seconds: time of all attempts together.
        tensor_bytes: size of a single tensor.
        source_bytes: length of the source.
    """

    instructions: int = 200_000
    seconds: float = 30.0
    tensor_bytes: int = 1 << 36
    source_bytes: int = 2_000_000


def out_of_time(limits: Limits, line: int) -> TraceLimitError:
    """The error for a trace that exceeds its time."""
    return TraceLimitError(
        "trace_timeout",
        f"tracing took longer than {limits.seconds:g} s",
        line=line,
        remedy="use nl.affine_range instead of unrolled Python loops, and bound every loop",
    )


class SharedTensors:
    """Tensors in shared HBM, of which all instances of the launch grid see the same.

    When the grid is unrolled, the first instance creates them and the others find them again, in order of creation.
    """

    def __init__(self) -> None:
        """None yet."""
        self._tensors: list[Tensor] = []
        self._next = 0

    def next_instance(self) -> None:
        """Another instance of the grid begins."""
        self._next = 0

    def take(self, shape: tuple[int, ...]) -> Tensor | None:
        """The tensor that the first instance created at this point, if this is not the first."""
        if self._next >= len(self._tensors) or self._tensors[self._next].shape != shape:
            return None
        self._next += 1
        return self._tensors[self._next - 1]

    def add(self, tensor: Tensor) -> None:
        """Note a tensor just created."""
        self._tensors.append(tensor)
        self._next = len(self._tensors)


@dataclasses.dataclass
class Allocations:
    """What a kernel places in memory by itself, and what it leaves to the compiler.

    Attributes:
        direct: tensors with an address of the kernel's choosing; from the first one on the kernel is an *allocated* one.
        forced_auto: whether the kernel is decorated so that its addresses are ignored.
        spans: where on chip those lie that have one place: memory, partitions and bytes, from and to.
        implicit: errors that hold if the kernel turns out to be an allocated one, in order of occurrence.
    """

    direct: set[Tensor] = dataclasses.field(default_factory=set)
    forced_auto: bool = False
    spans: dict[Tensor, tuple[str, range, range]] = dataclasses.field(default_factory=dict)
    implicit: list[NKIError] = dataclasses.field(default_factory=list)


class Session:
    """State of one attempt at tracing a kernel."""

    def __init__(
        self,
        machine: Architecture,
        source_map: SourceMap,
        assumptions: Assumptions,
        limits: Limits,
        deadline: float,
        dialect: str,
    ) -> None:
        """`deadline` is in `time.monotonic` seconds."""
        self.dialect = dialect
        self.machine = machine
        self.source_map = source_map
        self.assumptions = assumptions
        self.limits = limits
        self.deadline = deadline
        self.top: list[Node] = []
        self.loops: list[Loop] = []
        self.blocks: list[list[Node]] = [self.top]
        self.sites: dict[LoopVar, Site | None] = {}
        self.kinds: dict[LoopVar, LoopKind] = {}
        self.names: dict[str, int] = {}
        self.count = 0
        self.steps = 0
        self.grid: tuple[Any, ...] = ()
        self.moved: dict[Tensor, Site] = {}
        self.written: set[Tensor] = set()
        self.left_early: set[Site] = set()
        self.groups: dict[Tensor, Instr] = {}
        self.loading = False
        """Whether the module around the kernel is being run, where no kernel is."""
        self.entry: CodeType | None = None
        """Code of the kernel itself, as opposed to functions that it calls."""
        self.flags: frozenset[str] = frozenset()
        """Experimental flags that the kernel is decorated with."""
        self.shared = SharedTensors()
        self.created: dict[Tensor, Site] = {}
        """Where on-chip tensors with several free dimensions were created."""
        self.allocation = Allocations()
        self.transposed: dict[Tensor, Tensor | None] = {}
        """Transposes that the tensor engine left in PSUM, and their copies in SBUF where a matmul needed one."""
        self.registers: dict[str, Access] = {}
        """Where the reduction registers of each engine were last put."""
        self._in_bounds: dict[int, tuple[Any, ...]] = {}

    def trust(self, index: tuple[Any, ...]) -> None:
        """Note that an index has been found to stay within its tensor."""
        self._in_bounds[id(index)] = index

    def trusts(self, index: tuple[Any, ...]) -> bool:
        """Whether an index has been found to stay within its tensor."""
        return id(index) in self._in_bounds

    # -- the kernel's frame -------------------------------------------------------------------------------------------
    def frame(self) -> FrameType | None:
        """The innermost frame that runs kernel source."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != KERNEL_FILE:
            frame = frame.f_back
        return frame

    def line(self) -> int:
        """Line of the kernel's source being run, 0 if none is."""
        frame = self.frame()
        return frame.f_lineno if frame is not None else 0

    def hint(self) -> str | None:
        """The variable that the call being run is assigned to, if the source says so."""
        frame = self.frame()
        return self.source_map.assigned_name(frame) if frame is not None else None

    def site(self) -> Site:
        """Identity of the call being run: code object and bytecode offset."""
        frame = self.frame()
        return (0, 0) if frame is None else (id(frame.f_code), frame.f_lasti)

    # -- building -----------------------------------------------------------------------------------------------------
    @property
    def scope(self) -> Loop | None:
        """The innermost open loop."""
        return self.loops[-1] if self.loops else None

    def unique(self, hint: str) -> str:
        """A name not given before in this trace."""
        n = self.names.get(hint)
        self.names[hint] = 0 if n is None else n + 1
        if n is None:
            return hint
        candidate = f"{hint}_{n + 1}"
        while candidate in self.names:
            self.names[hint] += 1
            candidate = f"{hint}_{self.names[hint]}"
        self.names[candidate] = 0
        return candidate

    def tick(self) -> None:
        """Charge one step of tracing work.

        Raises:
            TraceLimitError: when the time is used up.
        """
        self.steps += 1
        if self.steps & 63 == 0 and time.monotonic() > self.deadline:
            raise out_of_time(self.limits, self.line())

    def emit(self, instr: Instr) -> None:
        """Append an instruction to the current block.

        Raises:
            TraceLimitError: when the program has grown beyond the budget.
        """
        self.count += 1
        if self.count > self.limits.instructions:
            raise TraceLimitError(
                "too_many_instructions",
                f"the kernel unrolls to more than {self.limits.instructions} API calls",
                line=instr.line,
                remedy="use nl.affine_range or nl.sequential_range instead of unrolled loops",
            )
        self.tick()
        self.blocks[-1].append(instr)

    def open_loop(self, loop: Loop, site: Site | None) -> None:
        """Enter a loop's body."""
        self.kinds[loop.var] = loop.kind
        self.sites[loop.var] = site
        self.blocks[-1].append(loop)
        self.loops.append(loop)
        self.blocks.append(loop.body)

    def close_loop(self, loop: Loop) -> None:
        """Leave a loop's body; loops that a ``break`` left open inside are closed too."""
        if loop not in self.loops:
            return
        while self.loops and self.loops[-1] is not loop:
            self.loops.pop()
            self.blocks.pop()
        self.loops.pop()
        self.blocks.pop()
        if not loop.body:
            self.blocks[-1].remove(loop)

    def last_instr(self) -> Instr | None:
        """The instruction just emitted in the current block, if the last node is one."""
        block = self.blocks[-1]
        node = block[-1] if block else None
        return node if isinstance(node, Instr) else None

    @property
    def unrolls_freely(self) -> bool:
        """Whether every loop may be unrolled: the later dialect specializes kernels by running their Python."""
        return self.dialect == "nki"

    def is_open(self, var: LoopVar) -> bool:
        """Whether a loop variable's loop is open."""
        return any(loop.var is var for loop in self.loops)

    def check_scope(self, access: Access) -> None:
        """Refuse a tensor that was created in a loop already left.

        Raises:
            NeedsInteger: if the loop is Python's own `range`, where the language allows it: it is unrolled.
            NKIError: otherwise.
        """
        tensor = access.tensor
        if tensor.scope is not None and tensor.scope not in self.loops:
            if tensor.scope.kind is LoopKind.RANGE or self.unrolls_freely:
                raise NeedsInteger(
                    [tensor.scope.var], f"`{tensor.name}` is used after the loop that creates it"
                )
            raise NKIError(
                "err_local_variable_used_out_of_scope",
                f"`{tensor.name}`, created inside the loop over {tensor.scope.var.name} (line {tensor.scope.line}), "
                "is referenced outside of its parent scope",
                line=self.line(),
            )
        for e in access.index:
            if isinstance(e, Indirect):
                self.check_scope(e.tile)
                terms = e.offset.terms
            else:
                terms = e.terms
            for symbol in terms:
                if not isinstance(symbol, int) and not self.is_open(symbol):
                    self._refuse_stale(symbol)

    def _refuse_stale(self, var: LoopVar) -> None:
        if self.kinds[var] is LoopKind.RANGE or self.unrolls_freely:
            raise NeedsInteger([var], "a loop index is used after its loop")
        raise NKIError(
            "err_local_variable_used_out_of_scope",
            f"loop index `{var.name}` is used after its loop",
            line=self.line(),
        )


_current: Session | None = None


def current() -> Session:
    """The trace in progress.

    Raises:
        NKIError: outside of a kernel.
    """
    if _current is None:
        raise NKIError("err_nki_api_outside_of_nki_kernel", "an NKI API is called outside of an NKI kernel")
    return _current


def in_kernel() -> Session:
    """The trace in progress, where a kernel's body is being run.

    Raises:
        NKIError: while the module around it is being loaded, or outside of a kernel altogether.
    """
    session = current()
    if session.loading:
        raise NKIError(
            "err_nki_api_outside_of_nki_kernel",
            "an NKI API is called outside of an NKI kernel",
            line=session.line(),
        )
    return session


def activate(session: Session | None) -> Session | None:
    """Make a session the current one; returns the previous."""
    global _current
    previous, _current = _current, session
    return previous
