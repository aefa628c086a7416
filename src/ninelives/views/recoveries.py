"""Entries of the recovery log for `ninelives recoveries`: each as text and as facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.store import Store
from ninelives.views.records_text import moment
from ninelives.views.recovery_text import text_of


class Told(Struct, frozen=True, kw_only=True):
    """An entry of the recovery log. Field names are stable: programs read them."""

    seq: int
    at: datetime
    kind: Happening
    run: str
    session: str
    text: str
    facts: Any


def recoveries(store: Store, run: str | None = None, limit: int = 50) -> list[Told]:
    """Return the last entries of the log, newest first: of one run or of all. Raises Corrupt."""
    return [_told(entry) for entry in store.read_log(run=run, limit=limit)]


def _told(entry: LogEntry) -> Told:
    return Told(
        seq=entry.seq,
        at=moment(entry.at_ms),
        kind=entry.kind,
        run=entry.run,
        session=entry.session,
        text=text_of(entry),
        facts=msgspec.json.decode(entry.body),
    )
