"""What there is to report, read from the store; and the notice of each, as things are when it is sent.

Nothing is reported because a process remembers it: open items, failed runs and outages are in the store. So a
notifier that was killed, or never ran, finds the same events again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.governance.halts import Halt, read_halts
from ninelives.ops.audit import Findings, read_last, read_walk
from ninelives.ops.notify import notice, outages
from ninelives.ops.notify.config import ChannelSettings
from ninelives.ops.notify.entry import NoticeEvent, OutboxEntry, make_id
from ninelives.ops.notify.kinds import AUDIT, FAILURE, HALT, ITEMS, OUTAGE, TEST, severity_of
from ninelives.ops.notify.notice import Notice, Style
from ninelives.views.counted import counted

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

_MOST_ITEMS, _PAGE, _MOST_RUNS = 50_000, 1000, 10_000


class Sources:
    """The events of a store."""

    def __init__(self, store: AnyStore, style: Style, outage_after_ms: int) -> None:
        self._store, self._style, self._outage_after_ms = store, style, outage_after_ms
        self._runs: dict[str, tuple[str, dict[str, str]]] = {}

    def items(self) -> list[NoticeEvent]:
        """Return the inbox items that are open."""
        return [self._of_item(item) for item in self._store.list_inbox(limit=_MOST_ITEMS)]

    def failures(self, since_ms: int) -> Iterator[NoticeEvent]:
        """Yield the runs that have failed since a moment."""
        after: int | None = None
        while True:
            query = RunQuery(states=(State.FAILED,), changed_since_ms=since_ms, limit=_PAGE, after=after)
            page = self._store.list_runs(query)
            for run in page:
                yield NoticeEvent(
                    id=make_id(self._store.identity, FAILURE, run.id, run.length),
                    kind=FAILURE,
                    about=run.id,
                    at_ms=run.changed_ms,
                    run=run.id,
                    agent=run.agent,
                    mark=run.length,
                )
            if len(page) < _PAGE:
                return
            after = page[-1].number

    def outages(self, now_ms: int) -> list[NoticeEvent]:
        """Return the outages that have lasted long enough."""
        found = outages.observe(self._store, now_ms)
        return [
            NoticeEvent(
                id=make_id(self._store.identity, OUTAGE, key, one.since_ms),
                kind=OUTAGE,
                about=key,
                at_ms=one.since_ms,
                agent=one.agent,
                mark=one.since_ms,
            )
            for key, one in found.items()
            if one.since_ms <= now_ms - self._outage_after_ms
        ]

    def audits(self) -> list[NoticeEvent]:
        """Return the audits, under way or the last, that have found faults."""
        return [
            NoticeEvent(
                id=make_id(self._store.identity, AUDIT, one.started_ms),
                kind=AUDIT,
                about=str(one.started_ms),
                at_ms=one.started_ms,
                mark=one.started_ms,
            )
            for one in self._faulty()
        ]

    def halts(self, now_ms: int) -> list[NoticeEvent]:
        """Return the halts that are in force."""
        return [
            NoticeEvent(
                id=make_id(self._store.identity, HALT, one.id, one.at_ms),
                kind=HALT,
                about=one.id,
                at_ms=one.at_ms,
                agent=one.agent or "",
                mark=one.at_ms,
            )
            for one in self._halted(now_ms)
        ]

    def _halted(self, now_ms: int) -> tuple[Halt, ...]:
        try:
            return read_halts(self._store, now_ms)
        except Corrupt:
            return ()  # every run says that it waits for halts that cannot be read

    def _faulty(self) -> list[Findings]:
        found = (read_walk(self._store), read_last(self._store))
        return [one for one in found if one is not None and one.faults]

    def test(self, now_ms: int) -> NoticeEvent:
        """Return the event of a test."""
        return NoticeEvent(id=make_id("", TEST, now_ms), kind=TEST, about="", at_ms=now_ms)

    def is_wanted(self, event: NoticeEvent, channel: ChannelSettings) -> bool:
        """Return whether a channel gets an event."""
        if event.kind not in channel.kinds or severity_of(event.kind) < channel.min_severity:
            return False
        if not channel.agents and not channel.labels:
            return True
        agent, labels = self._run_of(event)
        return (not channel.agents or agent in channel.agents) and channel.labels.items() <= labels.items()

    def notice(self, sent: OutboxEntry, channel: ChannelSettings) -> Notice | None:
        """Return the text of a notice; None when no person needs it any more."""
        event, style = sent.event, self._style
        if event.kind in ITEMS:
            found = self._store.list_inbox(item=event.about)
            run = self._row(event.run)
            return notice.of_item(style, sent, found[0], run, arguments=channel.arguments) if found else None
        if event.kind == FAILURE:
            run = self._row(event.run)
            is_same = run is not None and run.state is State.FAILED and run.length == event.mark
            return notice.of_failure(style, sent, run) if run is not None and is_same else None
        if event.kind == OUTAGE:
            one = outages.current(self._store).get(event.about)
            if one is None or one.since_ms != event.mark:
                return None
            since = f"{moment(one.since_ms):%Y-%m-%d %H:%M:%S}Z"
            runs = counted(one.runs, f"run of {one.agent} retries", f"runs of {one.agent} retry")
            what = f"{runs} {one.step} since {since}: {one.said}"
            facts = [("step", one.step), ("error", one.said), ("for example", one.run)]
            return notice.of_state(style, sent, what, facts, [["status"], ["show", one.run]])
        if event.kind == AUDIT:
            audit = next((one for one in self._faulty() if one.started_ms == event.mark), None)
            if audit is None:
                return None
            what = f"an audit of the store has found {counted(audit.faults, 'fault')}"
            known = [(fault.run or "store", fault.what) for fault in audit.found]
            return notice.of_state(style, sent, what, known, [["store", "verify"], ["status"]])
        if event.kind == HALT:
            return self._of_halt(sent)
        if event.kind == TEST:
            return notice.of_state(style, sent, "a test: this channel works", [], [["inbox"]])
        return None  # a kind of another version

    def _of_halt(self, sent: OutboxEntry) -> Notice | None:
        """Return the notice of a halt; None if it was lifted meanwhile."""
        in_force = self._halted(self._store.now_ms())
        one = next(
            (one for one in in_force if (one.id, one.at_ms) == (sent.event.about, sent.event.mark)), None
        )
        if one is None:
            return None
        facts = [("reason", one.reason), ("by", one.by)]
        if one.until_ms is not None:
            facts.append(("until", f"{moment(one.until_ms):%Y-%m-%d %H:%M:%S}Z"))
        return notice.of_state(
            self._style, sent, f"halted: {one.what}", facts, [["halts"], ["unhalt", one.id]]
        )

    def _of_item(self, item: Item) -> NoticeEvent:
        return NoticeEvent(
            id=make_id(self._store.identity, item.kind.value, item.id),
            kind=item.kind.value,
            about=item.id,
            at_ms=item.opened_ms,
            run=item.run,
        )

    def _run_of(self, event: NoticeEvent) -> tuple[str, dict[str, str]]:
        """Return the agent and the labels of an event's run."""
        if not event.run:
            return event.agent, {}
        known = self._runs.get(event.run)
        if known is None:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            row = self._row(event.run)
            known = (row.agent, row.labels) if row is not None else ("", {})
            self._runs[event.run] = known
        return known

    def _row(self, run: str) -> RunRow | None:
        try:
            return self._store.read_run(run)
        except Corrupt:
            return None  # the item or the failure is still worth a notice
