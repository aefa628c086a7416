"""The durable outbox of one channel: one document for each notice, and one for the channel.

`notify/out/CHANNEL/DIGEST` holds an `OutboxEntry`; `notify/channel/CHANNEL` a `ChannelProgress`. Every change
is a compare-and-set (docs/decisions/0025), so that of two notifiers one claims a notice, and the other sees
that.
This object holds what it last read; a write that finds another version reads that document again.

- A notice gets its document before the mark of what was searched moves past its event: none is lost.
- What is over is forgotten, so that the outbox is bounded, and only when it cannot be found again: its item
  is no longer open, or its run ended long before the mark.
- Totals stay exact: the channel's document counts those to be removed, and names them, before they are
  removed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import StaleDocument
from ninelives.core.model.document import Document
from ninelives.ops.notify import entry as entries
from ninelives.ops.notify.entry import (
    DROPPED,
    FAILED,
    FINAL,
    SENDING,
    SENT,
    WAITING,
    NoticeEvent,
    OutboxEntry,
)
from ninelives.store import DocumentStore
from ninelives.views import documents

OUT, CHANNEL = "notify/out/", "notify/channel/"
OVERLAP_MS = 600_000
"""A commit is seen later than the time that it bears: each search goes so far back behind the last."""
GRACE_MS = 3_600_000
"""How long a notice that is over is kept at least."""
_PAGE, _REMOVED_AT_ONCE = 1000, 500


class ChannelProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a channel's document.

    Runs that failed since `since_ms` are reported; all up to `searched_ms` have their documents. The totals
    are of notices whose documents were removed; `removing` names those that are being removed.
    """

    since_ms: int
    searched_ms: int
    sent: int = 0
    failed: int = 0
    dropped: int = 0
    removing: tuple[str, ...] = ()


class Known(Struct, frozen=True):
    """An entry as it was last read or written."""

    version: int
    entry: OutboxEntry
    changed_ms: int


class Outbox:
    """The notices of one channel. All methods may be called by any thread."""

    def __init__(self, store: DocumentStore, channel: str, owner: str, claim_ms: int) -> None:
        self._store, self.channel, self._owner, self._claim_ms = store, channel, owner, claim_ms
        self._prefix = f"{OUT}{channel}/"
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()
        self.unreadable = self._forgotten = 0

    # The channel's document ---------------------------------------------------------------------

    def open(self, since_ms: int) -> ChannelProgress:
        """Read the channel's document, and all notices; make it if the channel is new.

        `since_ms` counts only for a new channel: later starts continue where the last one was.
        """
        name = CHANNEL + self.channel
        first = ChannelProgress(since_ms=since_ms, searched_ms=since_ms)
        with suppress(StaleDocument):  # it is known
            self._store.write_document(name, msgspec.json.encode(first), version=0)
        self.reload()
        return self.progress()[0]

    def progress(self) -> tuple[ChannelProgress, int]:
        """Return the channel's document and its version."""
        found = documents.find(self._store, CHANNEL + self.channel)
        if found is None:  # removed by hand: as if the channel were new
            now_ms = self._store.read_clock()
            return ChannelProgress(since_ms=now_ms, searched_ms=now_ms), 0
        return msgspec.json.decode(found.body, type=ChannelProgress), found.version

    def advance(self, searched_ms: int) -> None:
        """Note that all events up to a moment, the present, have their documents."""
        while True:
            known, version = self.progress()
            # One that is far in the future was noted before the clock was set back.
            if searched_ms <= known.searched_ms <= searched_ms + OVERLAP_MS:
                return
            if self._write_progress(replace(known, searched_ms=searched_ms), version):
                return

    # Notices ------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Read all notices again: other notifiers change them too."""
        found: dict[str, Known] = {}
        unreadable, after = 0, ""
        while True:
            page = self._store.read_documents(self._prefix, after=after, limit=_PAGE)
            for document in page:
                known = _known(document)
                if known is None:
                    unreadable += 1
                else:
                    found[document.name] = known
            if len(page) < _PAGE:
                break
            after = page[-1].name
        with self._lock:
            for name, known in found.items():
                ours = self._known.get(name)
                # What was written here since that page was read is newer.
                if ours is not None and ours.version > known.version:
                    found[name] = ours
            self._known, self.unreadable = found, unreadable

    def first_ms(self, progress: ChannelProgress, now_ms: int) -> int:
        """Return from when on runs that failed are to be searched."""
        if progress.searched_ms > now_ms:  # the clock was set back
            return now_ms - OVERLAP_MS
        return max(progress.since_ms, progress.searched_ms - OVERLAP_MS)

    def has(self, event: NoticeEvent) -> bool:
        """Return whether an event has its document, as far as is known here."""
        return self._name(event) in self._known

    def put(self, event: NoticeEvent) -> None:
        """Make the document of an event, if there is none.

        If we die here: it is there, or the event is found again.
        """
        name = self._name(event)
        if name not in self._known:
            self._write(name, 0, OutboxEntry(event=event))

    def due(self, now_ms: int) -> list[str]:
        """Return the notices to send now: those that failed least first, and of them the oldest."""
        longest = self._claim_ms
        with self._lock:
            ready = [
                (known.entry.attempts, known.entry.event.at_ms, name)
                for name, known in self._known.items()
                if (known.entry.state == WAITING and known.entry.next_ms <= now_ms)
                or (
                    known.entry.state == SENDING
                    and entries.is_lapsed(known.entry, self._owner, now_ms, longest)
                )
            ]
        return [name for _, _, name in sorted(ready)]

    def get(self, name: str) -> Known | None:
        """Return a notice as it is known here."""
        return self._known.get(name)

    def all(self) -> list[tuple[str, Known]]:
        """Return all notices as they are known here."""
        with self._lock:
            return list(self._known.items())

    def claim(self, name: str, now_ms: int) -> OutboxEntry | None:
        """Take a notice that is due, for one attempt; None if another notifier has it.

        If we die here: it is claimed or not; a claim lapses.
        """
        known = self._known.get(name)
        if known is None:
            return None
        was = known.entry
        mine = replace(
            was,
            state=SENDING,
            attempts=was.attempts + 1,
            owner=self._owner,
            until_ms=now_ms + self._claim_ms,
            next_ms=0,
        )
        return mine if self._write(name, known.version, mine) else None

    def settle(self, name: str, change: Callable[[OutboxEntry], OutboxEntry | None]) -> None:
        """Change a notice as it is now in the store; None leaves it.

        If we die here: it is changed, or as it was.
        """
        while True:
            known = self._known.get(name)
            if known is None:
                return
            after = change(known.entry)
            if after is None or self._write(name, known.version, after):
                return

    # Forgetting ---------------------------------------------------------------------------------

    def forget(self, names: Iterable[str]) -> int:
        """Remove the documents of notices that are over, and count them; return how many.

        If we die here: they are counted and named in the channel's document, and the next call removes them.
        """
        progress, version = self.progress()
        self._remove(progress.removing)
        wanted = [name for name in names if self._is_over(name)][:_REMOVED_AT_ONCE]
        if not wanted and not progress.removing:
            return 0
        states = [self._known[name].entry.state for name in wanted]
        counted = replace(
            progress,
            sent=progress.sent + states.count(SENT),
            failed=progress.failed + states.count(FAILED),
            dropped=progress.dropped + states.count(DROPPED),
            removing=tuple(name.removeprefix(self._prefix) for name in wanted),
        )
        if not self._write_progress(counted, version):
            return 0  # another notifier forgets
        # CRASH: counted, and still there: the next call of forget removes those that are named.
        self._remove(counted.removing)
        return len(wanted)

    def totals(self) -> tuple[int, int]:
        """Return how many notices were ever sent, and how many were given up."""
        progress, _ = self.progress()
        forgotten = progress.sent + progress.failed + progress.dropped
        if forgotten != self._forgotten:
            self._forgotten = forgotten
            self.reload()  # another notifier may have removed some, which it has counted
        gone = {self._prefix + name for name in progress.removing}
        with self._lock:
            states = [known.entry.state for name, known in self._known.items() if name not in gone]
        return progress.sent + states.count(SENT), progress.failed + states.count(FAILED)

    def _is_over(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known.entry.state in FINAL

    def _remove(self, digests: Iterable[str]) -> None:
        for digest in digests:
            name = self._prefix + digest
            found = documents.find(self._store, name)
            if found is not None:
                try:
                    self._store.write_document(name, None, version=found.version)
                except StaleDocument:
                    continue  # another notifier removes it, too
            with self._lock:
                self._known.pop(name, None)

    # Documents ----------------------------------------------------------------------------------

    def _name(self, event: NoticeEvent) -> str:
        return self._prefix + entries.digest_of(event.id)

    def _write(self, name: str, version: int, entry: OutboxEntry) -> bool:
        """Write a notice; if it has changed since it was read, read it again and return False."""
        try:
            written = self._store.write_document(name, entries.encode(entry), version=version)
        except StaleDocument:
            found = documents.find(self._store, name)
            known = _known(found) if found is not None else None
            with self._lock:
                if known is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = known
            return False
        assert written is not None  # noqa: S101 (only a removal returns None)
        with self._lock:
            self._known[name] = Known(written.version, entry, written.changed_ms)
        return True

    def _write_progress(self, progress: ChannelProgress, version: int) -> bool:
        try:
            self._store.write_document(CHANNEL + self.channel, msgspec.json.encode(progress), version=version)
        except StaleDocument:
            return False
        return True


def _known(document: Document) -> Known | None:
    try:
        return Known(document.version, entries.decode(document.body), document.changed_ms)
    except msgspec.DecodeError:
        return None  # written by another version: not ours to send
