"""Segments back to runs: each run as it was last copied, each business key as it was last seen."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.key import Key, KeyState
from ninelives.core.rules.dedup import pruned
from ninelives.ops.replication import chain, term
from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.chain import Base
from ninelives.ops.replication.segment import BlobContent, LooseKey, Piece, Segment, SegmentHeader
from ninelives.store import Progress

_HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)


class Range(Struct, frozen=True, kw_only=True):
    """Which segments to restore. All that was committed before `complete_ms` is in them.

    `heartbeat_ms` is the last sign of life of a replicator.
    """

    base: Base
    last: int
    complete_ms: int
    heartbeat_ms: int


def choose(bucket: Bucket, at_ms: int | None) -> Range:
    """Return the segments for the newest state, or for the state at a time.

    Raises UsageError when there is none; Corrupt.
    """
    there = chain.numbers(bucket)
    fitting = [one for one in chain.bases(bucket) if at_ms is None or one.at_ms <= at_ms]
    if not there or not fitting:
        by = " by that time" if at_ms is not None and there else ""
        raise UsageError(
            f"{bucket.url} has no complete copy{by}",
            remedy="Name where `store replicate` or `store backup` wrote to; a first copy may be unfinished",
        )
    base = fitting[-1]
    if there[0] > base.first:
        raise chain.missing(base.first)
    last, complete_ms = base.last, base.at_ms
    for header in chain.headers(bucket, [number for number in there if number > base.last]):
        if at_ms is not None and max(header.at_ms, header.complete_ms) > at_ms:
            break
        last, complete_ms = header.number, max(complete_ms, header.complete_ms)
    said = term.read(bucket)
    heartbeat_ms = said.renewed_ms if said is not None else complete_ms
    if said is not None and at_ms is None:
        # The bucket has lost its last segments: restoring them as complete would hide it.
        if said.segment > last:
            raise chain.missing(last + 1)
        complete_ms = max(complete_ms, said.complete_ms)
    return Range(base=base, last=last, complete_ms=complete_ms, heartbeat_ms=heartbeat_ms)


class Folded:
    """What segments add up to."""

    def __init__(self) -> None:
        self.capsules: dict[str, Capsule] = {}
        self.keys: dict[str, Key] = {}
        self.documents: dict[str, bytes] = {}
        self.blobs: dict[bytes, bytes] = {}
        self.damaged: tuple[str, ...] = ()
        self.segments = 0

    def add(self, segment: Segment) -> None:
        """Add the next segment. Raises Corrupt."""
        self.segments += 1
        self.damaged = segment.header.damaged
        for part in segment.parts:
            if isinstance(part, Piece):
                self._add_piece(part, segment.header.number)
            elif isinstance(part, LooseKey):
                self.keys[part.key.key] = part.key
            elif isinstance(part, BlobContent):
                self.blobs[part.digest] = part.content
            elif part.body is None:
                self.documents.pop(part.name, None)
            else:
                self.documents[part.name] = part.body

    def _add_piece(self, piece: Piece, number: int) -> None:
        run, records = piece.run, piece.records
        if piece.first > run.base:
            known = self.capsules.get(run.id)
            if known is None:
                raise Corrupt(
                    f"segment {number} continues a run that no segment before it has",
                    run=run.id,
                    remedy="Restore from another copy",
                )
            records = tuple(one for one in known.records if run.base <= one.seq < piece.first) + records
        self.capsules[run.id] = Capsule(
            run=run,
            records=records,
            signals=piece.signals,
            last_signal=piece.last_signal,
            items=piece.items,
        )
        for key in piece.keys:
            self.keys[key.key] = key

    def whole(self) -> tuple[list[Capsule], list[Key]]:
        """Return the capsules with their keys, and the keys without a run that could settle them."""
        owned: dict[str, list[Key]] = {}
        loose = []
        for key in self.keys.values():
            owner = self.capsules.get(key.run)
            if owner is None:
                # Its run is gone or damaged. If the key was held, the next run that wants it settles the
                # doubt first; if it was settled, only the result is gone.
                is_settled = key.state is KeyState.SETTLED
                loose.append(pruned(key) if is_settled else _orphan(key) if key.state in _HELD else key)
            elif owner.run.state.is_final and key.state in _HELD:
                owned.setdefault(key.run, []).append(_orphan(key))
            else:
                owned.setdefault(key.run, []).append(key)
        capsules = [
            _with_keys(one, tuple(sorted(owned.get(one.run.id, ()), key=lambda key: key.key)))
            for one in self.capsules.values()
        ]
        return sorted(capsules, key=lambda one: (one.run.created_ms, one.run.id)), loose


def fold(bucket: Bucket, chosen: Range, progress: Progress | None = None) -> Folded:
    """Read and verify the segments of a range, and add them up. Raises Corrupt."""
    folded = Folded()
    count = chosen.last - chosen.base.first + 1
    for done, one in enumerate(chain.read(bucket, chosen.base.first, chosen.last), 1):
        _require_snapshot(one.header, chosen.base)
        folded.add(one)
        if progress is not None:
            progress(done, count)
    return folded


def _require_snapshot(header: SegmentHeader, base: Base) -> None:
    """Raise Corrupt when a segment is not the one that begins or ends the snapshot of a mark."""
    begins = header.number != base.first or header.generation == base.first
    ends = header.number != base.last or header.completes == base.first
    if not (begins and ends):
        raise Corrupt(
            f"the mark of snapshot {base.first} does not fit segment {header.number}: one was replaced",
            remedy="Remove it from base/, or restore from another copy",
        )


def _orphan(key: Key) -> Key:
    return replace(key, state=KeyState.ORPHANED)


def _with_keys(capsule: Capsule, keys: tuple[Key, ...]) -> Capsule:
    return replace(capsule, keys=keys)
