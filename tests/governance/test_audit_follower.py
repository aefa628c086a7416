"""The follower of the audit log: what runs have recorded is logged once, whichever follower is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import LeaseLost
from ninelives.core.model.run import Control, Kind, State
from ninelives.governance.audit_log import entries, follower, tiles
from ninelives.governance.audit_log.follower import Follower, catch_up
from ninelives.governance.audit_log.journal_facts import digest_of
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.crash.killing import KillingStore, KillPoint
from tests.governance.audit_scene import answered, ended, killed, logged, of_kind


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()


def test_asks_answers_and_ends_are_logged_once(bench: Bench) -> None:
    before = ended(bench, bench.running("before"))
    entries.switch(bench.store, on=True, by="ada")
    follow = Follower(bench.store)
    run = answered(bench, bench.running("r1"), by="eve")
    assert follow.follow() == 3  # also of a run that had ended before the log was switched on
    assert follow.follow() == 0
    run = answered(bench, run)
    assert Follower(bench.reopen()).follow() == 2
    run = bench.write(run, b"x", kind=Kind.DOUBT)
    run = ended(bench, run, State.FAILED)
    assert catch_up(bench.store) == 2
    assert Follower(bench.reopen()).follow() == follow.follow() == 0
    assert [(one["by"], one["says"], one["note"]) for one in of_kind(bench.store, "answered")] == [
        ("eve", "approved", "fine"),
        ("ada", "approved", "fine"),
    ]
    assert [one["record"] for one in of_kind(bench.store, "asked")] == [1, 3]
    assert len(of_kind(bench.store, "in doubt")) == 1
    (first, end) = of_kind(bench.store, "run ended")
    assert (first["run"], first["state"]) == (before.id, "completed")
    records = bench.store.load_journal("r1", since=0).records
    assert (end["state"], end["length"], end["head"]) == ("failed", run.length, run.head.hex())
    assert end["sha256"] == digest_of(records)
    # A retried run ends a second time.
    bench.store.control_run("r1", Control.RETRY)
    ended(bench, bench.claim("r1"))
    assert catch_up(bench.store) == 1
    assert [one["state"] for one in of_kind(bench.store, "run ended")][-1] == "completed"


def test_nothing_is_followed_while_the_log_is_off(bench: Bench) -> None:
    ended(bench, bench.running("r1"))
    assert catch_up(bench.store) == 0
    assert follower.logged_before_ms(bench.store) is None
    assert bench.store.read_documents("auditlog/") == []


def test_many_runs_and_two_followers_at_once(bench: Bench) -> None:
    entries.switch(bench.store, on=True)
    bench.session("s1", lease_ms=1_000_000)
    for number in range(150):
        bench.create(f"r{number}")
        bench.store.control_run(f"r{number}", Control.CANCEL)
    stores, faults = [bench.reopen(), bench.reopen()], []

    def work(store: Any) -> None:
        try:
            catch_up(store)
        except LeaseLost:
            pass
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in stores]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    catch_up(bench.store)
    assert not faults
    assert sorted(one["run"] for one in of_kind(bench.store, "run ended")) == sorted(
        f"r{number}" for number in range(150)
    )


def test_a_damaged_run_is_logged_as_damaged_and_stops_no_other(bench: Bench) -> None:
    entries.switch(bench.store, on=True)
    ended(bench, bench.running("r1"))
    ended(bench, bench.running("r2"))
    bench.damage("r1", 1)
    catch_up(bench.store)
    found = {one["run"]: one.get("fault", "") for one in of_kind(bench.store, "run ended")}
    assert "damaged" in found["r1"]
    assert found["r2"] == ""


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_follower_killed_at_any_call_logs_each_thing_once(
    side: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_ENTRIES", 2)  # one batch fills several
    for number in count(1):
        home = tmp_path / str(number)
        home.mkdir()
        bench = make_bench("sqlite", SteppingClock(), home)
        entries.switch(bench.store, on=True)
        run = answered(bench, bench.running("r1"))
        ended(bench, bench.running("r2"))
        bench.close()  # a database is not opened before a fork and used after it

        def work(bench: Bench = bench, number: int = number) -> None:
            store = KillingStore(bench.open(), KillPoint(number, side))
            entries.append(store, "halt", id="h1")
            Follower(store).follow()

        was_killed = killed(work)
        bench = make_bench("sqlite", SteppingClock(), home)
        entries.append(bench.store, "halt", id="h1")
        catch_up(bench.store)
        assert sorted(one["kind"] for one in logged(bench.store)) == [
            "answered",
            "asked",
            "audit on",
            "halt",
            "run ended",
        ]
        bench.close()
        del run
        if not was_killed:
            assert number > 15
            return


def test_a_store_that_was_copied_is_followed_from_its_beginning(tmp_path: Path) -> None:
    bench = make_bench("sqlite", SteppingClock(), tmp_path)
    entries.switch(bench.store, on=True)
    ended(bench, bench.running("r1"))
    catch_up(bench.store)
    state, version = follower.read_state(bench.store)
    import msgspec
    from msgspec.structs import replace

    other = replace(state, cursor=state.cursor.replace("since", "hence"))
    bench.store.write_document(follower.FOLLOWER, msgspec.json.encode(other), version=version)
    ended(bench, bench.running("r2"))
    assert catch_up(bench.store) == 1
    bench.close()
