"""Direct allocation: ``ncc.sbuf.alloc(...)``, ``ncc.psum.mod_alloc(...)`` and their siblings.

A kernel may choose the address of every tile. Addresses are checked and then forgotten: that they exist, and that no tile
is read after another one was written over it. A kernel that chooses some must choose all, and may not call what needs
tensors of its own (SDK 2.26, direct allocation guide). Of the later dialect's ``address=`` the second only is looked at.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import NKIError
from ..ir import Buffer, Kernel, Node, Tensor, walk
from .session import Session, current

MAX_PLACES_CHECKED = 4096
"""Blocks of one tensor whose addresses are looked at."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """What stands for an address in ``buffer=``.

    Attributes:
        name: ``sbuf`` or ``psum``.
        function: of ``idx`` (the block), ``pdim_size`` (partitions) and ``fdim_size`` (bytes per partition); gives
            (partition, byte), or (bank, partition, byte) in PSUM.
    """

    name: str
    function: Callable[..., Any]


class Memory:
    """``ncc.sbuf`` or ``ncc.psum``."""

    def __init__(self, buffer: Buffer) -> None:
        """`buffer`: the memory it stands for."""
        self.name = str(buffer)
        self._buffer = buffer

    def auto_alloc(self) -> Buffer:
        """The compiler chooses; the same as `nl.sbuf` or `nl.psum`."""
        return self._buffer

    def alloc(self, func: Callable[..., Any]) -> Placement:
        """`func` gives the address of every block."""
        return Placement(self.name, func)

    def mod_alloc(
        self,
        *,
        base_addr: int = 0,
        base_bank: int = 0,
        num_bank_tiles: Iterable[int] = (),
        base_partition: int = 0,
        num_par_tiles: Iterable[int] = (),
        num_free_tiles: Iterable[int] = (),
    ) -> Placement:
        """Blocks take turns on a number of physical tiles."""

        def place(idx: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, ...]:
            bank = base_bank + _turn(idx, tuple(num_bank_tiles))
            partition = base_partition + _turn(idx, tuple(num_par_tiles)) * pdim_size
            byte = base_addr + _turn(idx, tuple(num_free_tiles)) * fdim_size
            return (bank, partition, byte) if self._buffer is Buffer.PSUM else (partition, byte)

        return Placement(self.name, place)


def _turn(index: tuple[int, ...], tiles: tuple[int, ...]) -> int:
    """Which of the physical tiles a block takes."""
    sizes = tiles or (1,) * len(index)
    return sum(
        (i % n) * math.prod(sizes[k + 1 :]) for k, (i, n) in enumerate(zip(index, sizes, strict=False))
    )


def place(tensor: Tensor, placement: Placement) -> None:
    """Check the addresses that a kernel chose for a tensor.

    Raises:
        NKIError: for an address that does not exist or that the engines cannot start at.
    """
    session = current()
    session.allocation.direct.add(tensor)
    partitions, nbytes = tensor.shape[tensor.par_dim], tensor.free_bytes_per_partition
    places = set()
    blocks = itertools.product(*(range(n) for n in tensor.block_shape))
    for index in itertools.islice(blocks, MAX_PLACES_CHECKED):
        address = placement.function(idx=index, pdim_size=partitions, fdim_size=nbytes)
        wrong = _fault(tensor, address, partitions, nbytes)
        if wrong:
            raise NKIError(
                "invalid_allocation",
                f"block {list(index)} of `{tensor.name}` is placed at {address}: {wrong}",
                line=session.line(),
                remedy="choose an address within the memory, at a partition that the size of the tile allows",
            )
        places.add(address)
    if len(places) == 1:
        *banks, partition, byte = places.pop()
        start = byte + (banks[0] * session.machine.psum_bank_bytes if banks else 0)
        remember(tensor, partition, start)


def remember(tensor: Tensor, partition: int, byte: int) -> None:
    """Note where a tensor lies."""
    rows = range(partition, partition + tensor.shape[tensor.par_dim])
    room = range(byte, byte + tensor.free_bytes_per_partition)
    current().allocation.spans[tensor] = str(tensor.buffer), rows, room


def check_overwritten(session: Session, body: list[Node]) -> None:
    """Refuse kernels that read a tile after another one was written, as a whole, to where it lies.

    Looked at in program order, the first iteration of every loop, and only where nothing of the tile itself was written
    in between.

    Raises:
        NKIError: `overlapping_allocation`.
    """
    spans = session.allocation.spans
    if session.allocation.forced_auto or len(spans) < 2:
        return
    neighbours: dict[tuple[str, int], list[Tensor]] = {}
    for tensor, (memory, _, room) in spans.items():
        for chunk in range(room.start // _CHUNK, (room.stop - 1) // _CHUNK + 1):
            neighbours.setdefault((memory, chunk), []).append(tensor)
    over: dict[Tensor, Tensor] = {}
    for instr, _ in walk(body):
        for access in instr.reads():
            if access.tensor in over:
                other = over[access.tensor]
                raise NKIError(
                    "overlapping_allocation",
                    f"`{access.tensor.name}` is read after `{other.name}` was written to where it lies",
                    line=instr.line,
                    remedy="give them addresses that do not overlap, or use the one up before the other is written",
                )
        for access in instr.dsts:
            tensor = access.tensor
            over.pop(tensor, None)
            if tensor not in spans or instr.mask or access != tensor.whole():
                continue
            memory, rows, room = spans[tensor]
            chunks = range(room.start // _CHUNK, (room.stop - 1) // _CHUNK + 1)
            for other in {o for chunk in chunks for o in neighbours[memory, chunk]} - {tensor}:
                _, other_rows, other_room = spans[other]
                if _meet(rows, other_rows) and _meet(room, other_room):
                    over[other] = tensor


_CHUNK = 2048


def _meet(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop


def _fault(tensor: Tensor, address: Any, partitions: int, nbytes: int) -> str | None:
    machine = current().machine
    psum = tensor.buffer is Buffer.PSUM
    if not isinstance(address, tuple) or len(address) != (3 if psum else 2):
        return f"an address in {tensor.buffer} is {'bank, partition, byte' if psum else 'partition, byte'}"
    *banks, partition, byte = address
    step = 32 if partitions <= 32 else 64 if partitions <= 64 else 128
    if partition % step or not 0 <= partition <= machine.partitions - partitions:
        return f"a tile of {partitions} partitions starts at a multiple of {step}"
    if psum:
        if not 0 <= banks[0] < machine.psum_banks:
            return f"psum has {machine.psum_banks} banks"
        if byte < 0 or byte + nbytes > machine.psum_bank_bytes:
            return f"a bank has {machine.psum_bank_bytes} bytes per partition, the tile takes {nbytes}"
    elif byte < 0 or byte + nbytes > machine.sbuf_bytes_per_partition:
        return f"sbuf has {machine.sbuf_bytes_per_partition} bytes per partition, the tile takes {nbytes}"
    return None


def needs_own_tensor(name: str, message: str) -> None:
    """Note a call that an allocated kernel may not make, because it needs a tensor that the kernel has not placed.

    Args:
        name: of the error.
        message: what was found.
    """
    session = current()
    if session.dialect == "neuronxcc.nki":
        session.allocation.implicit.append(NKIError(name, message, line=session.line()))


def check_allocation(session: Session, kernel: Kernel) -> None:
    """Hold an allocated kernel to placing everything.

    Raises:
        NKIError: for calls that need tensors of their own, or tensors without an address.
    """
    allocation = session.allocation
    if not allocation.direct or allocation.forced_auto:
        return
    if allocation.implicit:
        raise allocation.implicit[0]
    for instr, _ in kernel.walk():
        for dst in instr.dsts:
            if dst.tensor.buffer.on_chip and dst.tensor not in allocation.direct:
                raise NKIError(
                    "mixed_allocation",
                    f"`{dst.tensor.name}` has no address, in a kernel that places other tensors itself",
                    line=instr.line,
                    remedy="declare it with nl.ndarray(..., buffer=ncc.sbuf.alloc(...)) and assign into it, or use nl.sbuf and "
                    "nl.psum everywhere",
                )
