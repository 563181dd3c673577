"""What the ledger's sections share: the database they work on."""

from __future__ import annotations

from .database import Database


class Section:
    """A group of methods of the `Ledger` on one database."""

    _database: Database
