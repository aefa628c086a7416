"""What operators do with the tables: measure, verify, prune. Needs the store's lock."""

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
from ninelives.stores.shared.tables import Tables


def measured(tables: Tables) -> Stats:
    """Count what the tables hold."""
    runs = tables.rows.runs.values()
    records = [record for journal in tables.journals.values() for record in journal]
    return Stats(
        runs={state: sum(run.state is state for run in runs) for state in State},
        records=len(records),
        record_bytes=sum(len(record.body) for record in records),
        blobs=len(tables.blobs),
        blob_bytes=sum(len(blob.packed) for blob in tables.blobs.values()),
        keys=len(tables.rows.keys),
        open_items=sum(item.state is ItemState.OPEN for item in tables.rows.items.values()),
        sessions=sum(lease.session.ended_ms is None for lease in tables.sessions.values()),
        disk_bytes=0,
    )


def faults(tables: Tables, progress: Progress | None) -> list[Fault]:
    """Return all faults: of runs in order, then of keys, then of blobs."""
    found: list[Fault] = []
    runs = sorted(tables.rows.runs.values(), key=lambda run: run.number)
    for done, run in enumerate(runs, 1):
        found.extend(Fault(run.id, what) for what in _faults_of(tables, run))
        if progress is not None:
            progress(done, len(runs))
    for key in tables.rows.keys.values():
        owner = tables.rows.runs.get(key.run)
        if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT) and (owner is None or owner.state.is_final):
            found.append(Fault(key.run, f"the key {key.key!r} is reserved by a run that has ended"))
    try:
        log = tables.log
        recovery_log.verify_all(log, length=len(log), head=log[-1].check if log else recovery_log.START)
    except Corrupt as error:
        found.append(Fault(None, error.what))
    for name, blob in tables.blobs.items():
        try:
            blobs.unpack(name, blob.packed)
        except Corrupt as error:
            found.append(Fault(None, error.what))
    return found


def _faults_of(tables: Tables, run: RunRow) -> Iterator[str]:
    journal = tables.journals[run.id]
    try:
        chain.verify(run.id, run.base_check, run.base, journal, length=run.length, head=run.head)
    except Corrupt as error:
        yield error.what
    lost = {digest for record in journal for digest in record.blobs} - tables.blobs.keys()
    yield from (f"blob {digest.hex()} is missing" for digest in sorted(lost))
    if (run.session is not None) != (run.state is State.RUNNING):
        yield f"the run is {run.state} and its session is {run.session!r}"


def prune(tables: Tables, ended_before_ms: int, forget_before_ms: int, now_ms: int) -> Pruned:
    """Remove what is old enough."""
    journals = records = keys = forgotten = 0
    for run in list(tables.rows.runs.values()):
        stored = len(tables.journals[run.id])
        if not run.state.is_final:
            _keep_from(tables, run, _previous_turn(tables, run))
        elif run.changed_ms < max(ended_before_ms, forget_before_ms):
            _keep_from(tables, run, run.length)
            _drop_messages(tables, run.id)
            journals += stored > 0
            keys += _bury_keys(tables, run.id)
        records += stored - len(tables.journals[run.id])
        if run.state.is_final and run.changed_ms < forget_before_ms:
            _forget(tables, run.id)
            forgotten += 1
    return Pruned(
        journals=journals,
        records=records,
        blobs=_drop_blobs(tables, now_ms - rules.BLOB_GRACE_MS),
        keys=keys,
        runs=forgotten,
    )


def _previous_turn(tables: Tables, run: RunRow) -> int:
    """Return the position of the turn before the current one, as far as it is stored."""
    earlier = (record.seq for record in tables.journals[run.id] if record.kind is Kind.TURN)
    return max((seq for seq in earlier if seq < run.turn_seq), default=run.base)


def _keep_from(tables: Tables, run: RunRow, seq: int) -> None:
    journal = tables.journals[run.id]
    if seq > run.base:
        before = journal[seq - run.base - 1].check
        tables.rows.runs[run.id] = replace(run, base=seq, base_check=before)
        del journal[: seq - run.base]


def _drop_messages(tables: Tables, run: str) -> None:
    tables.rows.signals.pop(run, None)
    for item in tables.rows.items_of.pop(run, ()):
        del tables.rows.items[item]
    tables.rows.refers.pop(run, None)


def _bury_keys(tables: Tables, run: str) -> int:
    rows = tables.rows
    own = (rows.keys[name] for name in rows.holds.get(run, ()))
    settled = [key for key in own if key.run == run and key.state is KeyState.SETTLED]
    rows.keys.update({key.key: dedup.pruned(key) for key in settled})
    return len(settled)


def _forget(tables: Tables, run: str) -> None:
    del tables.rows.runs[run], tables.journals[run]
    tables.rows.waits.pop(run, None)


def _drop_blobs(tables: Tables, put_before_ms: int) -> int:
    alive = {digest for digests in tables.rows.refers.values() for digest in digests}
    garbage = [
        name for name, blob in tables.blobs.items() if name not in alive and blob.put_ms < put_before_ms
    ]
    for name in garbage:
        del tables.blobs[name]
    return len(garbage)
