"""What can go wrong at the edge of the memory, each with a message that says what to do."""

from __future__ import annotations


class MemoryStoreError(Exception):
    """Anything wrong with what outlives a run; the message is one line, fit for a user."""


class HomeError(MemoryStoreError):
    """The home folder cannot be made, read or written."""


class EmbedderError(MemoryStoreError):
    """An embedder is unknown, not installed, or its endpoint failed."""


class EmbedderMismatch(MemoryStoreError):
    """A store was built with another embedder than the one offered."""


class StoreError(MemoryStoreError):
    """The vector store cannot be opened or reached."""


class StoreBusy(StoreError):
    """Another process owns the vector store and does not share it."""


class LedgerError(MemoryStoreError):
    """The ledger cannot be opened, read or written."""


class LedgerVersionError(LedgerError):
    """The ledger was written by an older or newer version of the product."""


class UnknownRun(LedgerError):
    """No run, or more than one, goes by this id."""
