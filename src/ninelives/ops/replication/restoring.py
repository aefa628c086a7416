"""A store from its copy in a bucket: unfinished runs wait for a person, as after any restore.

Everything is read and verified before anything is written. If we die here: the same command continues; no
run of a half restored store is executed, since each is paused (`core.rules.capsules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec
from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.model.capsule import Capsule, Imported
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.folding import Folded, Range, choose, fold
from ninelives.ops.transfer.export import WholeStore
from ninelives.store import Progress
from ninelives.stores.encrypted.marker import stored_in
from ninelives.views import documents

_NOTE = "restore/source"
_AT_ONCE = 50


class RestoredCopy(Struct, frozen=True, kw_only=True):
    """What a restore brought back. Commits before `complete_ms` are all there; later ones may be missing.

    `before` of the runs were there already: an earlier restore of the same brought them. `paused` and
    `doubts` are what waits for a person now, also of these.
    """

    source: str
    runs: int
    before: int
    paused: tuple[str, ...]
    doubts: tuple[tuple[str, str], ...]
    keys: int
    documents: int
    segments: int
    segment: int
    complete_ms: int
    heartbeat_ms: int
    damaged: tuple[str, ...]

    @property
    def missing_seconds(self) -> float:
        """Return how much was not copied yet at the last sign of life, in seconds."""
        return max(0, self.heartbeat_ms - self.complete_ms) / 1000


def restore(
    bucket: Bucket, target: WholeStore, at_ms: int | None = None, progress: Progress | None = None
) -> RestoredCopy:
    """Restore the newest state, or the one at a time, into an empty store.

    Raises UsageError when the store is not empty, or there is no copy; Corrupt.
    """
    chosen = choose(bucket, at_ms)
    _require_empty(target, bucket, chosen)
    return _written(bucket, target, chosen, fold(bucket, chosen, progress))


def _require_empty(target: WholeStore, bucket: Bucket, chosen: Range) -> None:
    note = msgspec.json.encode({"source": bucket.url, "segment": chosen.last, "base": chosen.base.first})
    known = documents.find(target, _NOTE)
    if known is not None and known.body == note:
        return  # a restore of the same was killed: it goes on
    if known is not None or target.list_runs(RunQuery(limit=1)):
        raise UsageError(
            f"{target.url} is not empty", remedy="Restore into a new store; name another one with --to"
        )
    # CRASH: an empty store with a note; the same command goes on.
    target.write_document(_NOTE, note, version=0)


def _written(bucket: Bucket, target: WholeStore, chosen: Range, folded: Folded) -> RestoredCopy:
    capsules, loose = folded.whole()
    before = 0
    paused: list[str] = []
    doubts: list[tuple[str, str]] = []
    target = stored_in(target)
    # Keys first: what is known to be done must be known before anything can ask.
    target.import_keys(loose)
    for part in _parts(capsules):
        wanted = dict.fromkeys(digest for one in part for digest in one.blobs)
        target.put_blobs(folded.blobs[digest] for digest in wanted if digest in folded.blobs)
        # CRASH: some runs are there, paused; the same command brings the others.
        for capsule, done in zip(part, target.import_runs(part), strict=True):
            before += not done.is_new
            if done.run.paused and not done.run.state.is_final:
                paused.append(capsule.run.id)
            doubts += [(capsule.run.id, step) for step in done.doubts or _doubts_of(target, done)]
    there = {one.name for one in documents.listing(target)}
    for name, body in folded.documents.items():
        if name not in there:
            target.write_document(name, body, version=0)
    return RestoredCopy(
        source=bucket.url,
        runs=len(capsules),
        before=before,
        paused=tuple(paused),
        doubts=tuple(doubts),
        keys=len(folded.keys),
        documents=len(folded.documents),
        segments=folded.segments,
        segment=chosen.last,
        complete_ms=chosen.complete_ms,
        heartbeat_ms=chosen.heartbeat_ms,
        damaged=folded.damaged,
    )


def _doubts_of(target: WholeStore, there: Imported) -> list[str]:
    """Return the steps in doubt of a run that an earlier restore brought."""
    if there.is_new or there.run.state.is_final:
        return []
    return [item.step for item in target.list_inbox(run=there.run.id) if item.kind is ItemKind.DOUBT]


def _parts(capsules: Iterable[Capsule]) -> Iterable[list[Capsule]]:
    left = iter(capsules)
    while part := list(islice(left, _AT_ONCE)):
        yield part


# Drills ------------------------------------------------------------------------------------------


def differences(copy: WholeStore, folded: Folded, live: WholeStore, complete_ms: int) -> list[str]:
    """Return what is wrong with a copy that was restored: its faults, and where it is not the live store's.

    A live run may have gone on since; it must then have everything that was copied of it. One that ended
    before the copy was complete must have ended in the copy.
    """
    found = [f"{fault.run or 'store'}: {fault.what}" for fault in copy.verify()]
    for name, capsule in folded.capsules.items():
        row = live.read_run(name)
        if row is None:
            if not capsule.run.state.is_final:
                found.append(f"{name}: it is in the copy, and not in the store")
            continue
        if row.created_ms == capsule.run.created_ms and not _goes_on(live, capsule):
            found.append(f"{name}: the copy has another history than the store")
        elif _lacks_end(row, capsule, complete_ms):
            found.append(
                f"{name}: it ended ({row.state}) before the copy was complete; in the copy it is "
                f"{capsule.run.state}"
            )
    number: int | None = None
    while listed := live.list_runs(RunQuery(limit=500, after=number)):
        number = listed[-1].number
        found += [
            f"{row.id}: it was created before the copy was complete, and is not in it"
            for row in listed
            if row.created_ms < complete_ms and row.id not in folded.capsules and row.id not in folded.damaged
        ]
    return found


def _lacks_end(row: RunRow, capsule: Capsule, complete_ms: int) -> bool:
    """Return whether a live run ended before a moment, and the copy does not have that."""
    known = capsule.run
    has_ended = row.state.is_final and row.changed_ms < complete_ms and row.created_ms == known.created_ms
    return has_ended and (known.state is not row.state or known.length < row.length)


def _goes_on(live: WholeStore, capsule: Capsule) -> bool:
    now, length = live.export_run(capsule.run.id), capsule.run.length
    if now.run.length < length:
        return False
    if length == now.run.length:
        return now.run.head == capsule.run.head
    if length <= now.run.base:
        return True  # pruned since: nothing is left to compare
    return now.records[length - 1 - now.run.base].check == capsule.run.head
