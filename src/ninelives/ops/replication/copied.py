"""What the bucket has of each run, and what a changed run adds to it."""

from __future__ import annotations

from collections.abc import Iterable

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.capsule import Capsule, RunMark
from ninelives.core.model.run import Kind
from ninelives.ops.replication.segment import Copy, Piece, SegmentHeader
from ninelives.store import Maintenance
from ninelives.views.counted import counted

_MOST_FINAL = 200_000


class Copied:
    """Runs by id as they were copied; `based` are those with a whole piece since the snapshot began."""

    def __init__(self) -> None:
        self.runs: dict[str, Copy] = {}
        self.based: set[str] = set()
        self.blobs: set[bytes] = set()
        self.documents: dict[str, int] = {}

    def read(self, headers: Iterable[SegmentHeader], generation: int) -> None:
        """Learn from the headers of the chain; deltas continue a snapshot only from its beginning on."""
        for header in headers:
            for copy in header.copies:
                self.runs[copy.run] = copy
                if generation and header.number >= generation:
                    self.based.add(copy.run)
            if generation and header.number >= generation:
                self.documents |= header.documents

    def begin(self) -> None:
        """Begin a snapshot: the next piece of each run is whole, and all blobs and documents come again."""
        self.based.clear()
        self.blobs.clear()
        self.documents.clear()

    def is_new(self, mark: RunMark) -> bool:
        """Return whether a run has changed since it was copied."""
        known = self.runs.get(mark.id)
        return known is None or known.stamp != mark.stamp

    def note(self, copy: Copy) -> None:
        """Note what was copied of a run."""
        self.runs.pop(copy.run, None)  # at the end: the oldest come first
        self.runs[copy.run] = copy
        self.based.add(copy.run)
        if len(self.runs) > 2 * _MOST_FINAL:
            old = [name for name, one in self.runs.items() if one.is_final][:_MOST_FINAL]
            for name in old:
                del self.runs[name]

    def piece(self, capsule: Capsule) -> Piece:
        """Return what a capsule adds to the pieces of its run."""
        run = capsule.run
        known = self.runs.get(run.id) if run.id in self.based else None
        first = known.length if known is not None and _continues(capsule, known) else run.base
        return Piece(
            run=run,
            first=first,
            records=capsule.records[first - run.base :],
            signals=capsule.signals,
            last_signal=capsule.last_signal,
            items=capsule.items,
            keys=capsule.keys,
        )

    def require_same_history(self, store: Maintenance, marks: Iterable[RunMark], *, is_recent: bool) -> None:
        """Raise UsageError when the store is behind its copy, or has another history."""
        there = set()
        for mark in marks:
            there.add(mark.id)
            known = self.runs.get(mark.id)
            if known is None or known.created_ms != mark.created_ms or mark.length > known.length:
                continue
            if (mark.length, mark.head.hex()) != (known.length, known.head) and not _is_salvaged(store, mark):
                raise behind(
                    f"run {mark.id!r} has {counted(mark.length, 'record')}, and {known.length:,} were copied"
                )
        lost = [name for name, copy in self.runs.items() if not copy.is_final and name not in there]
        if lost and is_recent:  # else it may have ended and been forgotten while nothing was copied
            raise behind(f"run {lost[0]!r} was copied, and is not in the store")


def _continues(capsule: Capsule, known: Copy) -> bool:
    run, length = capsule.run, known.length
    if known.created_ms != run.created_ms or not run.base <= length <= run.length:
        return False
    before = capsule.records[length - 1 - run.base].check if length > run.base else run.base_check
    return before.hex() == known.head


def _is_salvaged(store: Maintenance, mark: RunMark) -> bool:
    try:
        records = store.export_run(mark.id).records
    except Corrupt:
        return True  # its damage is reported where it is copied
    return any(record.kind is Kind.SALVAGED for record in records)


def behind(what: str) -> UsageError:
    """Return the error of a store that lacks what was copied."""
    return UsageError(
        f"the store is behind its copy in the bucket: {what}. It was put back from an older copy",
        remedy="If the bucket has what you want, restore from it. To go on with this store, copy it to "
        "another prefix, and keep this one",
    )
