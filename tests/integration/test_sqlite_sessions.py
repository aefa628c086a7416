"""Session locks: a killed process is known at once, a live one left alone, a stopped one keeps its lease."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from ninelives.core.errors import IdConflict, LeaseLost
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, Evidence, Fate
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files.session_locks import SessionLocks
from tests.contract.makers import AGENTS, new_run, new_session
from tests.integration.conftest import Opener, Starter

LONG_MS = 1_000_000


class ShiftedClock(SystemClock):
    """The machine's clock, moved ahead by hand."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock, shifted."""
        return super().now_ms() + self.ahead_ms

    def boot_ms(self) -> int:
        """Return milliseconds since boot, shifted."""
        return super().boot_ms() + self.ahead_ms


class AfterReboot(SystemClock):
    """The clock of the same machine, booted again."""

    @property
    def boot_id(self) -> str:
        """Name another boot."""
        return "11111111-2222-4333-8444-555555555555"


def ended(store: SqliteStore) -> list[tuple[str, Cause | None]]:
    """End what is provably gone; return who and why."""
    return [(session.id, session.cause) for session in store.end_sessions(None, Cause.STOPPED)]


def test_a_killed_process_is_ended_at_once_and_its_runs_fall_due(opened: Opener, started: Starter) -> None:
    store = opened()
    store.create_runs([new_run()])
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    row = store.read_run("r1")
    assert row is not None
    assert row.session == "worker"
    assert ended(store) == []
    child.kill()
    assert ended(store) == [("worker", Cause.DIED)]
    row = store.read_run("r1")
    assert row is not None
    assert (row.state, row.session, row.deaths) == (State.CHECKPOINTED, None, 1)
    store.register_session(new_session("next"))
    assert [run.epoch for run in store.claim_runs("next", 1, AGENTS).runs] == [3]
    assert ended(store) == []


def test_a_live_process_is_never_ended_before_its_lease_is_over(opened: Opener, started: Starter) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    child = started("hold", "worker", 60_000)
    assert child.read() == "ready"
    clock.ahead_ms = 50_000
    assert ended(store) == []
    assert child.ask() == "worker"


def test_a_stopped_process_is_ended_only_when_its_lease_is_over(opened: Opener, started: Starter) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    child = started("hold", "worker", 60_000)
    assert child.read() == "ready"
    child.stop()
    for clock.ahead_ms in (0, 30_000, 50_000):
        assert ended(store) == []
    clock.ahead_ms = 60_001
    assert ended(store) == [("worker", Cause.EXPIRED)]
    child.resume()
    assert child.ask().startswith("LeaseLost")


def test_a_child_that_outlives_its_worker_does_not_keep_the_session_alive(
    opened: Opener, started: Starter
) -> None:
    store = opened()
    child = started("fork", "worker")
    assert child.read() == "ready"
    assert ended(store) == []
    child.kill()
    assert ended(store) == [("worker", Cause.DIED)]
    assert child.ask() == "outlived"


def test_a_child_that_outlives_a_writer_does_not_keep_others_from_writing(
    opened: Opener, started: Starter
) -> None:
    store = opened(lock_timeout_seconds=1.0)
    child = started("die_writing")
    assert {child.read(), child.read()} == {"forked", "ready"}
    child.kill()
    store.create_runs([new_run()])
    assert child.ask() == "outlived"


def test_sessions_of_an_earlier_boot_are_over(opened: Opener) -> None:
    before = opened()
    before.register_session(new_session("old", lease_ms=LONG_MS))
    before.create_runs([new_run()])
    before.claim_runs("old", 1, AGENTS)
    after = opened(clock=AfterReboot())
    after.register_session(new_session("new", lease_ms=LONG_MS))
    assert next(session.left_ms for session in after.list_sessions()) == 0
    assert ended(after) == [("old", Cause.EXPIRED)]
    row = after.read_run("r1")
    assert row is not None
    assert row.session is None
    with pytest.raises(LeaseLost):
        before.renew_session("old")


def test_a_missing_lock_file_proves_nothing(path: Path, opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    for file in path.with_name(path.name + "-live").glob("*.session"):
        file.unlink()
    child.kill()
    assert ended(store) == []


def test_lock_files_of_sessions_that_are_over_are_removed(
    path: Path, opened: Opener, started: Starter
) -> None:
    store = opened()
    store.register_session(new_session("stops"))
    child = started("hold", "dies", LONG_MS)
    assert child.read() == "ready"
    live = path.with_name(path.name + "-live")
    assert len(list(live.glob("*.session"))) == 2
    child.kill()
    ended(store)
    store.end_sessions(["stops"], Cause.STOPPED)
    assert list(live.glob("*.session")) == []


def test_another_object_of_the_same_process_is_another_holder(opened: Opener) -> None:
    first, second = opened(), opened()
    first.register_session(new_session("s1"))
    with pytest.raises(IdConflict):
        second.register_session(new_session("s1"))
    assert ended(second) == []
    assert ended(first) == []
    assert first.renew_session("s1").id == "s1"


def test_closing_a_store_ends_its_sessions_for_who_looks(opened: Opener) -> None:
    first, second = SqliteStore(opened().path), opened()
    first.register_session(new_session("s1", lease_ms=LONG_MS))
    first.close()
    assert ended(second) == [("s1", Cause.DIED)]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "x" * 200, "ünï", "%s{}:*?"])
def test_ids_never_become_paths(path: Path, opened: Opener, name: str) -> None:
    store = opened()
    before = set(path.parent.rglob("*"))
    store.register_session(new_session(name))
    (made,) = {one for one in set(path.parent.rglob("*")) - before if one.suffix == ".session"}
    assert made.parent == path.with_name(path.name + "-live")
    assert made.stem.isalnum()


def test_a_refused_registration_does_not_touch_the_holders_lock(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    with pytest.raises(IdConflict):
        store.register_session(new_session("worker"))
    assert ended(store) == []
    child.kill()
    assert ended(store) == [("worker", Cause.DIED)]


def fate(store: SqliteStore, session: str) -> Fate:
    """Return what the store knows of a session."""
    found = store.read_session(session)
    assert found is not None
    return found.fate


def test_a_killed_process_is_known_to_be_gone(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    assert fate(store, "worker") is Fate.LIVES
    child.kill()
    assert fate(store, "worker") is Fate.GONE
    ended(store)
    assert fate(store, "worker") is Fate.GONE


def test_a_session_that_expired_lives_on_until_its_process_is_gone(opened: Opener, started: Starter) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    child = started("hold", "worker", 60_000)
    assert child.read() == "ready"
    child.stop()
    clock.ahead_ms = 60_001
    assert ended(store) == [("worker", Cause.EXPIRED)]
    assert fate(store, "worker") is Fate.LIVES
    child.kill()
    assert fate(store, "worker") is Fate.GONE


@pytest.mark.parametrize(("keeper", "known"), [("", Fate.GONE), ("keeper", Fate.UNKNOWN)])
def test_the_lock_file_of_an_expired_session_is_swept_when_its_process_is_gone(
    path: Path, opened: Opener, started: Starter, keeper: str, known: Fate
) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    live = path.with_name(path.name + "-live")
    child = started("hold", "worker", 60_000, *filter(None, [keeper]))
    assert child.read() == "ready"
    child.stop()
    clock.ahead_ms = 60_001
    assert ended(store) == [("worker", Cause.EXPIRED)]
    assert ended(store) == []
    assert len(list(live.glob("*.session"))) == 1  # its process lives: the lock will tell
    child.kill()
    assert fate(store, "worker") is known
    assert ended(store) == []
    assert list(live.glob("*.session")) == []
    assert fate(store, "worker") is known  # what the file told is kept
    store.end_sessions(["worker"], Cause.DIED, evidence={"worker": Evidence(is_gone=True)})
    assert fate(store, "worker") is Fate.GONE


def test_the_lock_file_of_an_expired_session_is_removed_when_its_keeper_proves_it_gone(
    path: Path, opened: Opener, started: Starter
) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    live = path.with_name(path.name + "-live")
    child = started("hold", "worker", 60_000, "keeper")
    assert child.read() == "ready"
    child.stop()
    clock.ahead_ms = 60_001
    assert ended(store) == [("worker", Cause.EXPIRED)]
    child.kill()
    assert store.end_sessions(["worker"], Cause.DIED, evidence={"worker": Evidence(is_gone=True)}) == []
    assert fate(store, "worker") is Fate.GONE
    assert list(live.glob("*.session")) == []


def test_a_dead_session_is_left_to_its_keeper_who_alone_can_prove_it_gone(
    opened: Opener, started: Starter
) -> None:
    store = opened()
    store.create_runs([new_run()])
    store.register_session(new_session("boss", lease_ms=LONG_MS))
    child = started("hold", "worker", LONG_MS, "boss")
    assert child.read() == "ready"
    child.kill()
    assert ended(store) == []
    assert fate(store, "worker") is Fate.UNKNOWN
    store.end_sessions(["worker"], Cause.DIED, evidence={"worker": Evidence(is_gone=True, signal=9)})
    assert fate(store, "worker") is Fate.GONE


def test_a_dead_session_of_a_dead_keeper_is_ended_by_anybody_and_its_fate_stays_unknown(
    opened: Opener, started: Starter
) -> None:
    store = opened()
    store.create_runs([new_run()])
    boss, child = started("hold", "boss", LONG_MS), started("hold", "worker", LONG_MS, "boss")
    assert (boss.read(), child.read()) == ("ready", "ready")
    boss.kill()
    assert ended(store) == [("boss", Cause.DIED)]
    assert fate(store, "worker") is Fate.LIVES
    child.kill()
    assert ended(store) == [("worker", Cause.DIED)]
    assert fate(store, "worker") is Fate.UNKNOWN
    assert store.end_sessions(["worker"], Cause.DIED, evidence={"worker": Evidence(is_gone=True)}) == []
    assert fate(store, "worker") is Fate.GONE


def test_a_kept_session_whose_lease_is_over_is_ended_by_anybody(opened: Opener, started: Starter) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    store.register_session(new_session("boss", lease_ms=LONG_MS))
    child = started("hold", "worker", 60_000, "boss")
    assert child.read() == "ready"
    child.stop()
    clock.ahead_ms = 60_001
    assert ended(store) == [("worker", Cause.EXPIRED)]


def test_nothing_of_an_earlier_boot_is_left(opened: Opener) -> None:
    before = opened()
    before.register_session(new_session("old", lease_ms=LONG_MS, keeper="boss"))
    after = opened(clock=AfterReboot())
    assert ended(after) == [("old", Cause.EXPIRED)]
    assert fate(after, "old") is Fate.GONE


def test_a_death_wakes_who_waits_and_its_runs_fall_due(opened: Opener, started: Starter) -> None:
    store = opened()
    store.create_runs([new_run()])
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    while store.wait_for_work(0):
        pass
    if store._files.wake._deaths is None or store._files.wake._deaths.fd < 0:
        pytest.skip("the kernel gives no inotify instance: the poll beneath finds the dead")
    child.kill()
    assert store.wait_for_work(30)
    found = store.read_session("worker")
    assert found is not None
    assert (found.cause, found.fate) == (Cause.DIED, Fate.GONE)
    row = store.read_run("r1")
    assert row is not None
    assert row.session is None


def test_looking_whether_others_live_wakes_nobody(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("hold", "worker", LONG_MS)
    assert child.read() == "ready"
    while store.wait_for_work(0):
        pass
    assert ended(store) == []
    assert [session.id for session in store.list_sessions()] == ["worker"]
    assert not store.wait_for_work(0)


def test_two_who_look_at_once_do_not_take_each_other_for_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SessionLocks(tmp_path), SessionLocks(tmp_path)
    one.hold("worker")
    assert other.is_held("worker") is True
    one.close()
    flock, seen = fcntl.flock, list[bool | None]()

    def look_meanwhile(fd: int, how: int) -> None:
        flock(fd, how)
        monkeypatch.setattr(fcntl, "flock", flock)
        seen.append(one.is_held("worker"))

    monkeypatch.setattr(fcntl, "flock", look_meanwhile)
    assert other.is_held("worker") is False
    assert seen == [False]
