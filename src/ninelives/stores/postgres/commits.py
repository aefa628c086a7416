"""The write path: many runs in one transaction, one verdict for each.

A batch in which every commit only appends, or completes a run that no other run depends on, is one statement
and one round trip: a conditional update of all rows, which is the fence, and the insert of all records. Sent
twice, the second one finds nothing to update; that is how a lost answer is resolved. Any other batch takes
two round trips or more: what it may touch is locked and loaded, the reference store's rules are applied, and
the changes are written with the COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import astuple

from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.run import Kind, Record
from ninelives.core.rules import run_rules, validation
from ninelives.stores.postgres.server.pool import Before, Pool
from ninelives.stores.postgres.server.queries import migrations
from ninelives.stores.postgres.tables import Tables
from ninelives.stores.postgres.transaction import Transaction
from ninelives.stores.shared import commit_rules as rules
from ninelives.stores.shared import rows

_VERSION = len(migrations())
_ONE = [(1,)]
_FREE = {"needs": None, "required": None, "required_version": None}
"""For a batch that requires nothing."""
_SUMS = ("sum_steps", "sum_in", "sum_out", "sum_progress", "sum_error", "sum_retrying")
Wakes = Callable[[bool, bool], tuple[list[str], list[int]]]
"""Given whether there is work and whether there is output: the channels to notify, and their doors."""


def commit(
    pool: Pool, batch: Sequence[Commit], now_ms: int | None, wakes: Wakes, finish: Before
) -> list[Verdict]:
    """Apply a batch; see `Store.commit`. With `now_ms` None, the server writes its own time."""
    # The hot path: a lone step goes past everything that
    # is for batches. What it cannot append is judged below.
    if len(batch) == 1 and _append_one(pool, batch[0], now_ms):
        return [Verdict(batch[0].run, Outcome.COMMITTED)]
    pool.require()
    return rules.commit(
        batch,
        _is_quick,
        # Sorted by run: two batches that share runs lock their rows in one order.
        lambda quick: _append(pool, sorted(quick, key=_run_of), now_ms, wakes),
        lambda others: pool.write(lambda tx: _apply_all(tx, others), finish),
    )


def _run_of(one: Commit) -> str:
    return one.run  # every transaction locks rows in this order


def _is_quick(one: Commit) -> bool:
    """Return whether a commit only appends to its run, or completes it, and refers to no blobs."""
    if not one.records or not (one.is_plain or one.is_plain_end or one.is_plain_if):
        return False
    for record in one.records:  # noqa: SIM110 (the hot path)
        if record.blobs:
            return False
    return True


def _append_one(pool: Pool, one: Commit, now_ms: int | None) -> bool:
    """Append the only record of a commit that does nothing else, if it is valid and the fence holds."""
    if len(one.records) != 1 or not one.is_plain:
        return False
    record = one.records[0]
    if (
        record.blobs
        # Output wakes readers, and `append_one` notifies no channel.
        or record.kind is Kind.OUTPUT
        or validation.fault_in(one)
        or not validation.is_text(one.run)
    ):
        return False
    fence = (one.run, one.epoch, one.length, one.head, record.check, one.effect_length)
    content = (now_ms, record.kind, record.step, record.at_ms, record.body, record.step_kind, record.took_ms)
    return pool.ask("append_one", fence + content + rows.sums_of(one.tally)) == _ONE


def _append(pool: Pool, batch: Sequence[Commit], now_ms: int | None, wakes: Wakes) -> set[str]:
    """Append to the runs whose row is as the commit expects (owner, length, head); return which."""
    required = {required for one in batch for required in one.requires}
    if len(required) > 1:
        return set()  # a rare mixture, for the rules
    ends, emits = any(one.change for one in batch), any(run_rules.emits(one) for one in batch)
    channels, doors = wakes(ends, emits)
    values = _many(batch) | {"now": now_ms, "version": _VERSION, "channels": channels, "doors": doors}
    if not required:
        ((positions, _),) = pool.ask("append_many", values)
    else:
        ((name, version),) = map(astuple, required)
        values |= {
            "needs": [bool(one.requires) for one in batch],
            "required": name,
            "required_version": version,
        }
        # The lock first, by a statement of its own:
        # one that waits for a lock goes on with the version of before.
        ((positions, _),) = pool.ask("append_many", values, after=("lock_documents", ([name], [False])))
    return {batch[position - 1].run for position in positions}


def _many(batch: Sequence[Commit]) -> dict[str, Any]:
    more = [(position, record) for position, one in enumerate(batch, 1) for record in one.records[1:]]
    return {
        "runs": [one.run for one in batch],
        "epochs": [one.epoch for one in batch],
        "lengths": [one.length for one in batch],
        "heads": [one.head for one in batch],
        "new_lengths": [one.new_length for one in batch],
        "new_heads": [one.new_head for one in batch],
        "effects": [run_rules.effect_length_of(one) for one in batch],
        "ends": [one.change is not None for one in batch],
        **_sums(batch),
        **_FREE,
        **_columns([one.records[0] for one in batch], ""),
        "owners": [position for position, _ in more],
        "more_seqs": [record.seq for _, record in more],
        **_columns([record for _, record in more], "more_"),
    }


def _sums(batch: Sequence[Commit]) -> dict[str, Any]:
    columns = zip(*(rows.sums_of(one.tally) for one in batch), strict=True)
    return dict(zip(_SUMS, map(list, columns), strict=True))


def _columns(records: Sequence[Record], prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}kinds": [record.kind for record in records],
        f"{prefix}steps": [record.step for record in records],
        f"{prefix}times": [record.at_ms for record in records],
        f"{prefix}bodies": [record.body for record in records],
        f"{prefix}checks": [record.check for record in records],
        f"{prefix}step_kinds": [record.step_kind for record in records],
        f"{prefix}took": [record.took_ms for record in records],
    }


def _apply_all(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    tables = Tables(tx)
    tables.lock_documents(batch)
    quick = sorted((one for one in batch if _is_quick(one) and not one.requires), key=_run_of)
    done = _append_in(tx, quick) if quick else set()
    others = [one for one in batch if one.run not in done]
    return [Verdict(run, Outcome.COMMITTED) for run in done] + rules.apply(tx, tables, others)


def _append_in(tx: Transaction, quick: Sequence[Commit]) -> set[str]:
    """Append the quick commits of a batch within a larger transaction."""
    values = _many(quick) | {"now": tx.given_now_ms, "version": _VERSION, "channels": [], "doors": []}
    ((positions, _),) = tx.all("append_many", values)
    done = [quick[position - 1] for position in positions]
    # The statement was sent as a query: without this the
    # transaction would be rolled back as one that wrote nothing.
    tx.is_changed = tx.is_changed or bool(done)
    tx.wakes = tx.wakes or any(one.change for one in done)
    tx.emits = tx.emits or any(run_rules.emits(one) for one in done)
    return {one.run for one in done}
