"""What operators do: migrate, measure, verify, prune."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, Corrupt, KeyConflict
from ninelives.core.journal.answers import write_asking
from ninelives.core.journal.replay import write_body, write_signal
from ninelives.core.journal.settlement import write_start
from ninelives.core.model.commit import End, Outcome, Park
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.key import DoubtKey, KeyState, ReleaseKey, SettleKey
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.rules import run_rules as rules
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.store import Pruned
from tests.contract.benches import Bench
from tests.contract.makers import append, new_item, new_run, reserve

NOTHING = Pruned(journals=0, records=0, blobs=0, keys=0, runs=0)


def ended(bench: Bench, id: str = "r1", **parts: object) -> RunRow:
    """Let a run end now, and a moment pass."""
    run = bench.write(bench.running(id), b"x", change=End(State.COMPLETED), **parts)
    bench.clock.advance(1)
    return run


def prune(bench: Bench, ended_before_ms: int | None = None, forget_before_ms: int = 0) -> Pruned:
    before = bench.clock.now_ms() if ended_before_ms is None else ended_before_ms
    return bench.store.prune(ended_before_ms=before, forget_before_ms=forget_before_ms)


def test_a_store_of_this_version_has_nothing_to_migrate(bench: Bench) -> None:
    bench.create()
    before, after = bench.reopen().migrate()
    assert before == after
    assert bench.row("r1").id == "r1"


def test_stats_count_what_there_is(bench: Bench) -> None:
    empty = bench.store.stats()
    assert set(empty.runs.values()) == {0}
    assert set(empty.runs) == set(State)
    bench.store.put_blobs([b"one", b"two"])
    bench.write(bench.running(), b"12345", b"67", opens=[new_item(), new_item("i2")], keys=[reserve()])
    ended(bench, "r2", opens=[new_item("i3")])
    bench.store.create_runs([new_run("r3")])
    stats = bench.store.stats()
    assert {state.value: count for state, count in stats.runs.items() if count} == {
        "pending": 1,
        "running": 1,
        "completed": 1,
    }
    assert (stats.records, stats.record_bytes) == (6, 3 * 2 + 5 + 2 + 1)
    assert (stats.blobs, stats.keys, stats.open_items, stats.sessions) == (2, 1, 2, 1)
    assert stats.blob_bytes > 0


# Verify ------------------------------------------------------------------------------------------


def test_a_sound_store_has_no_faults_and_tells_its_progress(bench: Bench) -> None:
    bench.store.put_blobs([b"garbage is no fault"])
    bench.write(bench.running(), b"x", keys=[reserve()])
    ended(bench, "r2", keys=[reserve("k2", resumable=False)])
    told: list[tuple[int, int]] = []
    assert bench.store.verify(lambda done, total: told.append((done, total))) == []
    assert told[-1] == (2, 2)
    assert bench.store.verify() == []


def test_verify_names_the_damaged_run_and_no_other(bench: Bench) -> None:
    bench.write(bench.running(), b"x")
    bench.write(bench.running("r2"), b"x")
    bench.damage("r1", 1)
    faults = bench.store.verify()
    assert {fault.run for fault in faults} == {"r1"}
    assert all(fault.what for fault in faults)


def test_verify_finds_a_lost_blob(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    bench.write(bench.running(), b"", blobs=(digest,))
    bench.lose_blob(digest)
    faults = bench.store.verify()
    assert [fault.run for fault in faults] == ["r1"]
    assert digest.hex() in faults[0].what


def keyed(bench: Bench, run: RunRow, *, settles: bool, key: str = "k") -> RunRow:
    """Start an action with a business key, as the engine does; and end it."""
    start = write_start(Fingerprint(b"f", b"{}"), k=key)
    run = bench.write(run, start, kind=Kind.INTENT, keys=[reserve(key, resumable=False)])
    if not settles:
        return run
    return bench.write(run, write_body(None, value=b"7"), keys=[SettleKey(key, b"7")])


def signalled(bench: Bench, run: RunRow, *, takes: bool) -> RunRow:
    """Send a signal, and take it as the engine does."""
    number, row = bench.store.send_signal(run.id, "go", b"1").number, bench.row(run.id)
    if not takes:
        return row
    return bench.write(row, write_signal(number, b"1"), kind=Kind.SIGNAL, takes=[number])


def asked(bench: Bench, run: RunRow, *, id: str = "i1") -> RunRow:
    """Ask a person, as the engine does."""
    body = write_asking(id, ItemKind.QUESTION, is_open=True)
    return bench.write(run, body, kind=Kind.ASKED, opens=[new_item(id)])


@pytest.mark.parametrize(
    ("settles", "ends"), [(True, False), (True, True), (False, False), (False, True)], ids=str
)
def test_verify_finds_a_lost_key(bench: Bench, settles: bool, ends: bool) -> None:
    run = keyed(bench, bench.running(), settles=settles)
    if ends:
        bench.write(run, b"{}", kind=Kind.END, change=End(State.COMPLETED))
    assert bench.store.verify() == []
    bench.lose_row("keys", "r1", "k")
    (fault,) = bench.store.verify()
    assert fault.run == "r1"
    assert "'k'" in fault.what


def test_verify_finds_a_key_that_a_second_run_used_because_its_row_was_lost(bench: Bench) -> None:
    keyed(bench, bench.running(), settles=True)
    bench.lose_row("keys", "r1", "k")
    keyed(bench, bench.running("r2"), settles=True)
    (fault,) = bench.store.verify()
    assert fault.run == "r1"
    assert "'r2'" in fault.what


def test_verify_finds_a_lost_key_of_a_run_that_failed_and_was_retried(bench: Bench) -> None:
    run = keyed(bench, bench.running(), settles=True)
    bench.write(run, b'{"steps":["step#0"]}', kind=Kind.SUPERSEDED)
    assert bench.store.verify() == []
    bench.lose_row("keys", "r1", "k")
    assert [fault.run for fault in bench.store.verify()] == ["r1"]


def test_keys_that_were_forgotten_on_purpose_are_no_faults(bench: Bench) -> None:
    run = keyed(bench, bench.running(), settles=True)
    bench.write(run, b"{}", kind=Kind.END, change=End(State.COMPLETED))
    bench.clock.advance(1)
    again = replace(reserve(resumable=False), window_ms=1, fingerprint=b"b")
    second = bench.write(bench.running("r2"), write_start(Fingerprint(b"f", b"{}"), k="k"), keys=[again])
    assert bench.store.verify() == []  # used again after its window
    bench.write(second, b"8", kind=Kind.END, keys=[SettleKey("k", b"8")], change=End(State.COMPLETED))
    bench.clock.advance(1)
    prune(bench)
    assert bench.store.verify() == []


def test_a_key_of_a_resumable_action_that_ended_with_its_run_is_no_fault(bench: Bench) -> None:
    start = write_start(Fingerprint(b"f", b"{}"), k="k")
    run = bench.write(bench.running(), start, kind=Kind.INTENT, keys=[reserve()])
    bench.write(run, b"{}", kind=Kind.END, change=End(State.FAILED))
    assert bench.store.read_keys(["k"])["k"].state is KeyState.FREE
    assert bench.store.verify() == []


def test_the_records_that_a_fork_took_over_hold_no_rows(bench: Bench) -> None:
    start = write_start(Fingerprint(b"f", b"{}"), k="k")
    run = bench.write(bench.running(), start, kind=Kind.INTENT)
    run = bench.write(run, write_asking("i9", ItemKind.QUESTION, is_open=True), kind=Kind.ASKED)
    assert len(bench.store.verify()) == 2
    bench.write(run, b"{}", kind=Kind.FORKED)
    assert bench.store.verify() == []


@pytest.mark.parametrize("takes", [True, False], ids=["taken", "waiting"])
def test_verify_finds_a_lost_signal(bench: Bench, takes: bool) -> None:
    run = signalled(bench, bench.running(), takes=takes)
    signalled(bench, run, takes=takes)
    assert bench.store.verify() == []
    bench.lose_row("signals", "r1", "1")
    faults = bench.store.verify()
    assert {fault.run for fault in faults} == {"r1"}
    assert "signal 1 " in faults[0].what


def test_verify_finds_a_lost_question(bench: Bench) -> None:
    asked(bench, asked(bench, bench.running()), id="i2")
    assert bench.store.verify() == []
    bench.lose_row("items", "r1", "i1")
    assert [(fault.run, "'i1'" in fault.what) for fault in bench.store.verify()] == [("r1", True)]


def test_verify_finds_a_run_whose_session_is_lost(bench: Bench) -> None:
    bench.running()
    assert bench.store.verify() == []
    bench.lose_row("sessions", "r1", "s1")
    assert [(fault.run, "'s1'" in fault.what) for fault in bench.store.verify()] == [("r1", True)]


def test_rows_that_were_pruned_with_their_journal_are_no_faults(bench: Bench) -> None:
    run = keyed(bench, bench.running(), settles=True)
    run = asked(bench, signalled(bench, run, takes=True))
    signalled(bench, run, takes=False)
    bench.write(bench.row("r1"), b"{}", kind=Kind.END, change=End(State.COMPLETED))
    assert bench.store.verify() == []
    bench.clock.advance(1)
    assert prune(bench).journals == 1
    assert bench.store.verify() == []


def test_a_live_run_whose_earlier_turns_were_pruned_has_no_faults(bench: Bench) -> None:
    run = asked(bench, signalled(bench, keyed(bench, bench.running(), settles=True), takes=True))
    for _ in range(3):
        run = bench.write(run, b"{}", kind=Kind.TURN)
        run = signalled(bench, run, takes=True)
    assert prune(bench).records > 0
    assert bench.store.verify() == []


# Prune -------------------------------------------------------------------------------------------


def test_an_empty_store_has_nothing_to_prune(bench: Bench) -> None:
    assert prune(bench) == NOTHING


def test_a_pruned_run_keeps_its_row_head_and_length(bench: Bench) -> None:
    before = ended(bench, opens=[new_item()])
    assert prune(bench) == replace(NOTHING, journals=1, records=2)
    after = bench.row("r1")
    assert after == replace(before, base=2, base_check=before.head)
    journal = bench.store.load_journal("r1")
    assert (journal.first, journal.records, journal.signals, journal.items) == (2, (), (), ())
    assert bench.store.load_journal("r1", since=0) == journal
    assert bench.store.list_inbox(answered=True) == []
    assert bench.store.verify() == []


def test_pruning_again_changes_nothing_more(bench: Bench) -> None:
    ended(bench, keys=[reserve(), SettleKey("k", b"")])
    prune(bench)
    before = bench.snapshot()
    bench.clock.advance(1)
    assert prune(bench) == NOTHING
    assert bench.snapshot() == before


def test_only_runs_that_ended_before_the_moment_are_pruned(bench: Bench) -> None:
    moment = bench.clock.now_ms()
    ended(bench)
    bench.write(bench.running("live"), b"x")
    assert prune(bench, moment) == NOTHING
    assert prune(bench, moment + 1).journals == 1
    assert len(bench.store.load_journal("live").records) == 2


def test_the_moment_of_the_end_is_not_moved_by_what_comes_later(bench: Bench) -> None:
    moment = bench.clock.now_ms()
    ended(bench, "parent")
    bench.clock.advance(5)
    ended(bench, "child", keys=[reserve()])
    bench.store.create_runs([new_run("parent")])
    assert prune(bench, moment + 1).journals == 1
    assert bench.row("parent").base == 2


def test_settled_keys_become_tombstones_that_refuse(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    ended(
        bench,
        keys=[
            reserve("k"),
            SettleKey("k", b"secret", (digest,)),
            reserve("k2", resumable=False),
            DoubtKey("k2"),
        ],
    )
    settled_ms = bench.store.read_keys(["k"])["k"].changed_ms
    bench.clock.advance(5)
    assert prune(bench).keys == 1
    keys = bench.store.read_keys(["k", "k2"])
    assert (keys["k"].state, keys["k"].body, keys["k"].blobs) == ("pruned", b"", ())
    assert keys["k"].changed_ms == settled_ms
    assert keys["k2"].state is KeyState.ORPHANED
    (verdict,) = bench.store.commit([append(bench.running("next"), b"x", keys=[reserve()])])
    assert verdict.outcome is Outcome.REFUSED
    assert isinstance(verdict.error, KeyConflict)


def test_a_key_that_is_another_runs_by_now_is_left_alone(bench: Bench) -> None:
    ended(bench, keys=[reserve(), ReleaseKey("k")])
    bench.write(bench.running("next"), b"x", keys=[reserve(), SettleKey("k", b"kept")])
    bench.clock.advance(1)
    assert prune(bench).keys == 0
    assert bench.store.read_keys(["k"])["k"].body == b"kept"


def test_live_runs_keep_the_current_and_the_previous_turn(bench: Bench) -> None:
    run = bench.running()
    for body in (b"one", b"two"):
        run = bench.write(run, body, kind=Kind.TURN)
        run = bench.write(run, b"step")
        assert prune(bench) == (NOTHING if body == b"one" else replace(NOTHING, records=1))
    run = bench.write(bench.row("r1"), b"three", kind=Kind.TURN)
    assert (run.base, run.length, run.turn) == (1, 6, 3)
    assert prune(bench) == replace(NOTHING, records=2)
    assert bench.row("r1").base == 3
    journal = bench.store.load_journal("r1", since=0)
    assert [record.body for record in journal.records] == [b"two", b"step", b"three"]
    assert [record.body for record in bench.store.load_journal("r1").records] == [b"three"]
    assert bench.store.verify() == []
    bench.write(bench.row("r1"), b"more")
    assert bench.store.verify() == []


def test_a_shortened_journal_is_still_chained(bench: Bench) -> None:
    run = bench.running()
    for body in (b"one", b"two", b"three"):
        run = bench.write(run, body, kind=Kind.TURN)
    prune(bench)
    assert bench.row("r1").base == 2
    assert bench.store.load_journal("r1", since=3).first == 3


def test_rows_of_runs_that_ended_before_the_other_moment_go_too(bench: Bench) -> None:
    moment = bench.clock.now_ms()
    ended(bench, keys=[reserve(), SettleKey("k", b"")])
    ended(bench, "younger")
    bench.create("live")
    assert prune(bench, 0, moment + 1) == Pruned(journals=1, records=2, blobs=0, keys=1, runs=1)
    assert bench.store.read_run("r1") is None
    assert bench.store.read_run("younger") is not None
    assert bench.store.read_keys(["k"])["k"].state is KeyState.PRUNED
    assert bench.store.verify() == []


def test_rows_whose_journals_went_before_are_forgotten_later(bench: Bench) -> None:
    ended(bench)
    prune(bench)
    assert prune(bench, 0, bench.clock.now_ms()) == replace(NOTHING, runs=1)
    assert bench.store.read_run("r1") is None


def test_numbers_of_forgotten_runs_are_not_used_again(bench: Bench) -> None:
    ended(bench)
    prune(bench, 0, bench.clock.now_ms())
    assert bench.create().number == 2


def test_blobs_that_nothing_refers_to_go_after_a_while(bench: Bench) -> None:
    used, unused = bench.store.put_blobs([b"used", b"unused"])
    bench.write(bench.running(), b"", blobs=(used,), change=Park(None, "", 0))
    bench.clock.advance(rules.BLOB_GRACE_MS)
    assert prune(bench).blobs == 0
    bench.clock.advance(1)
    assert prune(bench).blobs == 1
    assert bench.store.get_blobs([used]) == {used: b"used"}
    with pytest.raises(Corrupt):
        bench.store.get_blobs([unused])


def test_a_known_blob_put_again_waits_for_its_record_as_a_new_one_does(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"x"])
    bench.clock.advance(rules.BLOB_GRACE_MS)
    bench.store.put_blobs([b"x"])
    bench.clock.advance(1)
    assert prune(bench).blobs == 0
    bench.write(bench.running(), b"", blobs=(digest,))


def test_blobs_of_pruned_journals_go(bench: Bench) -> None:
    record, key = bench.store.put_blobs([b"of the record", b"of the key"])
    ended(bench, blobs=(record,), keys=[reserve(), SettleKey("k", b"", (key,))])
    bench.clock.advance(rules.BLOB_GRACE_MS)
    assert prune(bench, 0).blobs == 0
    pruned = prune(bench)
    assert (pruned.journals, pruned.blobs) == (1, 2)
    assert bench.store.stats().blobs == 0


def test_the_blob_of_a_settled_key_stays_while_its_run_does(bench: Bench) -> None:
    (large,) = bench.store.put_blobs([b"of the key alone"])
    run = bench.write(bench.running(), b"x", keys=[reserve()])
    bench.write(run, b"y", keys=[SettleKey("k", b"", (large,))])
    bench.clock.advance(2 * rules.BLOB_GRACE_MS)
    assert prune(bench).blobs == 0
    assert bench.store.get_blobs([large]) == {large: b"of the key alone"}


def test_a_blob_that_another_run_refers_to_stays(bench: Bench) -> None:
    (shared,) = bench.store.put_blobs([b"shared"])
    ended(bench, blobs=(shared,))
    bench.write(bench.running("other"), b"", blobs=(shared,), change=Park(None, "", 0))
    bench.clock.advance(2 * rules.BLOB_GRACE_MS)
    assert prune(bench) == replace(NOTHING, journals=1, records=2)
    assert bench.store.get_blobs([shared]) == {shared: b"shared"}
    assert bench.store.verify() == []


def test_a_record_cannot_refer_to_a_pruned_blob(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"x"])
    bench.clock.advance(rules.BLOB_GRACE_MS + 1)
    prune(bench)
    (verdict,) = bench.store.commit([append(bench.running(), b"", blobs=(digest,))])
    assert verdict.outcome is Outcome.REFUSED
    assert isinstance(verdict.error, BadRecord)
