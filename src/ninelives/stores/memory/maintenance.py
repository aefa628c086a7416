"""What operators do with the tables: measure, verify, prune. Needs the store's lock."""

from __future__ import annotations

from msgspec.structs import replace

from ninelives.core.journal import recovery_log
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.rules import dedup
from ninelives.core.rules import run_rules as rules
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.shared import maintenance
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
    return maintenance.verify(lambda check: check(tables), _CHECKS, progress)


def _run_faults(tables: Tables, run_id: str) -> list[Fault]:
    journal = tables.journals[run_id]
    lost = {digest for record in journal for digest in record.blobs} - tables.blobs.keys()
    missing = [Fault(run_id, f"blob {digest.hex()} is missing") for digest in sorted(lost)]
    return maintenance.run_faults(tables.rows.runs[run_id], journal) + missing


def _key_faults(tables: Tables) -> list[Fault]:
    held = (key for key in tables.rows.keys.values() if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT))
    owners = ((key, tables.rows.runs.get(key.run)) for key in held)
    return [
        maintenance.stray_key(key.key, key.run, key.state)
        for key, owner in owners
        if owner is None or owner.state.is_final
    ]


def _log_faults(tables: Tables) -> None:
    log = tables.log
    recovery_log.verify_all(log, length=len(log), head=log[-1].check if log else recovery_log.START)


_CHECKS = maintenance.Checks[Tables](
    structure=(),
    run_ids=lambda tables: sorted(tables.rows.runs, key=lambda run: tables.rows.runs[run].number),
    run=_run_faults,
    others=(_key_faults, _log_faults),
    digests=lambda tables: list(tables.blobs),
    packed=lambda tables, digest: tables.blobs[digest].packed,
)


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
