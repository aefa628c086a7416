"""What a replicator reports, in the document `replication/NAME`: status and metrics read it.

It is written every few seconds at most. If the process dies, the document stays as it was: readers compare
`written_ms` with the time, and add the difference to the lag.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import StaleDocument
from ninelives.store import DocumentStore
from ninelives.views import documents

PREFIX = "replication/"


class CopyReport(Struct, frozen=True, kw_only=True):
    """The body of the document. `lag_seconds`: the age of the oldest commit that may not be copied yet.

    `segments` and `errors` (by reason) only grow. `segment` and `digest` are the last one that was written.
    `is_refused`: nothing is copied, for the reason in `fault`; what else it says is of before.
    """

    destination: str
    owner: str
    written_ms: int
    lag_seconds: float = 0.0
    complete_ms: int = 0
    last_success_ms: int = 0
    segments: int = 0
    errors: dict[str, int] = {}
    segment: int = 0
    digest: str = ""
    snapshot_ms: int = 0
    damaged: tuple[str, ...] = ()
    fault: str = ""
    is_refused: bool = False


def read(store: DocumentStore, name: str) -> tuple[CopyReport | None, int]:
    """Return a replicator's last report, and the version of its document; 0: there is none."""
    return documents.read(store, PREFIX + name, CopyReport)


def write(store: DocumentStore, name: str, report: CopyReport) -> None:
    """Write a report. A write that another replicator overtook is given up: the next one follows soon."""
    _, version = read(store, name)
    try:
        store.write_document(PREFIX + name, msgspec.json.encode(report), version=version)
    except StaleDocument:
        return


def refuse(store: DocumentStore, name: str, destination: str, fault: str, now_ms: int) -> None:
    """Report that a replicator cannot begin; its lag grows from its last report on, or from now."""
    known, _ = read(store, name)
    if known is None:
        known = CopyReport(destination=destination, owner="", written_ms=now_ms)
    write(store, name, replace(known, fault=fault[:500], is_refused=True))
