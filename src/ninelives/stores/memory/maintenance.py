"""What operators do with the contents: measure, verify, prune. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ninelives.core.errors import UnknownRun
from ninelives.core.journal import recovery_log
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind, Record, RunRow, State
from ninelives.core.rules import counting, dedup
from ninelives.core.rules import run_rules as rules
from ninelives.store import Fault, Pruned, Stats
from ninelives.stores.memory.tables import Contents, Transaction
from ninelives.stores.shared import maintenance, walk
from ninelives.stores.shared.maintenance import Limits


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


def _run_faults(tx: Transaction, run: RunRow, records: Sequence[Record]) -> list[Fault]:
    lost = {digest for record in records for digest in record.blobs} - tx.contents.blobs.keys()
    return walk.run_faults(run, records) + [walk.missing_blob(run.id, digest) for digest in sorted(lost)]


def _beside(tx: Transaction, run: RunRow, keys: list[str]) -> walk.Beside:
    rows = tx.contents.rows
    items = (rows.items.get(name) for name in rows.items_of.get(run.id, ()))
    return walk.Beside(
        keys={key: rows.keys[key] for key in keys if key in rows.keys},
        items={item.id: item.state for item in items if item is not None},
        signals=walk.signal_numbers((one.number, one.taken) for one in rows.signals.get(run.id, ())),
        sessions=tx.contents.sessions,
        blobs=rows.refers.get(run.id, frozenset()),
    )


def _listed(tx: Transaction, after: int, last: int, limit: int) -> list[tuple[int, str]]:
    runs = tx.contents.rows.runs.values()
    return sorted((run.number, run.id) for run in runs if after < run.number <= last)[:limit]


def _journal(tx: Transaction, run: str) -> tuple[RunRow, list[Record]]:
    if run not in tx.contents.rows.runs:
        raise UnknownRun(f"no run has the id {run!r}", run=run)
    return tx.contents.rows.runs[run], list(tx.contents.journals[run])


def _key_faults(tx: Transaction) -> list[Fault]:
    rows = tx.contents.rows
    held = (key for key in rows.keys.values() if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT))
    owners = ((key, rows.runs.get(key.run)) for key in held)
    return [
        walk.stray_key(key.key, key.run, key.state)
        for key, owner in owners
        if owner is None or owner.state.is_final
    ]


def _log_faults(tx: Transaction) -> None:
    log, base = tx.contents.log, tx.contents.log_base
    head = log[-1].check if log else base.check
    recovery_log.verify_all(log, length=base.seq + len(log), head=head, base=base)


def _digests(tx: Transaction, after: str, limit: int) -> tuple[list[bytes], str | None]:
    found = sorted(digest for digest in tx.contents.blobs if digest.hex() > after)[:limit]
    return found, walk.last_of(found, limit, bytes.hex)


SECTIONS: walk.Sections = {
    "runs": walk.Runs(
        last=lambda tx: tx.contents.last_number,
        listed=_listed,
        journal=_journal,
        faults=_run_faults,
        beside=_beside,
    ),
    "others": walk.whole(_key_faults, _log_faults),
    "blobs": walk.Blobs(listed=_digests, packed=lambda tx, digest: tx.contents.blobs[digest].packed),
}
"""How the contents are verified."""


def prune(contents: Contents, limits: Limits, now_ms: int) -> Pruned:
    """Remove what is old enough."""
    journals = records = keys = forgotten = 0
    for run in list(contents.rows.runs.values()):
        stored = len(contents.journals[run.id])
        if not run.state.is_final:
            _keep_from(contents, run, _previous_turn(contents, run))
        elif limits.may_clear(run):
            _keep_from(contents, run, run.length)
            _drop_messages(contents, run.id)
            journals += stored > 0
            keys += _bury_keys(contents, run.id)
        records += stored - len(contents.journals[run.id])
        if run.state.is_final and run.changed_ms < limits.forget_before_ms:
            _forget(contents, run.id)
            forgotten += 1
    return Pruned(
        journals=journals,
        records=records,
        blobs=_drop_blobs(contents, now_ms - rules.BLOB_GRACE_MS),
        keys=keys,
        runs=forgotten,
        entries=_cut_log(contents, limits.log_before_ms),
        sessions=_drop_sessions(contents, limits.log_before_ms),
    )


def _cut_log(contents: Contents, before_ms: int) -> int:
    gone = maintenance.old_entries(tuple(contents.log), before_ms, contents.rows.runs)
    if gone:
        contents.log_base = recovery_log.base_after(contents.log_base, gone)
        del contents.log[: len(gone)]
    return len(gone)


def _drop_sessions(contents: Contents, before_ms: int) -> int:
    named = {run.left_by for run in contents.rows.runs.values() if run.left_by is not None}
    found = [lease.session for lease in contents.sessions.values()]
    old = [one.id for one in found if maintenance.is_old_session(one, before_ms, named)]
    for name in old:
        del contents.sessions[name]
    return len(old)


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
    row = contents.rows.runs.pop(run)
    contents.grow(counting.forgotten([(row.agent, row.state.value)]))
    del contents.journals[run]
    contents.rows.waits.pop(run, None)


def _drop_blobs(contents: Contents, put_before_ms: int) -> int:
    rows = contents.rows
    # What journals and keys say, too: it must not be swept because a reference was lost.
    alive = {digest for digests in rows.refers.values() for digest in digests}
    alive |= {digest for journal in contents.journals.values() for one in journal for digest in one.blobs}
    alive |= {digest for key in rows.keys.values() if key.run in rows.runs for digest in key.blobs}
    garbage = [
        name for name, blob in contents.blobs.items() if name not in alive and blob.put_ms < put_before_ms
    ]
    for name in garbage:
        del contents.blobs[name]
    return len(garbage)
