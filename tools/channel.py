"""How two processes talk here: framed messages over a socket, arrays in memory that both map.

A message is a JSON object with an optional tail of bytes; nothing that is received is ever executed or unpickled.
Arrays travel as a file descriptor of anonymous memory, so a gigabyte costs no copy.
"""

import contextlib
import json
import mmap
import os
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

# Imported for its side effect: NumPy then knows bfloat16 and its siblings by name.
import ml_dtypes  # noqa: F401
import numpy as np

_HEADER = struct.Struct("<II")
_MAX_JSON_BYTES = 32 << 20
_MAX_TAIL_BYTES = 512 << 20
_MAX_FDS = 16
_ALIGNMENT = mmap.PAGESIZE


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """Nothing, or not everything, arrived in time."""


class MalformedMessage(Exception):
    """What arrived is not a message of this protocol."""


class Message(NamedTuple):
    """What one `receive` returns."""

    fields: dict[str, Any]
    tail: bytes
    fds: list[int]


class Channel:
    """Messages over one end of a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes over `sock`; close the channel to close it."""
        self._socket = sock

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end; the other side sees `ChannelClosed`."""
        self._socket.close()

    def shut_down(self) -> None:
        """Ends the conversation for both sides; a thread that waits here wakes with `ChannelClosed`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, fields: dict[str, Any], *, tail: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Sends one message; `fds` are duplicated into the receiving process.

        Raises:
            ChannelClosed: nobody is there to receive it.
        """
        text = json.dumps(fields, separators=(",", ":")).encode()
        header = _HEADER.pack(len(text), len(tail))
        try:
            if fds:
                socket.send_fds(self._socket, [header], list(fds))
            else:
                self._socket.sendall(header)
            self._socket.sendall(text)
            if tail:
                self._socket.sendall(tail)
        except TimeoutError as error:
            raise ChannelTimeout("the other side does not read") from error
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, *, deadline: float | None = None, with_fds: bool = False) -> Message:
        """Waits for one message, until `deadline` on the monotonic clock.

        Descriptors are accepted only `with_fds`: a confined process has no business sending any.

        Raises:
            ChannelClosed: the other side closed before a whole message.
            ChannelTimeout: the deadline passed.
            MalformedMessage: it is larger than allowed, or is not a JSON object.
        """
        fds: list[int] = []
        try:
            header = self._exactly(_HEADER.size, deadline, fds if with_fds else None)
            text_size, tail_size = _HEADER.unpack(header)
            if text_size > _MAX_JSON_BYTES or tail_size > _MAX_TAIL_BYTES:
                raise MalformedMessage(f"a message of {text_size} + {tail_size} bytes")
            text = self._exactly(text_size, deadline, None)
            tail = bytes(self._exactly(tail_size, deadline, None)) if tail_size else b""
            try:
                fields = json.loads(bytes(text))
            except (ValueError, RecursionError) as error:
                raise MalformedMessage("not JSON") from error
            if not isinstance(fields, dict):
                raise MalformedMessage("not a JSON object")
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return Message(fields, tail, fds)

    def _exactly(self, size: int, deadline: float | None, fds: list[int] | None) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            self._socket.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
            try:
                if fds is not None and filled == 0:
                    chunk, received, _, _ = socket.recv_fds(self._socket, size, _MAX_FDS)
                    fds.extend(received)
                    view[: len(chunk)] = chunk
                    count = len(chunk)
                else:
                    count = self._socket.recv_into(view[filled:])
            except TimeoutError as error:
                raise ChannelTimeout("no answer in time") from error
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if count == 0:
                raise ChannelClosed("the other side closed")
            filled += count
        return data


def channel_pair() -> tuple[Channel, socket.socket]:
    """A channel, and the socket for the other side."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs


class ArrayLayout(NamedTuple):
    """Where one array lies in shared memory."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * np.dtype(self.dtype).itemsize


class SharedArrays:
    """Arrays in one piece of anonymous memory that another process can map.

    The memory lives as long as somebody maps it or holds its descriptor; nothing is left in the file system.
    """

    def __init__(self, fd: int, layouts: Sequence[ArrayLayout]) -> None:
        """Takes over `fd`. Use `allocate` or `open` instead."""
        self.fd = int(fd)
        self.layouts = tuple(layouts)
        self._mappings: dict[bool, mmap.mmap] = {}

    @classmethod
    def allocate(cls, specs: Sequence[tuple[str, tuple[int, ...]]]) -> Self:
        """Zero-filled memory for arrays of the given dtype names and shapes."""
        layouts: list[ArrayLayout] = []
        offset = 0
        for dtype, shape in specs:
            layout = ArrayLayout(dtype, tuple(int(extent) for extent in shape), offset)
            layouts.append(layout)
            offset += -(-max(layout.nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        fd = _anonymous_file()
        try:
            os.ftruncate(fd, max(offset, _ALIGNMENT))
        except OSError:
            os.close(fd)
            raise
        return cls(fd, layouts)

    @classmethod
    def copy_of(cls, arrays: Sequence[np.ndarray]) -> Self:
        """Memory that holds copies of `arrays`."""
        shared = cls.allocate([(array.dtype.name, array.shape) for array in arrays])
        for target, array in zip(shared.arrays(writable=True), arrays, strict=True):
            np.copyto(target, array)
        return shared

    @classmethod
    def open(cls, fd: int, layouts: Sequence[Sequence[Any]]) -> Self:
        """Somebody else's arrays: takes over `fd`, received with the layouts that `describe` gave."""
        return cls(
            fd, [ArrayLayout(str(dtype), tuple(shape), int(offset)) for dtype, shape, offset in layouts]
        )

    def describe(self) -> list[list[Any]]:
        """The layouts as plain JSON."""
        return [[layout.dtype, list(layout.shape), layout.offset] for layout in self.layouts]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(layout.nbytes for layout in self.layouts)

    def arrays(self, *, writable: bool = False, whole: bool = True) -> list[np.ndarray]:
        """NumPy views of the memory, in order; they keep it mapped on their own.

        Args:
            writable: whether they can be written.
            whole: whether most of it will be used; if not, nothing is made ready in advance.

        Raises:
            ValueError: an array does not lie inside the memory.
        """
        mapping = self._mapping(writable, whole)
        size = len(mapping)
        views = []
        for layout in self.layouts:
            if layout.offset < 0 or layout.offset + layout.nbytes > size:
                raise ValueError(
                    f"an array of {layout.nbytes} bytes at {layout.offset} in {size} bytes of memory"
                )
            flat = np.frombuffer(mapping, dtype=np.uint8, count=layout.nbytes, offset=layout.offset)
            views.append(flat.view(np.dtype(layout.dtype)).reshape(layout.shape))
        return views

    def _mapping(self, writable: bool, whole: bool) -> mmap.mmap:
        """The memory, mapped once for each kind of access.

        `whole` maps all of its pages at once: the first touch of each would cost more than what is then done with it.
        """
        mapping = self._mappings.get(writable)
        if mapping is None:
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if whole else 0)
            mapping = mmap.mmap(self.fd, os.fstat(self.fd).st_size, flags=flags, prot=protection)
            self._mappings[writable] = mapping
        return mapping

    def read_only_fd(self) -> int:
        """A second descriptor through which the memory cannot be changed; the caller closes it.

        Where the system offers none, a duplicate of the first.
        """
        try:
            return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return os.dup(self.fd)

    def close(self) -> None:
        """Gives up the descriptor; arrays already taken stay valid."""
        self._mappings.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        """Closes what an error left open."""
        self.close()

    def __enter__(self) -> Self:
        """Closes on exit."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("arrays", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
