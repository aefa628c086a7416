"""The walk over a store in parts: what `verify` finds, from any position on; and proved duplicates."""

from __future__ import annotations

import pytest

from ninelives.core.journal.replay import write_body
from ninelives.core.journal.settlement import write_start
from ninelives.core.model.key import SettleKey
from ninelives.core.model.run import Kind, RunRow
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.store import Fault, Sample
from tests.contract.benches import Bench
from tests.contract.makers import new_item, reserve, walked


def filled(bench: Bench, runs: int = 7) -> None:
    """Write some of everything."""
    for number in range(runs):
        (digest,) = bench.store.put_blobs([b"large %d" % number])
        run = bench.running(f"r{number}", labels={"n": str(number)})
        run = bench.write(run, b"", blobs=(digest,), keys=[reserve(f"k{number}")])
        bench.write(run, b"x", kind=Kind.LOG, opens=[new_item(f"i{number}")])
        bench.store.send_signal(run.id, "go", b"1")
        bench.store.write_document(f"d/{number}", b"1", version=0)


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_a_walk_in_parts_reads_everything_and_comes_to_an_end(bench: Bench, limit: int) -> None:
    filled(bench)
    faults, parts = walked(bench.store, limit)
    assert faults == []
    assert sum(part.runs for part in parts) == 7
    assert max((part.at, part.of) for part in parts) == (7, 7)


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_a_walk_in_parts_finds_what_verify_finds(bench: Bench, limit: int) -> None:
    filled(bench)
    bench.damage("r2", 1)
    bench.lose_blob(bench.store.load_journal("r4", since=0).records[1].blobs[0])
    bench.lose_row("items", "r5", "i5")
    wanted = bench.store.verify()
    assert {fault.run for fault in wanted} >= {"r2", "r4"}
    assert sorted(walked(bench.store, limit)[0], key=str) == sorted(wanted, key=str)


def test_a_lost_reference_to_a_blob_is_a_fault(bench: Bench) -> None:
    filled(bench)
    (settled,) = bench.store.put_blobs([b"settled"])
    start = write_start(Fingerprint(b"f", b"{}"), k="k", l=60_000)
    run = bench.write(bench.running("s"), start, kind=Kind.INTENT, keys=[reserve()])
    bench.write(run, b"x", kind=Kind.LOG, keys=[SettleKey("k", b"", (settled,))])
    assert bench.store.verify() == []
    (recorded,) = bench.store.load_journal("r3", since=0).records[1].blobs
    bench.lose_reference("r3", recorded)
    bench.lose_reference("s", settled)
    lost = {(fault.run, fault.what.split(":")[0]) for fault in bench.store.verify()}
    assert lost == {("r3", f"blob {recorded.hex()}"), ("s", f"blob {settled.hex()}")}


def test_a_walk_goes_on_in_another_process(bench: Bench) -> None:
    filled(bench)
    bench.damage("r6", 1)
    found: list[Fault] = []
    position = ""
    while True:
        part = bench.reopen().verify_part(position, limit=2)
        found += part.faults
        position = part.position
        if not position:
            break
    assert {fault.run for fault in found} == {"r6"}


def test_a_busy_store_does_not_keep_a_walk_from_its_end(bench: Bench) -> None:
    filled(bench, 3)
    part = bench.store.verify_part(limit=1)
    for number in range(200):
        if not part.position:
            break
        bench.create(f"new{number}", due_ms=2**50)
        part = bench.store.verify_part(part.position, limit=1)
        assert part.faults == ()
    assert part.position == ""


def test_a_position_of_another_version_begins_again(bench: Bench) -> None:
    filled(bench, 2)
    first = bench.store.verify_part(limit=1)
    assert bench.store.verify_part("moons:17", limit=1) == first


def test_a_sample_is_a_share_and_every_run_is_in_one_sooner_or_later(bench: Bench) -> None:
    filled(bench, 30)
    bench.damage("r17", 1)
    seen = []
    for salt in range(60):
        faults, parts = walked(bench.store, 100, Sample(0.2, salt))
        seen.append(sum(part.runs for part in parts))
        if "r17" in {fault.run for fault in faults}:
            break
    else:
        raise AssertionError("the damaged run was in no sample")
    assert max(seen) < 20


# Proved duplicates --------------------------------------------------------------------------------


def started(bench: Bench, run: RunRow, number: int, key: str = "") -> RunRow:
    """Start a non-resumable action, as the engine does."""
    body = write_start(Fingerprint(b"f", b"{}"), n=number, l=60_000, k=key)
    return bench.write(run, body, kind=Kind.INTENT)


def kinds(faults: list[Fault]) -> list[tuple[str | None, str]]:
    return [(fault.run, fault.duplicate) for fault in faults if fault.duplicate]


def test_two_outcomes_of_a_step_are_a_proved_duplicate(bench: Bench) -> None:
    run = bench.write(bench.running(), write_body(None, value=b"1"))
    assert bench.store.verify() == []
    bench.write(run, write_body(None, value=b"2"))
    (fault,) = bench.store.verify()
    assert (fault.run, fault.duplicate, fault.what) == ("r1", "recorded", "step step#0 has two outcomes")


def test_two_starts_of_a_non_resumable_action_are_a_proved_duplicate(bench: Bench) -> None:
    run = started(bench, bench.running(), 0)
    body = write_start(Fingerprint(b"f", b"{}"), n=0, t=5)
    run = bench.write(run, body, kind=Kind.VOIDED)
    run = started(bench, run, 1)
    assert bench.store.verify() == []
    started(bench, run, 2)
    faults = bench.store.verify()
    assert kinds(faults) == [("r1", "once")]
    assert "record 3 and again by record 4" in faults[0].what


def test_a_resumable_step_may_be_begun_again(bench: Bench) -> None:
    run = bench.running()
    for _ in range(3):
        run = bench.write(run, write_body(None, value=b"1"), kind=Kind.INTENT)
    run = bench.write(run, write_body(None, value=b"1"))
    bench.write(run, b"{}", kind=Kind.WITHDRAWN)
    assert bench.store.verify() == []


def test_two_runs_that_settled_one_key_are_a_proved_duplicate(bench: Bench) -> None:
    for name in ("r1", "r2"):
        start = write_start(Fingerprint(b"f", b"{}"), k="k", l=60_000)
        run = bench.write(bench.running(name), start, kind=Kind.INTENT, keys=[reserve(resumable=False)])
        bench.write(run, write_body(None, value=b"7"), keys=[SettleKey("k", b"7")])
        if name == "r1":
            bench.lose_row("keys", "r1", "k")
    assert kinds(bench.store.verify()) == [("r1", "key")]
