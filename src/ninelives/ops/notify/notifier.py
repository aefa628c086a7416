"""The notifier: find what there is to report, put it into the outboxes, deliver them, until stopped.

The main thread searches the store; each channel has a thread that delivers, so that a receiver that hangs
holds up no other. It may be killed at any moment, and several may run, on any machines: what each does is in
documents, claimed before it is done. An error that is not the store's unavailability ends the process; a
supervisor starts it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, StoreUnavailable
from ninelives.ops.notify import kinds, outbox, sender
from ninelives.ops.notify.channels.choice import sender_for
from ninelives.ops.notify.config import ChannelSettings, Settings
from ninelives.ops.notify.entry import FINAL, SENT, WAITING, NoticeEvent, OutboxEntry, new_owner
from ninelives.ops.notify.events import Sources
from ninelives.ops.notify.notice import Style
from ninelives.ops.notify.outbox import Outbox
from ninelives.ops.notify.sender import Report, Sender
from ninelives.ops.notify.state import ChannelState, NotifyState, write_state
from ninelives.views.counted import counted

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

KEEP_MS = 86_400_000
"""How long the notice of a failed run is kept behind the mark of what was searched."""
_ADVANCE_MS, _FORGET_SECONDS, _RELOAD_SECONDS, _OUTAGE_SECONDS = 60_000, 60.0, 20.0, 15.0
_LEAST_PAUSE_SECONDS, _SHARE = 0.3, 20


class _Route:
    """One channel at work: its outbox, its sender, and the thread that waits for more."""

    def __init__(self, channel: ChannelSettings, outbox: Outbox, sender: Sender) -> None:
        self.channel, self.outbox, self.sender = channel, outbox, sender
        self.wake = threading.Event()
        self.fault: BaseException | None = None
        self.unwanted: set[str] = set()


class Notifier:
    """Reports to all channels of a configuration."""

    def __init__(
        self,
        store: AnyStore,
        settings: Settings,
        command: Callable[[Sequence[str]], str],
        report: Report,
        since_ms: int = 0,
    ) -> None:
        """Open the outboxes. `since_ms`: for channels that are new, report failures of that age, too."""
        self._store, self._settings, self._report = store, settings, report
        style = Style(store=store.url, command=command, dashboard_url=settings.dashboard_url)
        self._sources = Sources(store, style, settings.outage_after_ms)
        self._owner = new_owner()
        self._stop = threading.Event()
        self._due: dict[str, float] = {}
        self._open: set[str] | None = None  # until the inbox was read
        self._states: list[NoticeEvent] = []
        now_ms = store.read_clock()
        self._lines = [self._line(channel, now_ms - since_ms) for channel in settings.channels]

    def _line(self, channel: ChannelSettings, since_ms: int) -> _Route:
        send = sender_for(channel)
        box = Outbox(self._store, channel.name, self._owner, sender.claim_ms(channel))
        box.open(since_ms)
        if box.unreadable:
            unreadable = counted(box.unreadable, "notice is", "notices are")
            self._report(f"warning: channel {channel.name}: {unreadable} of another version")
        return _Route(channel, box, Sender(self._store, channel, box, self._sources, send, self._report))

    # All of it ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Report until the process ends. Raises what ends it: an error of the store, or of a thread."""
        for line in self._lines:
            threading.Thread(target=self._deliver, args=(line,), name="ninelives-notify", daemon=True).start()
        reported = ""
        while True:
            began = time.monotonic()
            try:
                self._tick()
                reported = ""
            except StoreUnavailable as error:
                if error.what != reported:
                    self._report(f"warning: {error.what}; waiting for it")
                reported = error.what
                time.sleep(self._settings.poll_seconds)
                continue
            for line in self._lines:
                if line.fault is not None:
                    raise line.fault
            took = time.monotonic() - began
            # A busy store wakes us all the time, and searching must stay a small share of its work.
            time.sleep(max(_LEAST_PAUSE_SECONDS, min(took * _SHARE, self._settings.poll_seconds)))
            with suppress(StoreUnavailable):
                self._store.wait_for_work(self._settings.poll_seconds)

    def once(self) -> dict[str, ChannelState]:
        """Search once, try each notice that is due once, and return what each channel did and what waits."""
        self._search()
        threads = []
        for line in self._lines:
            thread = threading.Thread(
                target=self._drain_once, args=(line,), name="ninelives-notify", daemon=True
            )
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        for line in self._lines:
            if line.fault is not None:
                raise line.fault
        self._forget()
        return self._write_state()

    def now_ms(self) -> int:
        """Return the store's time."""
        return self._store.read_clock()

    def test(self) -> dict[str, str]:
        """Send a test to each channel; return the error of each, empty where it was taken."""
        entry = OutboxEntry(event=self._sources.test(self._store.read_clock()))
        found = {}
        for line in self._lines:
            notice = self._sources.notice(entry, line.channel)
            if notice is not None:
                found[line.channel.name] = sender_for(line.channel)(notice).error
        return found

    # Threads ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_time("reload", _RELOAD_SECONDS):
            began = time.monotonic()
            for line in self._lines:
                line.outbox.reload()
            self._due["reload"] += (time.monotonic() - began) * _SHARE
        self._search()
        for line in self._lines:
            line.wake.set()
        if self._is_time("forget", _FORGET_SECONDS):
            self._forget()
        self._write_state()

    def _is_time(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if what in self._due and now < self._due[what]:
            return False
        self._due[what] = now + seconds
        return True

    def _deliver(self, line: _Route) -> None:
        while not self._stop.is_set():
            line.wake.wait(self._settings.poll_seconds)
            line.wake.clear()
            try:
                line.sender.drain(self._stop)
            except StoreUnavailable:
                self._stop.wait(_LEAST_PAUSE_SECONDS)  # the main thread reports it
            except BaseException as error:  # noqa: BLE001 (the main thread raises it)
                line.fault = error
                return

    def _drain_once(self, line: _Route) -> None:
        try:
            line.sender.drain(self._stop)
        except BaseException as error:  # noqa: BLE001 (the main thread raises it)
            line.fault = error

    # Searching ----------------------------------------------------------------------------------

    def _search(self) -> None:
        """Give each event its documents."""
        now_ms = self._store.read_clock()
        try:
            items = self._sources.items()
        except Corrupt as error:
            # Fail closed for reminders and forgetting; what else there is goes on.
            self._report(f"warning: the inbox cannot be read: {error}")
            items = []
        else:
            self._open = {event.id for event in items}
        if self._is_time("outages", min(_OUTAGE_SECONDS, self._settings.outage_after_ms / 2_000)):
            sources = self._sources
            self._states = [*sources.outages(now_ms), *sources.audits(), *sources.halts(now_ms)]
        known = {line.channel.name: line.outbox.progress()[0] for line in self._lines}
        first = {
            line.channel.name: line.outbox.first_ms(known[line.channel.name], now_ms) for line in self._lines
        }
        failures = list(self._sources.failures(min(first.values())))
        for line in self._lines:
            progress = known[line.channel.name]
            recent = [event for event in failures if event.at_ms >= first[line.channel.name]]
            self._put(line, [*items, *self._states, *recent])
            # CRASH: documents, and the mark not moved: the same events are found again, with their documents.
            if abs(now_ms - progress.searched_ms) > _ADVANCE_MS:
                line.outbox.advance(now_ms)
        self._remind(items, now_ms)

    def _put(self, line: _Route, events: Sequence[NoticeEvent]) -> None:
        unwanted: set[str] = set()
        for event in events:
            if line.outbox.has(event):
                continue
            if event.id in line.unwanted or not self._sources.is_wanted(event, line.channel):
                unwanted.add(event.id)
            else:
                line.outbox.put(event)
                line.wake.set()
        line.unwanted = unwanted

    def _remind(self, items: Sequence[NoticeEvent], now_ms: int) -> None:
        """Send items again, and further up, that are open for longer than their channel allows."""
        by_name = {line.channel.name: line for line in self._lines}
        open_now = {event.id for event in items}
        for line in self._lines:
            if not line.channel.remind_ms:
                continue
            for name, known in line.outbox.all():
                entry = known.entry
                is_late = entry.state == SENT and entry.sent_ms + line.channel.remind_ms <= now_ms
                if entry.event.id not in open_now or not is_late:
                    continue
                for other in line.channel.then:
                    by_name[other].outbox.put(entry.event)
                # CRASH: further up, and not reminded: the same again, and the documents are there.
                line.outbox.settle(name, partial(_reminded, sent_ms=entry.sent_ms))

    # Forgetting and counting --------------------------------------------------------------------

    def _forget(self) -> None:
        """Remove notices that are over and cannot be found again."""
        if self._open is None:
            return
        now_ms = self._store.read_clock()
        held = {event.id for event in self._states} | self._open
        for line in self._lines:
            searched_ms = line.outbox.progress()[0].searched_ms
            over = []
            for name, known in line.outbox.all():
                event = known.entry.event
                if known.entry.state not in FINAL or known.changed_ms > now_ms - outbox.GRACE_MS:
                    continue
                if event.kind == kinds.FAILURE:
                    is_gone = event.at_ms < searched_ms - KEEP_MS
                else:
                    is_gone = event.id not in held
                if is_gone:
                    over.append(name)
            line.outbox.forget(over)

    def _write_state(self) -> dict[str, ChannelState]:
        found = {line.channel.name: _state_of(line) for line in self._lines}
        now_ms = self._store.read_clock()
        write_state(self._store, NotifyState(at_ms=now_ms, by=self._owner, channels=found))
        return found


def _reminded(entry: OutboxEntry, sent_ms: int) -> OutboxEntry | None:
    if entry.state != SENT or entry.sent_ms != sent_ms:
        return None  # another notifier has reminded
    return replace(entry, state=WAITING, round=entry.round + 1, attempts=0, next_ms=0)


def _state_of(line: _Route) -> ChannelState:
    sent, failed = line.outbox.totals()
    waiting = [known.entry for _, known in line.outbox.all() if known.entry.state not in FINAL]
    error = line.sender.error or next((one.error for one in waiting if one.error), "")
    last = [known.entry.sent_ms for _, known in line.outbox.all()]
    return ChannelState(
        sent=sent,
        failed=failed,
        waiting=len(waiting),
        oldest_waiting_ms=min((one.event.at_ms for one in waiting), default=0),
        last_sent_ms=max([line.sender.last_sent_ms, *last]),
        error=error,
    )
