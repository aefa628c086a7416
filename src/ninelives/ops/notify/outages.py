"""Outages: runs that have retried a step on the same error for long.

No single run has failed: each waits, and would go on without a person. But many of them on one error is a
state that people want to know. The document `notify/outages` holds when each outage began: so a restart does
not forget it, and two notifiers agree. An outage begins when a run began the step, also when no notifier ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.ops.notify.retries import RetryGroup, grouped
from ninelives.store import DocumentStore
from ninelives.views import documents

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

NAME = "notify/outages"
_LIVE = (State.CHECKPOINTED, State.RUNNING, State.PENDING)
_PAGE = 1000
_MOST_KINDS, _MOST_CHARACTERS, _SAID_CHARACTERS = 15, 100, 300  # so that the document is never too large
_GAP_MS = 120_000  # one that is not seen for so long is over; the next is another outage
_TOUCH_MS = 30_000


class Outage(Struct, frozen=True, kw_only=True):
    """Runs of one agent that retry one step on one kind of error: since when, how many, and an example."""

    agent: str
    step: str
    error: str
    since_ms: int
    seen_ms: int
    runs: int
    run: str
    said: str


def observe(store: AnyStore, now_ms: int) -> dict[str, Outage]:
    """Return the retries that are seen now, by their keys, each since when; and note them."""
    seen = _seen(_retrying(store))
    began: dict[str, int] = {}
    while True:
        known, version, written_ms = _read(store)
        lasting = {key: one for key, one in known.items() if one.seen_ms > now_ms - _GAP_MS}
        for key in [key for key in seen if key not in lasting and key not in began][:_MOST_KINDS]:
            began[key] = seen[key].since_ms(store)  # reads a journal: only of what is new
        since = began | {key: one.since_ms for key, one in lasting.items()}
        now = {
            key: _outage(one, min(since[key], now_ms), now_ms) for key, one in seen.items() if key in since
        }
        after = dict(sorted((lasting | now).items(), key=lambda pair: pair[1].since_ms)[:_MOST_KINDS])
        if after.keys() == known.keys() and (not after or now_ms < written_ms + _TOUCH_MS):
            return {key: one for key, one in after.items() if key in seen}
        try:
            store.write_document(NAME, msgspec.json.encode(after), version=version)
        except StaleDocument:
            continue  # another notifier has noted its own
        return {key: one for key, one in after.items() if key in seen}


def current(store: DocumentStore) -> dict[str, Outage]:
    """Return the outages as they were last noted."""
    return _read(store)[0]


def _read(store: DocumentStore) -> tuple[dict[str, Outage], int, int]:
    found = documents.find(store, NAME)
    if found is None:
        return {}, 0, 0
    return documents.decoded(found, dict[str, Outage]) or {}, found.version, found.changed_ms


def _retrying(store: AnyStore) -> Iterator[RunRow]:
    """Yield the runs that retry a step; when there is none, no run is read."""
    for agent in {group.agent for group in store.gauges().retrying}:
        after: int | None = None
        while True:
            page = store.list_runs(RunQuery(states=_LIVE, agent=agent, limit=_PAGE, after=after))
            yield from (run for run in page if run.retrying)
            if len(page) < _PAGE:
                break
            after = page[-1].number


def _seen(runs: Iterable[RunRow]) -> dict[str, RetryGroup]:
    return {
        blake2b("\0".join((one.agent, one.step, one.error)).encode(), digest_size=8).hexdigest(): one
        for one in grouped(runs)
    }


def _outage(group: RetryGroup, since_ms: int, now_ms: int) -> Outage:
    return Outage(
        agent=group.agent,
        step=group.step[:_MOST_CHARACTERS],
        error=group.error[:_MOST_CHARACTERS],
        since_ms=since_ms,
        seen_ms=now_ms,
        runs=len(group.runs),
        run=group.runs[0][1].id,
        said=group.said[:_SAID_CHARACTERS],
    )
