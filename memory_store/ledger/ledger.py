"""The ledger as one object."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .calls import Calls
from .copying import Copying
from .database import Database
from .events import Events
from .kernels import Kernels
from .recollections import Recollections
from .runs import Runs
from .search import Search


class Ledger(Runs, Kernels, Search, Calls, Recollections, Events, Copying):
    """Everything that happened, in SQL.

    Methods are short transactions, safe to call from any thread; they block, so asynchronous code calls
    them through `asyncio.to_thread`. Every write names its key, and the same key twice is one row: work
    done again after a kill changes nothing and sees the first answer.
    """

    def __init__(self, url: str, *, readonly: bool = False) -> None:
        """Open the ledger at a SQLAlchemy URL, `sqlite:////path/ledger.sqlite` or PostgreSQL.

        Args:
            url: where it lies.
            readonly: for a SQLite file that nobody writes meanwhile, such as a run kept as a fixture;
                leaves no trace beside it.

        Raises:
            LedgerVersionError: written by an older or newer version of the product.
            LedgerError: cannot be opened; says why.
        """
        self._database = Database(url, readonly=readonly)

    @property
    def place(self) -> str:
        """The file or server it lies in, without a password."""
        return self._database.place

    def close(self) -> None:
        """Release the connections."""
        self._database.close()

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
