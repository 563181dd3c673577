"""A deadline for code that never comes back to the tracer: an endless loop in a kernel's own Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DeadlinePassed(BaseException):
    """Raised inside the tracing thread; not an `Exception`, so that a kernel's ``except`` does not swallow it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `DeadlinePassed` in this thread if the block is still running after `seconds`.

    Python delivers it between two bytecodes, so a single call into C that never returns is not ended by it; the worker
    process that runs untrusted kernels is.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    guard = threading.Lock()
    state = {"running": True, "raised": False}

    def expire() -> None:
        with guard:
            if state["running"]:
                state["raised"] = True
                set_exception(thread, ctypes.py_object(DeadlinePassed))

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with guard:
            state["running"] = False
            if state["raised"]:
                set_exception(thread, None)  # in case it has not been delivered yet
        timer.cancel()
