"""Messages arrive whole or not at all; shared arrays cannot be made to lie outside their memory."""

import os
import socket
import struct
import threading
import time

import numpy as np
import pytest

from tools.channel import (
    Channel,
    ChannelClosed,
    ChannelTimeout,
    MalformedMessage,
    SharedArrays,
    channel_pair,
)


@pytest.fixture
def ends():
    ours, theirs = channel_pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(ends) -> None:
    ours, theirs = ends
    ours.send({"a": [1, "ü"]}, tail=b"\0" * 10)
    message = theirs.receive()
    assert message.fields == {"a": [1, "ü"]}
    assert message.tail == b"\0" * 10


def test_descriptors_that_nobody_asked_for_are_not_taken(ends) -> None:
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    read, write = os.pipe()
    ours.send({}, fds=[read])
    os.close(read)
    os.close(write)
    assert theirs.receive().fds == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_silence_ends_at_the_deadline(ends) -> None:
    with pytest.raises(ChannelTimeout):
        ends[1].receive(deadline=time.monotonic() + 0.02)


def test_a_message_sent_in_drips_ends_at_the_deadline(ends) -> None:
    ours, theirs = ends
    ours._socket.sendall(struct.pack("<II", 1000, 0))
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.01):
            ours._socket.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(ChannelTimeout):
        theirs.receive(deadline=time.monotonic() + 0.1)
    stop.set()
    thread.join()


def test_half_a_message_is_none(ends) -> None:
    ours, theirs = ends
    ours._socket.sendall(struct.pack("<II", 1000, 0) + b"{")
    ours.close()
    with pytest.raises(ChannelClosed):
        theirs.receive()


@pytest.mark.parametrize("text", [b"[]", b"{", b"\xff\xff", b"[" * 100_000])
def test_what_is_not_a_json_object_is_malformed(ends, text: bytes) -> None:
    ours, theirs = ends
    threading.Thread(target=ours._socket.sendall, args=(struct.pack("<II", len(text), 0) + text,)).start()
    with pytest.raises(MalformedMessage):
        theirs.receive()


def test_a_message_that_claims_gigabytes_is_not_waited_for(ends) -> None:
    ours, theirs = ends
    ours._socket.sendall(struct.pack("<II", 10, 1 << 31))
    with pytest.raises(MalformedMessage):
        theirs.receive()


def test_sending_to_nobody_says_so() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(ChannelClosed):
        Channel(ours).send({"x": "y" * 100_000})


def test_shared_arrays_cost_no_copy_and_survive_their_handle() -> None:
    shared = SharedArrays.allocate([("float32", (3, 4)), ("bfloat16", (5,))])
    written = shared.arrays(writable=True)
    written[0][1, 2] = 7
    read = shared.arrays()
    shared.close()
    assert read[0][1, 2] == 7
    assert read[1].dtype.name == "bfloat16"
    with pytest.raises(ValueError):
        read[0][0, 0] = 1


def test_layouts_that_reach_outside_are_refused() -> None:
    with SharedArrays.allocate([("float32", (4,))]) as shared:
        for layout in (["float32", [1 << 20], 0], ["float32", [4], 1 << 30], ["float32", [1], -8]):
            claimed = SharedArrays.open(os.dup(shared.fd), [layout])
            with claimed, pytest.raises(ValueError):
                claimed.arrays()


def test_the_read_only_descriptor_cannot_be_written_through() -> None:
    with SharedArrays.copy_of([np.zeros(4)]) as shared:
        claimed = SharedArrays.open(shared.read_only_fd(), shared.describe())
        with claimed, pytest.raises(PermissionError):
            claimed.arrays(writable=True)
