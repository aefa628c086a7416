"""Deliver the outbox of one channel: claim, send, mark.

At least once, whatever dies: the claim is durable before anything leaves, and a claim without a mark is sent
again under the same id. So only a death between the sending and its mark sends a notice twice, and a receiver
that keeps ids knows it. A receiver that is away is tried with one notice at a time, at growing distances, for
as long as an item is open; other notices for a week.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ninelives.core.errors import StoreUnavailable
from ninelives.ops.notify.channels.attempt import AttemptOutcome, Send
from ninelives.ops.notify.config import ChannelSettings
from ninelives.ops.notify.entry import DROPPED, FAILED, FINAL, SENDING, SENT, WAITING, OutboxEntry
from ninelives.ops.notify.events import Sources
from ninelives.ops.notify.kinds import ITEMS
from ninelives.ops.notify.outbox import Outbox

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

GIVE_UP_MS = 7 * 86_400_000
_LONGEST_PAUSE_MS, _LONGEST_RETRY_MS = 60_000, 900_000
_STORE_PAUSE_SECONDS = 0.5

Report = Callable[[str], None]


def claim_ms(channel: ChannelSettings) -> int:
    """Return how long a claim holds: longer than an attempt can take."""
    return int(channel.timeout_seconds * 2_000) + 5_000


class Sender:
    """Sends what is due in one channel. One thread at a time."""

    def __init__(
        self,
        store: AnyStore,
        channel: ChannelSettings,
        outbox: Outbox,
        sources: Sources,
        send: Send,
        report: Report,
    ) -> None:
        self._store, self._channel, self._outbox = store, channel, outbox
        self._sources, self._send, self._report = sources, send, report
        self._failures = 0
        # A receiver's wish for quiet outlives the notifier that got it.
        self._quiet_until_ms = max((known.entry.pause_ms for _, known in outbox.all()), default=0)
        self.error = ""
        self.last_sent_ms = 0

    def drain(self, stop: threading.Event) -> None:
        """Send each notice that is due, once; end early when the receiver is away."""
        for name in self._outbox.due(self._store.read_clock()):
            now_ms = self._store.read_clock()
            if stop.is_set() or self._is_quiet(now_ms):
                return
            self._deliver(name, now_ms)

    def _is_quiet(self, now_ms: int) -> bool:
        # A time further off than any pause comes from a clock that was set back.
        return now_ms < self._quiet_until_ms <= now_ms + 86_400_000

    def _deliver(self, name: str, now_ms: int) -> None:
        known = self._outbox.get(name)
        if known is None or known.entry.state in FINAL:
            return
        notice = self._sources.notice(known.entry, self._channel)
        if notice is None:
            self._outbox.settle(name, _dropped)
            return
        began = time.monotonic()
        claimed = self._outbox.claim(name, now_ms)
        if claimed is None:
            return  # another notifier has it
        # CRASH: claimed, and nothing sent: the claim lapses, and the notice is sent by another process.
        if (time.monotonic() - began) * 1000 > claim_ms(self._channel) // 2:
            return  # we were stopped meanwhile; another notifier may have it by now
        outcome = self._send(notice)
        # CRASH: sent, and not marked: it is sent again, under the same id.
        self._mark(name, claimed, outcome)

    def _mark(self, name: str, claimed: OutboxEntry, outcome: AttemptOutcome) -> None:
        while True:
            try:
                now_ms = self._store.read_clock()
                if outcome.error:
                    self._refused(name, claimed, outcome, now_ms)
                else:
                    self._outbox.settle(name, partial(_sent, claimed=claimed, now_ms=now_ms))
            except StoreUnavailable:
                time.sleep(_STORE_PAUSE_SECONDS)  # without a mark it would be sent again
                continue
            break
        if outcome.error:
            return
        self._failures, self._quiet_until_ms, self.last_sent_ms = 0, 0, now_ms
        if self.error:
            self._report(f"channel {self._channel.name}: it takes notices again")
            self.error = ""

    def _refused(self, name: str, claimed: OutboxEntry, outcome: AttemptOutcome, now_ms: int) -> None:
        retry_ms = min(_LONGEST_RETRY_MS, 1_000 * 2 ** min(claimed.attempts, 20))
        retry_ms = max(int(retry_ms * random.uniform(0.5, 1)), int(outcome.pause_seconds * 1000))
        is_over = claimed.event.kind not in ITEMS and now_ms > claimed.event.at_ms + GIVE_UP_MS

        def change(entry: OutboxEntry) -> OutboxEntry | None:
            if entry.state != SENDING or entry.owner != claimed.owner or entry.attempts != claimed.attempts:
                return None  # the claim had lapsed, and another notifier went on
            return replace(
                entry,
                state=FAILED if is_over else WAITING,
                owner="",
                until_ms=0,
                next_ms=now_ms + retry_ms,
                pause_ms=now_ms + retry_ms if outcome.pause_seconds else 0,
                error=outcome.error[:200],
            )

        self._outbox.settle(name, change)
        if outcome.is_wide:
            self._failures += 1
            pause_ms = min(_LONGEST_PAUSE_MS, 500 * 2 ** min(self._failures, 10))
            pause_ms = max(int(pause_ms * random.uniform(0.5, 1)), int(outcome.pause_seconds * 1000))
            self._quiet_until_ms = now_ms + pause_ms
        if outcome.error != self.error:
            self._report(f"warning: channel {self._channel.name}: {outcome.error}; it is tried again")
        self.error = outcome.error


def _sent(entry: OutboxEntry, claimed: OutboxEntry, now_ms: int) -> OutboxEntry | None:
    """Mark as sent, even if another notifier has claimed it meanwhile: it has reached the receiver."""
    if entry.state in FINAL or entry.round != claimed.round:
        return None
    return replace(entry, state=SENT, owner="", until_ms=0, next_ms=0, pause_ms=0, sent_ms=now_ms, error="")


def _dropped(entry: OutboxEntry) -> OutboxEntry | None:
    if entry.state in FINAL:
        return None
    # A reminder that no person needs is no loss: its notice was sent.
    return replace(entry, state=SENT if entry.round else DROPPED, owner="", until_ms=0, next_ms=0, pause_ms=0)
