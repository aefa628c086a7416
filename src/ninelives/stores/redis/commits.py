"""The write path: many runs in one script, a verdict for each.

A batch in which every commit only appends is one script and one round trip: each run's row is compared with
its owner's fence, and the records are appended where it fits. Made twice, the second one finds nothing that
fits; that is how a lost answer is resolved. Any other batch takes two round trips or more: what it may
touch is loaded, the reference's rules are applied, and what has changed is written if all is still so.
"""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.errors import UsageError
from ninelives.core.journal.chain import CHECK_BYTES
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.rules import run_rules, validation
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import append_records
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.server.scripts import VERSION
from ninelives.stores.redis.tables import Tables
from ninelives.stores.redis.transaction import Transaction, mismatch
from ninelives.stores.shared import commit_rules as rules


def commit(lines: Pool, batch: Sequence[Commit], now_ms: int | None) -> list[Verdict]:
    """Apply a batch; see `Store.commit`. `now_ms` is None where the server's clock counts."""
    while True:
        verdicts = _commit(lines, batch, now_ms)
        done = [one for one, said in zip(batch, verdicts, strict=True) if said.outcome is Outcome.COMMITTED]
        lines.lineage.committed(done)
        # Where the server syncs late, what something rests on is waited for, and made again if it was lost.
        if not lines.server.confirms or not any(map(_has_effect, done)) or lines.confirmed():
            return verdicts


def _has_effect(one: Commit) -> bool:
    return not one.is_plain or run_rules.effect_length_of(one) >= one.new_length


def _commit(lines: Pool, batch: Sequence[Commit], now_ms: int | None) -> list[Verdict]:
    if len({one.run for one in batch}) != len(batch):
        raise UsageError("a run occurs twice in one batch", remedy="Merge its commits, or send them apart")
    verdicts: dict[str, Verdict] = {}
    sound: list[Commit] = []
    for one in batch:
        fault = validation.fault_in(one)
        if fault is None and validation.is_text(one.run):
            sound.append(one)
        else:
            verdicts[one.run] = Verdict(one.run, Outcome.REFUSED, fault or validation.unknown_run(one.run))
    left = sound
    if sound and all(_is_quick(one) for one in sound):
        done = _append(lines, sound, now_ms)
        verdicts.update({run: Verdict(run, Outcome.COMMITTED) for run in done})
        left = [one for one in sound if one.run not in done]
    if left:
        rest = lines.write(lambda tx: _apply_all(tx, left))
        verdicts.update({verdict.run: verdict for verdict in rest})
    return [verdicts[one.run] for one in batch]


def _is_quick(one: Commit) -> bool:
    if not one.records or not one.is_plain or len(one.head) != CHECK_BYTES:
        return False
    for record in one.records:  # noqa: SIM110 (the hot path)
        if record.blobs:
            return False
    return True


def _append(lines: Pool, batch: Sequence[Commit], now_ms: int | None) -> set[str]:
    """Append to the runs that are their owners' and as their owners know them; returns which."""
    names = lines.names
    keys = [names.store, names.output]
    emits = any(run_rules.emits(one) for one in batch)
    values: list[bytes | str | int] = [VERSION, b"" if now_ms is None else now_ms, int(emits)]
    for one in batch:
        keys += (names.run(one.run), names.journal(one.run))
        records = [encoding.record_bytes(record) for record in one.records]
        before = encoding.fence(one.epoch, one.length, one.head)
        after = encoding.fence(one.epoch, one.new_length, one.new_head)
        sums = encoding.sums_of(one.tally)
        values += (before, after, run_rules.effect_length_of(one), sums, len(records), *records)
    answer = lines.append(keys, values)
    if answer[0] == b"version":
        raise mismatch()
    return {batch[place - 1].run for place in answer[1:]}


def _apply_all(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    tables = Tables(tx)
    tables.prepare(batch)
    wanted = list(dict.fromkeys(digest for one in batch for digest in run_rules.blobs_in(one)))
    there = tx.ask([(b"HEXISTS", tx.names.blobs, digest) for digest in wanted]) if wanted else []
    known = {digest for digest, is_there in zip(wanted, there, strict=True) if is_there}
    verdicts = []
    appended = []
    for one in batch:
        verdict, is_written, wakes = rules.write(tables.rows, known, one, tx.now_ms)
        verdicts.append(verdict)
        if is_written:
            appended.append(one)
            tx.wakes = tx.wakes or wakes
            tx.emits = tx.emits or run_rules.emits(one)
    tables.write_back()
    for one in appended:
        append_records(tx, one.run, one.records)
    return verdicts
