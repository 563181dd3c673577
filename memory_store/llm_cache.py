"""The response cache of language models, the one use of langchain-community here.

That package is sunset upstream; without it everything works, only nothing is cached.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from langchain_core.caches import BaseCache

from .errors import HomeError


def open_llm_cache(path: Path) -> BaseCache | None:
    """The cache in the SQLite file at `path`, or None where langchain-community is not installed.

    An answered prompt costs nothing the second time, whichever run asks. The key is the prompt and the
    model's settings, so several samples of one prompt are one answer unless something in the settings, such
    as a seed, tells them apart.

    Raises:
        HomeError: the file cannot be made or opened.
    """
    with warnings.catch_warnings():
        # Announced at import: sunset. It is known, and a user can do nothing about it.
        warnings.simplefilter("ignore")
        try:
            from langchain_community.cache import SQLiteCache
        except ImportError:
            return None
    # Told at every answer that is found; what it asks for is an argument of a call inside that package.
    warnings.filterwarnings("ignore", message="The default value of `allowed_objects`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            cache = SQLiteCache(database_path=str(path))
            with cache.engine.connect() as connection:
                # Readers and a writer at once, which runs side by side are.
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return cache
        except Exception as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise HomeError(f"cannot open the response cache {path}: {reason}") from error
