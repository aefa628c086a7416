"""Follow the journals: what runs have recorded, and how they ended, is added to the audit log.

Workers log nothing of a run themselves, so a step costs nothing for it. One process at a time follows
(`follow`); it may die anywhere, and two at once do no harm. Documents:

- `auditlog/follower`: a `FollowerState`: up to which moment all ended runs are in the log, the cursor among
  changed runs, and the batch that is being added, fixed before any of it is in the log.
- `auditlog/run/DIGEST`: a `Followed`, of each run with entries: up to which record it is in the log, and
  whether its end is. Written after the entries, and before the next batch: what the batch says is done again.

If we die here: the next follower adds what the batch lacks, notes how far its runs are, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, LeaseLost, StaleDocument, UnknownRun, UsageError
from ninelives.core.model.capsule import Changes, RunMark
from ninelives.core.model.run import Journal, RunRow
from ninelives.governance.audit_log import tiles
from ninelives.governance.audit_log.entries import add_all, digest_of, finish_open, is_on
from ninelives.governance.audit_log.journal_facts import end_entry, entries_of
from ninelives.governance.audit_log.tiles import PREFIX
from ninelives.store import DocumentStore
from ninelives.stores.encrypted.marker import stored_in
from ninelives.views import documents

FOLLOWER, RUN = f"{PREFIX}follower", f"{PREFIX}run/"
LATE_MS = 60_000
"""A run counts as logged only if it ended so long before the last pass: servers' transactions become visible
later than their times, and clocks are set."""
_BATCH_ENTRIES, _BATCH_BYTES = 64, 24 * 1024
_PAGE = 500
_ATTEMPTS = 20
_REMEMBERED = 100_000


class Followable(DocumentStore, Protocol):
    """What is needed of a store."""

    def read_run(self, run: str) -> RunRow | None: ...
    def load_journal(self, run: str, *, since: int | None = None) -> Journal: ...
    def changed_runs(self, cursor: str = "", *, limit: int = 1000) -> Changes: ...


class Followed(Struct, frozen=True, kw_only=True):
    """How far a run is in the log; `created_ms` differs when its id was used again."""

    created_ms: int
    length: int
    is_ended: bool


class FollowerBatch(Struct, frozen=True, kw_only=True):
    """Entries to be added, the last tile when they were fixed, and how far their runs are with them."""

    tile: int
    entries: list[Raw]
    runs: dict[str, Followed]


class FollowerState(Struct, frozen=True, kw_only=True):
    """The body of `auditlog/follower`. Runs that ended before `through_ms` are in the log; see `LATE_MS`."""

    through_ms: int = 0
    cursor: str = ""
    batch: FollowerBatch | None = None


class Follower:
    """Adds to the log what the journals have. `progress` is called often."""

    def __init__(self, store: Followable, *, progress: Callable[[int, int], object] | None = None) -> None:
        # As they are kept: the log has digests of what is stored, and opens nothing that is encrypted.
        self._store, self._progress = stored_in(store), progress
        self._lengths: dict[str, tuple[int, bool]] = {}
        self._state, self._version = FollowerState(), 0
        self._entries: list[bytes] = []
        self._runs: dict[str, Followed] = {}
        self._read = 0

    def follow(self) -> int:
        """Add all that runs have recorded up to now; return how many entries these were.

        Does nothing if the log is off. Raises LeaseLost if another process follows meanwhile.
        """
        if not is_on(self._store):
            return 0
        try:
            return self._follow()
        except BaseException:
            self._lengths.clear()  # what was read may not be in the log
            raise

    def _follow(self) -> int:
        finish_open(self._store)
        self._state, self._version = read_state(self._store)
        if self._state.batch is not None:
            self._add(self._state.batch)
        self._entries, self._runs, self._read, added = [], {}, 0, 0
        began_ms = self._store.read_clock()
        while True:
            changes = self._changes()
            for mark in changes.runs:
                added += self._take(mark)
                self._read += 1
            self._report()
            if changes.is_whole:
                break
            # The next page comes by this cursor; it is kept when all before it is in the log.
            added += self._flush()
            self._state = replace(self._state, cursor=changes.cursor)
        added += self._flush()
        self._put(FollowerState(through_ms=began_ms, cursor=changes.cursor))
        return added

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._read, self._read)

    def _changes(self) -> Changes:
        try:
            return self._store.changed_runs(self._state.cursor, limit=_PAGE)
        except UsageError:  # a cursor of the store that this one was copied from: all runs, from the first
            self._state = replace(self._state, cursor="")
            return self._store.changed_runs("", limit=_PAGE)

    def _take(self, mark: RunMark) -> int:
        """Put into the batch what is new of a run; return how many entries were added to make room."""
        seen = mark.length, mark.is_final
        if self._lengths.get(mark.id) == seen:
            return 0
        known = read_followed(self._store, mark.id)
        if known is not None and known.created_ms != mark.created_ms:
            known = None
        added = 0
        if known is None or (known.length, known.is_ended and mark.is_final) != seen:
            for entry, followed in self._news(mark, known.length if known is not None else 0):
                if len(self._entries) >= _BATCH_ENTRIES or sum(map(len, self._entries)) >= _BATCH_BYTES:
                    added += self._flush()
                self._entries.append(entry)
                self._runs[mark.id] = followed
        if len(self._lengths) >= _REMEMBERED:
            self._lengths.clear()
        self._lengths[mark.id] = seen
        return added

    def _news(self, mark: RunMark, since: int) -> Iterator[tuple[bytes, Followed]]:
        """Yield the entries of a run from a record on, and how far the run is with each."""
        try:
            journal = self._store.load_journal(mark.id, since=0 if mark.is_final else since)
        except UnknownRun:
            return  # pruned meanwhile: its end was in the log before that
        except Corrupt as error:
            with suppress(Corrupt):  # its row too: `verify` names it
                row = self._store.read_run(mark.id)
                if row is not None and row.state.is_final:
                    yield end_entry(row, (), error.what), _ended(row)
            return
        run = journal.run
        for number, entry in entries_of(run, [one for one in journal.records if one.seq >= since]):
            yield entry, Followed(created_ms=run.created_ms, length=number + 1, is_ended=False)
        if run.state.is_final and journal.first + len(journal.records) == run.length:
            yield end_entry(run, journal.records), _ended(run)

    def _flush(self) -> int:
        """Add the batch to the log: first fix it, so that whatever dies, each entry is added once."""
        if not self._entries:
            return 0
        batch = FollowerBatch(
            tile=tiles.last_tile(self._store).number,
            entries=[Raw(one) for one in self._entries],
            runs=self._runs,
        )
        self._put(replace(self._state, batch=batch))
        # CRASH: a batch that is fixed, and in part in the log: the next follower adds the rest.
        self._add(batch)
        self._entries, self._runs = [], {}
        self._report()
        return len(batch.entries)

    def _add(self, batch: FollowerBatch) -> None:
        add_all(self._store, [bytes(one) for one in batch.entries], batch.tile)
        for run, followed in batch.runs.items():
            # CRASH: in the log, and some of its runs are not noted: the batch is still there, and done again.
            _note(self._store, run, followed)

    def _put(self, state: FollowerState) -> None:
        try:
            written = self._store.write_document(FOLLOWER, msgspec.json.encode(state), version=self._version)
        except StaleDocument as error:
            raise LeaseLost(f"another process follows the journals: {error}") from error
        self._state, self._version = state, written.version if written is not None else 0


def catch_up(store: Followable, *, progress: Callable[[int, int], object] | None = None) -> int:
    """Follow once, also while other processes do; return how many entries this process added.

    Raises LeaseLost if others are always quicker.
    """
    for _ in range(_ATTEMPTS):
        with suppress(LeaseLost):
            return Follower(store, progress=progress).follow()
    return Follower(store, progress=progress).follow()


def read_state(store: DocumentStore) -> tuple[FollowerState, int]:
    """Return how far the follower is, and the version to write it with. Raises Corrupt."""
    found = documents.find(store, FOLLOWER)
    known = tiles.strictly(found, FollowerState)
    return known or FollowerState(), found.version if found is not None else 0


def read_followed(store: DocumentStore, run: str) -> Followed | None:
    """Return how far a run is in the log; None if nothing of it is."""
    return tiles.strictly(documents.find(store, RUN + digest_of(run)), Followed)


def logged_before_ms(store: DocumentStore) -> int | None:
    """Return before which moment all runs that ended are in the log; None if the log is off."""
    return max(0, read_state(store)[0].through_ms - LATE_MS) if is_on(store) else None


def _note(store: DocumentStore, run: str, followed: Followed) -> None:
    name = RUN + digest_of(run)
    while True:
        found = documents.find(store, name)
        known = tiles.strictly(found, Followed)
        if known is not None and _rank(known) >= _rank(followed):
            return
        try:
            version = found.version if found is not None else 0
            store.write_document(name, msgspec.json.encode(followed), version=version)
        except StaleDocument:
            continue
        return


def _ended(run: RunRow) -> Followed:
    return Followed(created_ms=run.created_ms, length=run.length, is_ended=True)


def _rank(one: Followed) -> tuple[int, int, bool]:
    return one.created_ms, one.length, one.is_ended
