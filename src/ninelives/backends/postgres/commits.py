"""The write path: many runs in one transaction, a verdict for each.

A batch in which every commit only appends is one statement, and one round trip: a conditional update of all
rows, which is the fence, and the insert of all records. Made twice, the second one finds nothing to update;
that is how a lost answer is resolved. Any other batch takes two round trips or more: what it may touch is
locked and loaded, the reference's rules are applied, and what has changed is written with the COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ninelives.backends.memory import commits as rules
from ninelives.backends.postgres.lines import Before, Lines
from ninelives.backends.postgres.queries import migrations
from ninelives.backends.postgres.tables import Tables
from ninelives.backends.postgres.transaction import Transaction, append_all
from ninelives.core import faults, runs
from ninelives.core.commits import Commit, Outcome, Verdict
from ninelives.core.errors import UsageError
from ninelives.core.model import Record

Wakes = Callable[[bool, bool], tuple[list[str], list[int]]]
"""Which channels to notify, and their doors, when there is work, and when there is output."""


def commit(lines: Lines, batch: Sequence[Commit], wakes: Wakes, finish: Before) -> list[Verdict]:
    """Apply a batch; see `Store.commit`."""
    if len({one.run for one in batch}) != len(batch):
        raise UsageError("a run occurs twice in one batch", remedy="Merge its commits, or send them apart")
    verdicts: dict[str, Verdict] = {}
    sound: list[Commit] = []
    for one in batch:
        fault = faults.fault_in(one)
        if fault is None and faults.is_text(one.run):
            sound.append(one)
        else:
            verdicts[one.run] = Verdict(one.run, Outcome.REFUSED, fault or faults.unknown_run(one.run))
    left = sound
    if sound and all(_is_quick(one) for one in sound):
        emits = wakes(False, any(runs.emits(one) for one in sound))
        done = set(lines.ask(lambda tx: _append(tx, "append_plain", sound, emits)))
        verdicts.update({run: Verdict(run, Outcome.COMMITTED) for run in done})
        left = [one for one in sound if one.run not in done]
    if left:
        rest = lines.write(lambda tx: _apply_all(tx, left), finish)
        verdicts.update({verdict.run: verdict for verdict in rest})
    return [verdicts[one.run] for one in batch]


def _is_quick(one: Commit) -> bool:
    return bool(one.records) and one.is_plain and not any(record.blobs for record in one.records)


def _is_quick_end(one: Commit) -> bool:
    return bool(one.records) and one.is_plain_end and not any(record.blobs for record in one.records)


def _append(
    tx: Transaction, statement: str, batch: Sequence[Commit], emits: tuple[list[str], list[int]]
) -> list[str]:
    """Append to the runs that are their owners' and as their owners know them; returns which."""
    ordered = sorted(batch, key=lambda one: one.run)
    records = [(one.run, record) for one in ordered for record in one.records]
    values = _fences(ordered) | _columns(records)
    channels, doors = emits
    values |= {"now": tx.given_now_ms, "version": len(migrations()), "channels": channels, "doors": doors}
    ((done, *_),) = tx.all(statement, values)
    return list(done)


def _fences(batch: Sequence[Commit]) -> dict[str, Any]:
    return {
        "runs": [one.run for one in batch],
        "epochs": [one.epoch for one in batch],
        "lengths": [one.length for one in batch],
        "heads": [one.head for one in batch],
        "new_lengths": [one.new_length for one in batch],
        "new_heads": [one.new_head for one in batch],
        "effects": [runs.effect_length_of(one) for one in batch],
    }


def _columns(records: Sequence[tuple[str, Record]]) -> dict[str, Any]:
    return {
        "owners": [run for run, _ in records],
        "seqs": [record.seq for _, record in records],
        "kinds": [record.kind.value for _, record in records],
        "steps": [record.step for _, record in records],
        "times": [record.at_ms for _, record in records],
        "bodies": [record.body for _, record in records],
        "checks": [record.check for _, record in records],
    }


def _apply_all(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    done = set(_end_all(tx, [one for one in batch if _is_quick_end(one)]))
    others = [one for one in batch if one.run not in done]
    tables = Tables(tx)
    tables.prepare(others)
    wanted = [digest for one in others for digest in runs.blobs_in(one)]
    known = {digest for (digest,) in tx.all("known_blobs", (wanted,))} if wanted else set()
    verdicts = [Verdict(run, Outcome.COMMITTED) for run in done]
    appended = []
    for one in others:
        verdict, is_written = rules.write(tables.rows, known, one, tx.now_ms)
        verdicts.append(verdict)
        if is_written:
            appended.append((tables.runs[one.run].number, one.records))
            tx.wakes = tx.wakes or not one.is_plain
            tx.emits = tx.emits or runs.emits(one)
    tables.write_back()
    append_all(tx, appended)
    return verdicts


def _end_all(tx: Transaction, ending: Sequence[Commit]) -> list[str]:
    """Complete the runs whose end touches no other run, if their owners know them; returns which."""
    if not ending:
        return []
    done = _append(tx, "append_end", ending, ([], []))
    if done:
        tx.is_changed = tx.wakes = True
    return done
