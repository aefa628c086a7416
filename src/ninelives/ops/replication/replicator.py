"""Copies what has changed in a store to a bucket, again and again, until it is stopped or fenced.

A pass lists what may have changed, reads each such run at one moment, and writes segments. Then everything
that was committed before the pass began is copied. Between passes it adds a part of a snapshot of all runs.
With a whole snapshot, a restore need not begin at the first segment, and old segments can be removed. Writers
of the store are never held up.

If we die here: segments are whole or absent; the next replicator reads from their headers what is copied.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from ninelives.core.errors import Corrupt, NineLivesError, StoreUnavailable, UsageError
from ninelives.core.model.capsule import Capsule, RunMark
from ninelives.core.model.document import STORE_ID, Document
from ninelives.ops.metrics import listening
from ninelives.ops.replication import chain, progress, segment, term
from ninelives.ops.replication.bucket import Bucket, BucketUnavailable, NameTaken
from ninelives.ops.replication.chain import Base
from ninelives.ops.replication.copied import Copied, behind
from ninelives.ops.replication.opening import require_conditions
from ninelives.ops.replication.progress import CopyReport
from ninelives.ops.replication.segment import BlobContent, Copy, Fact, LooseKey, Part, SegmentHeader
from ninelives.ops.transfer.export import WholeStore, parts
from ninelives.stores.encrypted.marker import stored_in
from ninelives.views import documents
from ninelives.views.counted import counted

NOT_COPIED = (progress.PREFIX, progress.CHAINS, listening.PREFIX, "periodic/", "restore/", STORE_ID)
"""Documents that mean nothing in a copy: claims of processes, and what names the store itself."""
CACHED, _PAGE = "cache/", 100
_SEGMENT_BYTES, _SEGMENT_RUNS = 8 << 20, 2_000
_SWEEP_SECONDS, _SWEEP_RUNS = 1.0, 200
_REPORT_MS, _LONGEST_PAUSE_SECONDS = 3_000, 15.0
_COUNT_MS, _DAY_MS = 60_000, 86_400_000
_log = logging.getLogger("ninelives.replication")
Answer = TypeVar("Answer")
Wait = Callable[[float], bool]
"""Waits for seconds; returns whether to stop."""


class Options(Struct, frozen=True, kw_only=True):
    """How often to copy, how often to make a snapshot, how long to keep what is old.

    Without a name nothing is reported to the store: a backup that is made once has no lag.
    """

    name: str = "default"
    every_seconds: float = 1.0
    snapshot_ms: int = 3_600_000
    keep_ms: int = 7 * _DAY_MS
    is_fenced: bool = True


class Batch:
    """The parts of the next segment."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.copies: dict[str, Copy] = {}
        self.documents: dict[str, int] = {}
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Return whether the segment should be written now."""
        return self.size >= _SEGMENT_BYTES or len(self.copies) >= _SEGMENT_RUNS


class Replicator:
    """Copies one store to one bucket; `open` takes the bucket's term, `copy` makes a pass."""

    def __init__(
        self, store: WholeStore, bucket: Bucket, options: Options, wait: Wait, tries: int | None = None
    ) -> None:
        """With `tries`, give up after so many failures in a row, instead of trying on."""
        self._store, self._bucket, self._options = stored_in(store), bucket, options
        self._wait, self._tries = wait, tries
        self._end = progress.ChainEnd(self._store, bucket.location)
        self._copied, self._batch = Copied(), Batch()
        self._cursor = self._sweep = self._digest = self._store_id = ""
        self._listed: dict[str, RunMark] = {}
        self._number = 1
        self._generation = self._completed = self._snapshot_ms = self._complete_ms = 0
        self._is_sweeping = True
        self._damaged: set[str] = set()
        self._errors: dict[str, int] = {}
        self._segments = self._reported_ms = self._renewed_ms = self._counted_ms = self._succeeded_ms = 0
        self._fault = ""

    @property
    def is_open(self) -> bool:
        """Return whether it has taken the bucket's term."""
        return hasattr(self, "_term")

    @property
    def is_complete(self) -> bool:
        """Return whether the bucket has a whole copy, and no snapshot is being made."""
        return not self._is_sweeping

    @property
    def report(self) -> CopyReport:
        """Return what to report now."""
        now_ms = self._store.read_clock()
        since = self._complete_ms or self._snapshot_ms or now_ms
        return CopyReport(
            destination=self._bucket.url,
            owner=self._term.term.owner,
            written_ms=now_ms,
            lag_seconds=max(0, now_ms - since) / 1000,
            complete_ms=self._complete_ms,
            last_success_ms=self._succeeded_ms,
            segments=self._segments,
            errors=self._errors,
            segment=self._number - 1,
            digest=self._digest,
            snapshot_ms=self._snapshot_ms,
            damaged=tuple(sorted(self._damaged))[:20],
            fault=self._fault,
        )

    # Beginning ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the bucket's term and learn what is copied.

        Raises Fenced; UsageError for a bucket or a store that does not fit; Corrupt.
        """
        if self._options.is_fenced:
            self._patiently(lambda: require_conditions(self._bucket))
        self._list_all()
        owner = term.new_owner()
        self._term = self._patiently(
            lambda: term.take(self._bucket, self._store_id, self._store.read_clock(), owner)
        )
        while True:
            try:
                self._patiently(lambda: self._resume(list(self._listed.values())))
            except (UsageError, Corrupt):
                # The one that may copy there must not wait until our term lapses.
                with suppress(term.Fenced, BucketUnavailable):
                    self._term.give_back(self._store.read_clock())
                raise
            try:
                # It takes the next number away from any replicator before us, stopped or slow.
                self._write()
            except term.Fenced:
                known = self._patiently(lambda: term.read(self._bucket))
                if known is None or known.owner != self._term.term.owner:
                    raise
                continue  # the one before us wrote a last segment: it belongs to the chain
            return

    def _list_all(self) -> None:
        """Add what may have changed to what is to be copied. It stays there until it was read."""
        while True:
            found = self._store.changed_runs(self._cursor)
            self._listed |= {mark.id: mark for mark in found.runs}
            self._cursor, self._store_id = found.cursor, found.store
            if found.is_whole:
                return

    def _resume(self, marks: list[RunMark]) -> None:
        """Learn from the bucket what is copied, and compare it with the store."""
        bucket, now_ms = self._bucket, self._store.read_clock()
        there, bases = chain.numbers(bucket), chain.bases(bucket)
        said, _ = progress.read(self._store, self._options.name)
        known = said if said is not None and said.destination == bucket.url else None
        self._segments, self._errors = (known.segments, known.errors) if known else (0, {})
        last = chain.load(bucket, there[-1]) if there else None
        if known is not None and known.segment > (there[-1] if there else 0):
            raise _bucket_behind(bucket, known.segment)
        if last is None:
            self._end.learn(0, "")
            self._begin_snapshot(1, now_ms)
            return
        term.require_store(bucket, last.header.store, self._store_id)
        if known is not None and known.segment == last.header.number and known.digest != last.digest:
            raise _bucket_behind(bucket, known.segment)
        self._number, self._digest = last.header.number + 1, last.digest
        done = [one for one in bases if one.first == last.header.generation]
        self._completed = bases[-1].first if bases else 0
        start = self._completed or there[0]
        if there[0] > start:
            raise chain.missing(start)  # what is added to it could not be restored
        self._copied = Copied()
        generation = last.header.generation if done else 0
        self._copied.read(chain.headers(bucket, [one for one in there if one >= start]), generation)
        complete_ms = max(self._term.term.complete_ms, bases[-1].at_ms if bases else 0)
        is_recent = now_ms - complete_ms < _DAY_MS
        self._copied.require_same_history(self._store, marks, is_recent=is_recent)
        if (counted := self._count()) < (copied := self._term.term.counted):
            raise behind(f"{copied} beginnings and ends of runs were counted, and the store knows {counted}")
        if not self._end.learn(last.header.number, last.digest):
            raise _continued_elsewhere(bucket)
        self._complete_ms = complete_ms if bases else 0
        if done and is_recent:
            self._generation, self._snapshot_ms, self._is_sweeping = generation, done[0].at_ms, False
        else:
            self._begin_snapshot(self._number, now_ms)

    def _begin_snapshot(self, number: int, now_ms: int) -> None:
        self._generation, self._is_sweeping, self._sweep = number, True, ""
        self._snapshot_ms = now_ms
        self._copied.begin()

    # A pass -------------------------------------------------------------------------------------

    def copy(self) -> bool:
        """Copy what has changed, and a part of a snapshot that is being made; return whether there was any.

        Raises Fenced; StoreError.
        """
        cut_ms = self._store.read_clock()
        before = self._segments
        if not self._is_sweeping and cut_ms - self._snapshot_ms >= self._options.snapshot_ms:
            self._begin_snapshot(self._number, cut_ms)
        self._list_all()
        self._listed = {name: mark for name, mark in self._listed.items() if self._copied.is_new(mark)}
        if self._listed:
            # If the store fails in between, the next pass reads the rest: it is not listed again.
            while self._listed:
                mark = next(iter(self._listed.values()))
                self._add_run(mark)
                del self._listed[mark.id]
            self._add_born()
        self._add_documents()
        completes = self._sweep_on() if self._is_sweeping else 0
        if self._batch.parts or completes:
            self._write(complete_ms=cut_ms if self._completed or completes else 0, completes=completes)
        if completes:
            self._note_base(completes, cut_ms)
        if self._completed:
            self._complete_ms = cut_ms
        self._succeeded_ms, self._fault = self._store.read_clock(), ""
        self.say_alive()
        return self._segments != before

    def _add_born(self) -> None:
        """Add runs that were created while others were read: a parent's journal may name them."""
        for _ in range(3):
            found = self._store.changed_runs(self._cursor).runs
            born = [
                one for one in found if one.id not in self._copied.runs and one.id not in self._batch.copies
            ]
            for mark in born:
                self._add_run(mark)
            if not born:
                return

    def _add_run(self, mark: RunMark) -> None:
        known = self._batch.copies.get(mark.id)
        if known is not None and known.stamp == mark.stamp:
            return
        try:
            found = list(parts(self._store, [mark.id], self._copied.blobs, is_needed=False))
        except Corrupt as error:
            if mark.id not in self._damaged:
                _log.error("run %s cannot be copied: %s", mark.id, error)
            self._damaged.add(mark.id)
            return
        self._damaged.discard(mark.id)
        for one in found:
            if isinstance(one, Capsule):
                self._add_capsule(mark, one)
            else:
                self._batch.parts.append(BlobContent(bytes.fromhex(one.digest), one.content))
                self._batch.size += len(one.content)
        if self._batch.is_full:
            self._write()

    def _add_capsule(self, mark: RunMark, capsule: Capsule) -> None:
        piece, run = self._copied.piece(capsule), capsule.run
        self._batch.parts.append(piece)
        self._batch.size += 500 + sum(len(one.body) + 100 for one in piece.records)
        # The stamp of the list, the rest as it was read: what changed in between has another stamp.
        self._batch.copies[run.id] = Copy(
            run.id, mark.stamp, run.length, run.head.hex(), run.created_ms, run.state.is_final
        )

    def _documents(self) -> Iterator[Document]:
        """Yield the documents; cached answers are many, can be asked for again, and are not read."""
        for one in documents.listing(self._store, page=_PAGE):
            if one.name >= CACHED:
                break
            yield one
        yield from documents.listing(self._store, after=f"{CACHED}\U0010ffff")

    def _add_documents(self) -> None:
        known, there = self._copied.documents, set()
        for one in self._documents():
            if one.name.startswith(NOT_COPIED):
                continue
            there.add(one.name)
            if known.get(one.name, 0) != one.version:
                self._add_document(one.name, one.body, one.version)
        for name, version in known.items():
            if version and name not in there:
                self._add_document(name, None, 0)

    def _add_document(self, name: str, body: bytes | None, version: int) -> None:
        self._batch.parts.append(Fact(name, body))
        self._batch.documents[name] = version

    # Snapshots ----------------------------------------------------------------------------------

    def _sweep_on(self) -> int:
        """Add runs that the snapshot does not have yet, for a moment; return its number at its end."""
        until = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < until:
            found = self._store.changed_runs(self._sweep, limit=_SWEEP_RUNS)
            for mark in found.runs:
                if mark.id not in self._copied.based:
                    self._add_run(mark)
            # Only now: if the store fails before, the same runs are listed again.
            self._sweep = found.cursor
            if found.is_whole:
                self._add_loose_keys()
                return self._generation
        return 0

    def _add_loose_keys(self) -> None:
        """Add the keys of runs that the store has forgotten: what they protect must not be done again."""
        cursor = ""
        while True:
            page = self._store.list_keys(cursor)
            for key in page.keys:
                if key.run not in self._copied.based and key.run not in self._batch.copies:
                    self._batch.parts.append(LooseKey(key))
                    self._batch.size += 200 + len(key.body)
            if self._batch.is_full:
                self._write()
            cursor = page.cursor
            if not cursor:
                return

    def _note_base(self, generation: int, at_ms: int) -> None:
        base = Base(first=generation, last=self._number - 1, at_ms=at_ms)
        # CRASH: the snapshot is whole, and not marked: the next replicator makes another one.
        self._patiently(lambda: chain.add_base(self._bucket, base))
        self._completed, self._is_sweeping = generation, False
        self._snapshot_ms = at_ms
        before_ms = at_ms - self._options.keep_ms
        self._patiently(lambda: chain.drop_old(self._bucket, before_ms))

    # Writing ------------------------------------------------------------------------------------

    def _write(self, *, complete_ms: int = 0, completes: int = 0) -> None:
        """Write the next segment. Raises Fenced when its number is taken."""
        batch, own = self._batch, self._term.term
        header = SegmentHeader(
            store=self._store_id,
            term=own.term,
            owner=own.owner,
            number=self._number,
            previous=self._digest,
            generation=self._generation,
            at_ms=self._store.read_clock(),
            complete_ms=complete_ms,
            completes=completes,
            copies=tuple(batch.copies.values()),
            documents=batch.documents,
            damaged=tuple(sorted(self._damaged)),
        )
        content, digest = segment.written(header, tuple(batch.parts))
        name = segment.name_of(self._number)
        if not self._end.plan(self._number - 1, self._digest, digest):
            raise term.fenced(self._bucket, term.read(self._bucket))
        try:
            # CRASH: the segment is there or not; its header says what it has.
            self._patiently(lambda: self._bucket.create(name, content))
        except NameTaken:
            raise term.fenced(self._bucket, term.read(self._bucket)) from None
        for copy in batch.copies.values():
            self._copied.note(copy)
        self._copied.documents |= batch.documents
        self._batch, self._digest = Batch(), digest
        self._number += 1
        self._segments += 1
        self.say_alive()

    def say_alive(self, *, is_over: bool = False) -> None:
        """Renew the term and write the report, if that was not done lately. Raises Fenced."""
        now_ms = self._store.read_clock()
        if is_over or now_ms - self._renewed_ms >= _REPORT_MS or now_ms < self._renewed_ms:
            counted = self._term.term.counted
            if is_over or now_ms - self._counted_ms >= _COUNT_MS or now_ms < self._counted_ms:
                counted, self._counted_ms = self._count(), now_ms
            done = self._complete_ms, self._number - 1, counted
            self._patiently(lambda: self._term.renew(now_ms, *done, is_over=is_over))
            self._renewed_ms = now_ms
        self._say(is_due=is_over)

    def _count(self) -> int:
        """Return how many runs were ever created and ended: a smaller number later shows an older store."""
        try:
            found = self._store.read_counters()
        except Corrupt:
            return self._term.term.counted  # audits report it; runs are copied all the same
        return sum(one.value for one in found if one.name in ("runs_started", "runs_ended"))

    def _say(self, *, is_due: bool = False) -> None:
        if not self._options.name:
            return
        now_ms = self._store.read_clock()
        if is_due or now_ms - self._reported_ms >= _REPORT_MS or now_ms < self._reported_ms:
            self._reported_ms = now_ms
            try:
                progress.write(self._store, self._options.name, self.report)
            except StoreUnavailable as error:
                self._note_error("store", error)

    def refuse(self, error: NineLivesError) -> None:
        """Report to the store that nothing can be copied."""
        if self._options.name:
            with suppress(StoreUnavailable):
                now_ms = self._store.read_clock()
                progress.refuse(self._store, self._options.name, self._bucket.url, str(error), now_ms)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Call until the bucket answers; say meanwhile what is wrong."""
        failures = 0
        while True:
            try:
                return call()
            except BucketUnavailable as error:
                failures += 1
                self._note_error("bucket", error)
                if self._tries is not None and failures >= self._tries:
                    raise
                if self.is_open:
                    self._say()
                else:
                    self.refuse(error)
                if self._wait(min(_LONGEST_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 8))):
                    raise

    def _note_error(self, reason: str, error: NineLivesError) -> None:
        self._errors = {**self._errors, reason: self._errors.get(reason, 0) + 1}
        if not self._fault:
            _log.warning("%s", error)
        self._fault = str(error)[:500]

    # Until it is stopped ------------------------------------------------------------------------

    def run(self, *, is_once: bool = False) -> None:
        """Copy again and again; with `is_once`, until everything that there is now is copied."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                self.copy()
                failures = 0
            except StoreUnavailable as error:
                failures += 1
                self._note_error("store", error)
                if self._tries is not None and failures >= self._tries:
                    raise
            if is_once and not failures and self.is_complete:
                break
            # A store with very many open runs is not read all the time.
            took = time.monotonic() - began
            pause = self._options.every_seconds if not self._is_sweeping else 0.0
            if self._wait(max(pause, min(failures, 10.0), 0.0 if self._is_sweeping else 3 * took)):
                break
        self.say_alive(is_over=True)


def _continued_elsewhere(bucket: Bucket) -> UsageError:
    return UsageError(
        f"{bucket.url} was continued from another store: from a live copy of this one, "
        "or from this one before it was put back",
        remedy="Copy each store to a prefix of its own. If the bucket has what you want, restore from it",
    )


def _bucket_behind(bucket: Bucket, number: int) -> UsageError:
    return UsageError(
        f"{bucket.url} has lost segments, or was replaced: "
        f"this store has copied {counted(number, 'segment')} there",
        remedy="Find out what happened to them. To copy again, name another prefix",
    )
