"""What operators do with the contents: measure, verify, prune. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ninelives.core.journal import recovery_log
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind, Record, RunRow, State
from ninelives.core.rules import dedup
from ninelives.core.rules import run_rules as rules
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.memory.tables import Contents
from ninelives.stores.shared import maintenance


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
    return maintenance.verify(lambda check: check(contents), _CHECKS, progress)


def _run_faults(contents: Contents, run: RunRow, records: Sequence[Record]) -> list[Fault]:
    lost = {digest for record in records for digest in record.blobs} - contents.blobs.keys()
    missing = [Fault(run.id, f"blob {digest.hex()} is missing") for digest in sorted(lost)]
    return maintenance.run_faults(run, records) + missing


def _beside(contents: Contents, run: RunRow, keys: list[str]) -> maintenance.Beside:
    rows = contents.rows
    items = (rows.items.get(name) for name in rows.items_of.get(run.id, ()))
    return maintenance.Beside(
        keys={key: rows.keys[key] for key in keys if key in rows.keys},
        items={item.id: item.state for item in items if item is not None},
        signals=maintenance.signal_numbers((one.number, one.taken) for one in rows.signals.get(run.id, ())),
        sessions=contents.sessions,
    )


def _key_faults(contents: Contents) -> list[Fault]:
    held = (key for key in contents.rows.keys.values() if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT))
    owners = ((key, contents.rows.runs.get(key.run)) for key in held)
    return [
        maintenance.stray_key(key.key, key.run, key.state)
        for key, owner in owners
        if owner is None or owner.state.is_final
    ]


def _log_faults(contents: Contents) -> None:
    log = contents.log
    recovery_log.verify_all(log, length=len(log), head=log[-1].check if log else recovery_log.START)


_CHECKS = maintenance.Checks[Contents](
    structure=(),
    run_ids=lambda contents: sorted(contents.rows.runs, key=lambda run: contents.rows.runs[run].number),
    journal=lambda contents, run: (contents.rows.runs[run], contents.journals[run]),
    run=_run_faults,
    beside=_beside,
    others=(_key_faults, _log_faults),
    digests=lambda contents: list(contents.blobs),
    packed=lambda contents, digest: contents.blobs[digest].packed,
)


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
