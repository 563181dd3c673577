"""Several runs that one command began: which of them are still to do, and what they may still spend together."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from memory_store.ledger import Ledger, RunRecord
from nodes.context import Caps, RunContext, Series

from .limits import left_of, used_by


def new_series(problems: Sequence[str], caps: Caps) -> Series:
    """A series that nothing has been done of."""
    return Series(
        id=f"series-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}",
        problems=tuple(problems),
        caps=caps,
    )


def series_of(record: RunRecord) -> Series | None:
    """The series that a run is a part of."""
    return RunContext.model_validate(record.settings).series


def runs_of(ledger: Ledger, series: Series) -> dict[str, RunRecord]:
    """The runs of a series by problem, for each the one begun last; replays are none of them."""
    found: dict[str, RunRecord] = {}
    for record in reversed(ledger.runs()):
        part = record.settings.get("series")
        if part and part["id"] == series.id:
            found[record.problems[0]] = record
    return found


def find_series(ledger: Ledger, text: str) -> Series | None:
    """The series whose id is, or alone begins with, `text`; None where there is none."""
    found = {part["id"]: part for one in ledger.runs() if (part := one.settings.get("series"))}
    fitting = [text] if text in found else [name for name in found if text and name.startswith(text)]
    return Series.model_validate(found[fitting[0]]) if len(fitting) == 1 else None


def limits_for(ledger: Ledger, series: Series, run_id: str | None) -> Caps:
    """What one run of a series may use in all: the series' limits less what its other runs have used.

    Args:
        ledger: where the runs are.
        series: with its limits.
        run_id: the run; None for one that is yet to begin.

    Raises:
        LimitReached: the others have left nothing.
    """
    others = [used_by(ledger, one.id) for one in runs_of(ledger, series).values() if one.id != run_id]
    return left_of(series.caps, others, "all problems together")
