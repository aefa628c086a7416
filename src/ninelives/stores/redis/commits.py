"""The write path: many runs in one script, one verdict for each.

A batch in which every commit only appends is one script and one round trip: each run's row is compared with
its owner's fence, and the records are appended if it matches. Sent twice, the second one finds no match; that
is how a lost answer is resolved. Any other batch takes two round trips or more: what it may touch is loaded,
the reference store's rules are applied, and the changes are written if nothing has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from ninelives.core.journal.chain import CHECK_BYTES
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.rules import run_rules
from ninelives.stores.redis import encoding
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.server.scripts import VERSION
from ninelives.stores.redis.tables import Tables
from ninelives.stores.redis.transaction import mismatch
from ninelives.stores.shared import commit_rules as rules


def commit(pool: Pool, batch: Sequence[Commit], now_ms: int | None) -> list[Verdict]:
    """Apply a batch; see `Store.commit`. With `now_ms` None, the server's clock counts."""
    while True:
        verdicts = _commit(pool, batch, now_ms)
        done = [one for one, said in zip(batch, verdicts, strict=True) if said.outcome is Outcome.COMMITTED]
        # Before `confirmed`, which may find that the server has lost them.
        pool.lineage.committed(done)
        # CRASH: written, not yet confirmed; the next owner finds it, unless the server loses it. The caller
        # was not answered.
        # If the server syncs late, wait for writes with effects, and commit again if they were lost.
        if not pool.server.confirms or not any(map(_has_effect, done)) or pool.confirmed():
            return verdicts


def _has_effect(one: Commit) -> bool:
    # A lost plain record is work to be done again; a lost key, answer or end is an effect that is forgotten.
    return not one.is_plain or run_rules.effect_length_of(one) >= one.new_length


def _commit(pool: Pool, batch: Sequence[Commit], now_ms: int | None) -> list[Verdict]:
    return rules.commit(
        batch,
        _is_quick,
        lambda quick: _append(pool, quick, now_ms),
        lambda others: pool.write(lambda tx: rules.apply(tx, Tables(tx), others)),
    )


def _is_quick(one: Commit) -> bool:
    # `append.lua` compares a prefix: a shorter head would match every head that begins with it.
    if not one.records or not (one.is_plain or one.is_plain_if) or len(one.head) != CHECK_BYTES:
        return False
    for record in one.records:  # noqa: SIM110 (the hot path)
        if record.blobs:
            return False
    return True


def _append(pool: Pool, batch: Sequence[Commit], now_ms: int | None) -> set[str]:
    """Append to the runs whose row is as the commit expects (owner, length, head); return which."""
    names = pool.names
    keys = [names.store, names.output, names.documents]
    emits = any(run_rules.emits(one) for one in batch)
    values: list[bytes | str | int] = [VERSION, b"" if now_ms is None else now_ms, int(emits)]
    required = {required for one in batch for required in one.requires}
    if len(required) > 1:
        return set()  # a rare mixture, for the rules
    for name, version in map(astuple, required):
        batch = sorted(batch, key=lambda one: not one.requires)  # those that require it come first
        beginning = encoding.beginning_of_document(name, version) if version else b""
        values += (name, beginning, sum(bool(one.requires) for one in batch))
    if not required:
        values += (b"", b"", 0)
    for one in batch:
        keys += (names.run(one.run), names.journal(one.run))
        records = [encoding.record_bytes(record) for record in one.records]
        before = encoding.fence(one.epoch, one.length, one.head)
        after = encoding.fence(one.epoch, one.new_length, one.new_head)
        sums = encoding.sums_of(one.tally)
        values += (before, after, run_rules.effect_length_of(one), sums, len(records), *records)
    answer = pool.append(keys, values)
    if answer[0] == b"version":
        raise mismatch()
    return {batch[position - 1].run for position in answer[1:]}
