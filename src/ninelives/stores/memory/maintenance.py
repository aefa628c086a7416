"""What operators do with the contents: measure, verify, prune. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal import chain, recovery_log
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.rules import dedup
from ninelives.core.rules import run_rules as rules
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.memory.tables import Contents


def measure(contents: Contents) -> Stats:
    """Count what the contents hold."""
    runs = contents.rows.runs.values()
    records = [record for journal in contents.journals.values() for record in journal]
    return Stats(
        runs={state: sum(run.state is state for run in runs) for state in State},
        records=len(records),
        record_bytes=sum(len(record.body) for record in records),
        blobs=len(contents.blobs),
        blob_bytes=sum(len(blob.packed) for blob in contents.blobs.values()),
        keys=len(contents.rows.keys),
        open_items=sum(item.state is ItemState.OPEN for item in contents.rows.items.values()),
        sessions=sum(lease.session.ended_ms is None for lease in contents.sessions.values()),
        disk_bytes=0,
    )


def verify(contents: Contents, progress: Progress | None) -> list[Fault]:
    """Return all faults: of runs in order, then of keys, then of blobs."""
    found: list[Fault] = []
    runs = sorted(contents.rows.runs.values(), key=lambda run: run.number)
    for done, run in enumerate(runs, 1):
        found.extend(Fault(run.id, what) for what in _faults_of(contents, run))
        if progress is not None:
            progress(done, len(runs))
    for key in contents.rows.keys.values():
        owner = contents.rows.runs.get(key.run)
        if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT) and (owner is None or owner.state.is_final):
            found.append(Fault(key.run, f"the key {key.key!r} is reserved by a run that has ended"))
    try:
        log = contents.log
        recovery_log.verify_all(log, length=len(log), head=log[-1].check if log else recovery_log.START)
    except Corrupt as error:
        found.append(Fault(None, error.what))
    for name, blob in contents.blobs.items():
        try:
            blobs.unpack(name, blob.packed)
        except Corrupt as error:
            found.append(Fault(None, error.what))
    return found


def _faults_of(contents: Contents, run: RunRow) -> Iterator[str]:
    journal = contents.journals[run.id]
    try:
        chain.verify(run.id, run.base_check, run.base, journal, length=run.length, head=run.head)
    except Corrupt as error:
        yield error.what
    lost = {digest for record in journal for digest in record.blobs} - contents.blobs.keys()
    yield from (f"blob {digest.hex()} is missing" for digest in sorted(lost))
    if (run.session is not None) != (run.state is State.RUNNING):
        yield f"the run is {run.state} and its session is {run.session!r}"


def prune(contents: Contents, ended_before_ms: int, forget_before_ms: int, now_ms: int) -> Pruned:
    """Remove what is old enough."""
    journals = records = keys = forgotten = 0
    for run in list(contents.rows.runs.values()):
        stored = len(contents.journals[run.id])
        if not run.state.is_final:
            _keep_from(contents, run, _previous_turn(contents, run))
        elif run.changed_ms < max(ended_before_ms, forget_before_ms):
            _keep_from(contents, run, run.length)
            _drop_messages(contents, run.id)
            journals += stored > 0
            keys += _bury_keys(contents, run.id)
        records += stored - len(contents.journals[run.id])
        if run.state.is_final and run.changed_ms < forget_before_ms:
            _forget(contents, run.id)
            forgotten += 1
    return Pruned(
        journals=journals,
        records=records,
        blobs=_drop_blobs(contents, now_ms - rules.BLOB_GRACE_MS),
        keys=keys,
        runs=forgotten,
    )


def _previous_turn(contents: Contents, run: RunRow) -> int:
    """Return the position of the turn before the current one, as far as it is stored."""
    earlier = (record.seq for record in contents.journals[run.id] if record.kind is Kind.TURN)
    return max((seq for seq in earlier if seq < run.turn_seq), default=run.base)


def _keep_from(contents: Contents, run: RunRow, seq: int) -> None:
    journal = contents.journals[run.id]
    if seq > run.base:
        before = journal[seq - run.base - 1].check
        contents.rows.runs[run.id] = replace(run, base=seq, base_check=before)
        del journal[: seq - run.base]


def _drop_messages(contents: Contents, run: str) -> None:
    contents.rows.signals.pop(run, None)
    for item in contents.rows.items_of.pop(run, ()):
        del contents.rows.items[item]
    contents.rows.refers.pop(run, None)


def _bury_keys(contents: Contents, run: str) -> int:
    rows = contents.rows
    own = (rows.keys[name] for name in rows.holds.get(run, ()))
    settled = [key for key in own if key.run == run and key.state is KeyState.SETTLED]
    rows.keys.update({key.key: dedup.pruned(key) for key in settled})
    return len(settled)


def _forget(contents: Contents, run: str) -> None:
    del contents.rows.runs[run], contents.journals[run]
    contents.rows.waits.pop(run, None)


def _drop_blobs(contents: Contents, put_before_ms: int) -> int:
    alive = {digest for digests in contents.rows.refers.values() for digest in digests}
    garbage = [
        name for name, blob in contents.blobs.items() if name not in alive and blob.put_ms < put_before_ms
    ]
    for name in garbage:
        del contents.blobs[name]
    return len(garbage)
