"""That metrics cannot be served on a machine, in the document `metrics/HOST`: `ninelives status` says it.

`up` starts the exporter again and again, so what was noted is renewed at least every half minute while it
fails. It lapses by itself: an exporter that is not wanted any more leaves no fault behind.
If we die here: the fault is noted or not, and the next start notes it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument
from ninelives.store import DocumentStore
from ninelives.views import documents

PREFIX = "metrics/"
LAPSE_MS = 120_000


class NotServed(Struct, frozen=True, kw_only=True):
    """The body of the document."""

    host: str
    fault: str
    at_ms: int


def note(store: DocumentStore, host: str, fault: str) -> None:
    """Note why metrics cannot be served on this host; "": they are served."""
    name = PREFIX + host
    found = documents.find(store, name)
    if not fault and found is None:
        return
    body = msgspec.json.encode(NotServed(host=host, fault=fault[:500], at_ms=store.read_clock()))
    try:
        store.write_document(name, body if fault else None, version=found.version if found else 0)
    except StaleDocument:
        return  # another exporter of this host has just noted something


def read_all(store: DocumentStore, now_ms: int) -> list[NotServed]:
    """Return where metrics cannot be served now."""
    found = (documents.decoded(one, NotServed) for one in store.read_documents(PREFIX))
    return [one for one in found if one is not None and now_ms - one.at_ms < LAPSE_MS]
