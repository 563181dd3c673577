"""A worker service that does, on request, what workers must survive or must not be able to do."""

import os
import signal
import threading
import time
from typing import Any

import numpy as np

from tools.channel import SharedArrays
from tools.sandbox import forbidden_attempts
from tools.worker import Answer, Fault, Operation


def preload() -> None:
    """Nothing to warm up."""


def operations() -> dict[str, Operation]:
    memory: list[Any] = []

    def remember(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        memory.append(fields["what"])
        return Answer({"memory": memory, "pid": os.getpid()})

    def double(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        source, target = arrays
        for value, into in zip(source.arrays(), target.arrays(writable=True), strict=True):
            np.multiply(value, 2, out=into)
        return Answer({}, tail[::-1])

    def overwrite_input(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        arrays[0].arrays(writable=True)[0][:] = 1
        return Answer()

    def sleep(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        time.sleep(fields["s"])
        return Answer()

    def spin(*_: Any) -> Answer:
        while True:
            pass

    def crash(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        signal.pthread_kill(threading.get_ident(), fields["signal"])
        return Answer()

    def leave(*_: Any) -> Answer:
        os._exit(7)

    def allocate(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        hoard = []
        while True:
            hoard.append(np.ones(1 << 20))

    def fail(*_: Any) -> Answer:
        raise Fault("compile_error", "err_example", "a finding", line=3, remedy="a remedy")

    def surprise(*_: Any) -> Answer:
        raise ZeroDivisionError("nobody\nexpected this")

    def recurse(*_: Any) -> Answer:
        return recurse()

    def look_around(*_: Any) -> Answer:
        files = []
        for fd in range(3, 256):
            try:
                os.fstat(fd)
            except OSError:
                continue
            files.append(fd)
        with open("here", "w") as file:
            file.write("x")
        return Answer({"environment": dict(os.environ), "files": files, "folder": os.getcwd()})

    def attempt(*_: Any) -> Answer:
        return Answer(forbidden_attempts())

    def fill_scratch(*_: Any) -> Answer:
        with open("large", "wb") as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
        return Answer()

    return {
        "remember": remember,
        "double": double,
        "overwrite_input": overwrite_input,
        "sleep": sleep,
        "spin": spin,
        "crash": crash,
        "leave": leave,
        "allocate": allocate,
        "fail": fail,
        "surprise": surprise,
        "recurse": recurse,
        "look_around": look_around,
        "attempt": attempt,
        "fill_scratch": fill_scratch,
    }
