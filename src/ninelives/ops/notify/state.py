"""The document `notify/state`, for status and metrics: what each channel sent, and what waits.

    {"at_ms": 1793000000000, "by": "host|pid|token",
     "channels": {"ops": {"sent": 12, "failed": 0, "waiting": 1, "oldest_waiting_ms": 1792999990000,
                          "last_sent_ms": 1792999980000, "error": "the receiver answered 500"}}}

`sent` and `failed` (given up) only grow, over restarts and with several notifiers. `oldest_waiting_ms` is
when the oldest event that waits happened; 0: none waits. `error` is why the last attempt failed; empty: it
did not. `at_ms` is when a notifier last wrote it, at least every `HEARTBEAT_MS`: much older means that none
runs.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument
from ninelives.store import DocumentStore
from ninelives.views import documents

NAME = "notify/state"
HEARTBEAT_MS = 30_000


class ChannelState(Struct, frozen=True, kw_only=True):
    """What is known of one channel."""

    sent: int
    failed: int
    waiting: int
    oldest_waiting_ms: int
    last_sent_ms: int
    error: str


class NotifyState(Struct, frozen=True, kw_only=True):
    """The body of the document."""

    at_ms: int
    by: str
    channels: dict[str, ChannelState]


def read_state(store: DocumentStore) -> NotifyState | None:
    """Return the state as a notifier last wrote it; None if none ever ran."""
    return documents.read(store, NAME, NotifyState)[0]


def write_state(store: DocumentStore, state: NotifyState) -> None:
    """Write the state, if it says something new; channels of other notifiers are kept.

    If we die here: the old one is there, or the new one; it is only information.
    """
    known, version = documents.read(store, NAME, NotifyState)
    others = known.channels if known is not None else {}
    merged = {**others, **state.channels}
    if known is not None and merged == others and state.at_ms - known.at_ms < HEARTBEAT_MS // 2:
        return
    body = msgspec.json.encode(NotifyState(at_ms=state.at_ms, by=state.by, channels=merged))
    try:
        store.write_document(NAME, body, version=version)
    except StaleDocument:
        return  # another notifier has just written it
