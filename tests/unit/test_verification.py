"""Verification after a recovery: the journal against itself and the dedup table, and what is held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.journal.replay import write_body
from ninelives.core.journal.settlement import write_start
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import Kind, Record
from ninelives.core.rules.recovery_check import faults_of_keys, summary_of
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.store import Store
from ninelives.views.recoveries import last_recovery
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life

TAKEN_MS = 1_000
ASKED = Fingerprint(b"f", b"{}")
ROW = Key(
    key="refund:1",
    action="refund",
    fingerprint=b"f",
    run="run",
    resumable=False,
    state=KeyState.RESERVED,
    generation=0,
    body=b"",
    blobs=(),
    changed_ms=500,
)


def told(*kinds: Kind) -> tuple[Record, ...]:
    """Return the records of one action with a key, in order."""
    starts = (Kind.INTENT, Kind.DOUBT, Kind.VOIDED)
    return tuple(
        Record(seq, kind, "#refund#0", 0, write_start(ASKED, k=ROW.key) if kind in starts else OUTCOMES[kind])
        for seq, kind in enumerate(kinds, 1)
    )


OUTCOMES = {
    Kind.RESULT: write_body(None, value=b'"paid"'),
    Kind.FAILURE: write_body(None, error=b"{}"),
    Kind.SUPERSEDED: b"{}",
}
SETTLED = replace(ROW, state=KeyState.SETTLED, body=b'"paid"')


@pytest.mark.parametrize(
    ("kinds", "row"),
    [
        ((Kind.INTENT,), ROW),
        ((Kind.INTENT, Kind.DOUBT), replace(ROW, state=KeyState.IN_DOUBT)),
        ((Kind.INTENT, Kind.VOIDED), replace(ROW, state=KeyState.FREE)),
        ((Kind.INTENT, Kind.RESULT), SETTLED),
        ((Kind.INTENT, Kind.RESULT), replace(ROW, state=KeyState.PRUNED)),
        ((Kind.INTENT, Kind.FAILURE), replace(ROW, state=KeyState.IN_DOUBT)),
        ((Kind.INTENT,), replace(SETTLED, run="another")),  # it took over what this one had left
        ((Kind.INTENT,), replace(SETTLED, changed_ms=TAKEN_MS)),  # by the life that goes on
        ((Kind.INTENT, Kind.SUPERSEDED), replace(ROW, state=KeyState.ORPHANED)),
    ],
)
def test_a_table_that_tells_what_the_journal_tells_is_sound(kinds: tuple[Kind, ...], row: Key) -> None:
    summary = summary_of(told(*kinds))
    assert summary.faults + faults_of_keys("run", summary.keys, {row.key: row}, TAKEN_MS) == ()


@pytest.mark.parametrize(
    ("kinds", "row", "words"),
    [
        ((Kind.INTENT,), None, "does not have it"),
        ((Kind.INTENT,), SETTLED, "settled by this run, whose record 1 has no outcome"),
        ((Kind.INTENT, Kind.DOUBT), replace(ROW, state=KeyState.FREE), "free by this run"),
        ((Kind.INTENT, Kind.RESULT), ROW, "reserved, though record 2 is its result"),
        ((Kind.INTENT, Kind.RESULT), replace(SETTLED, body=b'"lost"'), "another result"),
        ((Kind.INTENT, Kind.VOIDED), ROW, "nothing is under way"),
    ],
)
def test_a_table_that_tells_something_else_is_found(
    kinds: tuple[Kind, ...], row: Key | None, words: str
) -> None:
    keys = summary_of(told(*kinds)).keys
    (fault,) = faults_of_keys("run", keys, {row.key: row} if row is not None else {}, TAKEN_MS)
    assert fault.startswith("key 'refund:1': ")
    assert words in fault


def test_two_outcomes_of_a_step_are_found() -> None:
    summary = summary_of(told(Kind.INTENT, Kind.RESULT, Kind.RESULT))
    assert summary.faults == ("step #refund#0 has two outcomes",)


def recovered(store: Store, meanwhile: Callable[[], object], file: Path) -> Verified:
    """Let a run with keys and a file be left and taken over; returns what was verified then."""
    stage = Stage()

    @nl.action(name="refund", key="refund:{order}", resumable=False)
    async def refund(order: int) -> str:
        return "paid"

    @nl.action(name="status", key="status:{order}")
    async def status(order: int) -> str:
        await stage.stop_here()
        return "open"

    @nl.agent(name="clerk", on_stale=lambda _: None)
    async def clerk() -> str:
        nl.hold(nl.File(file))
        return await refund(1) + await status(2)

    async def main() -> None:
        await first_life(stage, store, clerk)
        meanwhile()
        assert await second_life(store, clerk) == "paidopen"

    run_async(main)
    (entry,) = (one for one in store.read_log(run="run") if one.kind is Happening.RECOVERED)
    return msgspec.json.decode(entry.body, type=Recovery).verified


def test_a_recovery_compares_the_keys_and_looks_at_what_is_held(tmp_path: Path) -> None:
    store, file = QuickStore(), tmp_path / "notes"
    file.write_text("as it was")
    found = recovered(store, lambda: None, file)
    assert (found.keys, found.resources, found.checked) == (2, 1, 1)
    assert found.faults == found.stale == ()
    assert "2 keys, 1 of 1 held resource" in last_recovery(store, "run")


def test_a_recovery_tells_which_resource_was_not_as_it_was(tmp_path: Path) -> None:
    store, file = QuickStore(), tmp_path / "notes"
    file.write_text("as it was")
    found = recovered(store, lambda: file.write_text("changed"), file)
    assert [str(file) in one for one in found.stale] == [True]
    assert f"changed since: file {str(file)!r}" in last_recovery(store, "run")
