"""Work that is done every so often, by one process at a time, whichever of them is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ninelives.core.errors import (
    Corrupt,
    LeaseLost,
    StoreBroken,
    StoreUnavailable,
    UnknownRun,
)
from ninelives.core.model.run import Journal
from ninelives.ops import retention
from ninelives.ops.periodic import Periodic, Turn
from ninelives.ops.retention import Retained, Retention
from ninelives.store import Pruned
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.contract.makers import new_run
from tests.crash import processes
from tests.crash.stores import AnyStore, open_at

_DAY, _HOUR_MS, _DAY_MS = 86_400.0, 3_600_000, 86_400_000
_NOTHING = Pruned(journals=0, records=0, blobs=0, keys=0, runs=0)
_KEPT = Retention(keep_ms=0, agents={}, forget_ms=None, log_ms=0)


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def store(clock: SteppingClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def _started(turn: Turn | None) -> Turn:
    assert turn is not None
    return turn


def test_a_turn_is_due_at_once_and_then_every_so_often(store: MemoryStore, clock: SteppingClock) -> None:
    audit = Periodic(store, "audit", _DAY)
    turn = _started(audit.begin())
    clock.advance(30_000)
    turn.succeed()
    assert audit.begin() is None
    assert audit.wait_seconds() == 60.0  # never longer than a claim: the document may be removed or changed
    clock.advance(_DAY_MS - 30_001)
    assert audit.begin() is None
    clock.advance(1)
    assert _started(audit.begin()).started_ms == clock.now_ms()


def test_one_process_at_a_time(store: MemoryStore, clock: SteppingClock) -> None:
    one, other = Periodic(store, "audit", _DAY), Periodic(store, "audit", _DAY)
    turn = _started(one.begin())
    assert other.begin() is None
    assert other.begin(at_once=True) is None
    for _ in range(10):
        clock.advance(30_000)
        turn.renew()
        assert other.begin() is None
    assert Periodic(store, "prune", _DAY).begin() is not None


def test_a_claim_that_is_not_renewed_lapses_and_its_owner_finds_out(
    store: MemoryStore, clock: SteppingClock
) -> None:
    audit = Periodic(store, "audit", _DAY, lapse_seconds=60)
    turn = _started(audit.begin())
    began_ms = clock.now_ms()
    clock.advance(59_999)
    assert audit.begin() is None
    clock.advance(1)
    second = _started(audit.begin())
    assert second.started_ms == began_ms  # it is the same work, which was cut off
    for late in (turn.renew, turn.succeed, lambda: turn.fail("x")):
        with pytest.raises(LeaseLost):
            late()
    second.succeed()
    assert audit.read().succeeded_ms == clock.now_ms()


def test_two_that_begin_at_one_moment_do_not_both_get_the_turn(store: MemoryStore) -> None:
    real, inner = store.read_clock, Periodic(store, "audit", _DAY)
    won: list[Turn | None] = []

    def read_clock() -> int:
        store.read_clock = real  # type: ignore[method-assign]
        won.append(inner.begin())  # after the outer one has read the document, and before it writes
        return real()

    store.read_clock = read_clock  # type: ignore[method-assign]
    assert Periodic(store, "audit", _DAY).begin() is None
    assert won[0] is not None


def test_a_failed_turn_is_tried_again_after_growing_pauses(store: MemoryStore, clock: SteppingClock) -> None:
    audit = Periodic(store, "audit", _DAY)
    pauses = []
    for _ in range(3):
        _started(audit.begin()).fail("disk full")
        pauses.append(audit.wait_seconds())
        assert audit.begin() is None
        clock.advance(int(pauses[-1] * 1000))
    assert pauses == [5.0, 10.0, 20.0]
    assert audit.read().fault == "disk full"
    _started(audit.begin()).succeed()
    assert (audit.read().failures, audit.read().fault) == (0, "")


@pytest.mark.parametrize("back_ms", [-_HOUR_MS, -100 * _DAY_MS])
def test_a_clock_that_is_set_back_stops_nothing(
    store: MemoryStore, clock: SteppingClock, back_ms: int
) -> None:
    audit = Periodic(store, "audit", _DAY)
    turn = _started(audit.begin())
    clock.jump(back_ms)
    second = _started(audit.begin())  # the claim cannot be so far ahead: its owner may be long dead
    with pytest.raises(LeaseLost):
        turn.succeed()
    second.succeed()
    clock.jump(back_ms)
    assert audit.begin() is not None


def test_repeat_notes_failures_and_ends_with_the_process(store: MemoryStore, clock: SteppingClock) -> None:
    audit = Periodic(store, "audit", 3600)
    done: list[int] = []
    faults: list[BaseException] = [Corrupt("a row"), StoreUnavailable("away"), StoreBroken("unknown")]

    def work(turn: Turn) -> None:
        done.append(clock.now_ms())
        if faults:
            raise faults.pop(0)

    def wait(seconds: float) -> bool:
        clock.advance(int(seconds * 1000))
        return len(done) == 6

    with pytest.raises(StoreBroken):
        audit.repeat(work, wait)
    assert [later - done[0] for later in done] == [0, 5_000, 15_000]
    audit.repeat(work, wait)
    assert [later - done[0] for later in done[4:]] == [3_600_000, 7_200_000]


def test_a_stopped_process_gives_its_turn_back(store: MemoryStore) -> None:
    def work(turn: Turn) -> None:
        raise KeyboardInterrupt

    audit = Periodic(store, "audit", _DAY)
    with pytest.raises(KeyboardInterrupt):
        audit.repeat(work, lambda _: True)
    assert audit.begin() is not None


# Real processes -----------------------------------------------------------------------------------

_LAPSE, _EVERY, _PIECES = 0.3, 0.05, 5


def _worker(home: Path) -> None:
    store = open_at(home)
    ledger = os.open(home / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(turn: Turn) -> None:
        for piece in range(_PIECES):
            turn.renew()
            os.write(ledger, f"{os.getpid()} {turn.started_ms} {piece}\n".encode())
            time.sleep(0.005)

    Periodic(store, "audit", _EVERY, lapse_seconds=_LAPSE).repeat(work, _wait)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _lines(home: Path) -> list[list[str]]:
    ledger = home / "ledger"
    return [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []


def _killed(home: Path, is_ripe: Callable[[], bool], pids: dict[int, None]) -> int:
    """Kill the process that works when the moment has come."""
    processes.until(is_ripe)
    victim = int(_lines(home)[-1][0])
    processes.kill(victim)
    del pids[victim]
    return victim


def test_two_processes_take_turns_and_a_killed_one_is_replaced(ground: Path) -> None:
    pids = dict.fromkeys(processes.fork(lambda: _worker(ground)) for _ in range(2))
    try:
        for _ in range(3):
            before = len(_lines(ground))
            victim = _killed(ground, lambda: len(_lines(ground)) > before + 2, pids)  # noqa: B023
            cut = len(_lines(ground))
            # The one that is left goes on within the time of a claim, whoever had the turn.
            processes.until(lambda: len(_lines(ground)) > cut + _PIECES, 10.0)  # noqa: B023
            assert all(int(pid) != victim for pid, _, _ in _lines(ground)[cut:])
            pids[processes.fork(lambda: _worker(ground))] = None
    finally:
        for pid in pids:
            processes.kill(pid)
    _judge(_lines(ground), open_at(ground))


def _judge(lines: list[list[str]], store: AnyStore) -> None:
    """Each turn that is not the last of a killed process was done whole, by one process."""
    turns: list[list[list[str]]] = []
    for line in lines:
        if not turns or turns[-1][-1][:2] != line[:2] or line[2] == "0":
            turns.append([])
        turns[-1].append(line)
    assert all([int(piece) for _, _, piece in turn] == list(range(len(turn))) for turn in turns)
    assert sum(len(turn) < _PIECES for turn in turns) <= 5, turns
    assert Periodic(store, "audit", _EVERY).read().succeeded_ms
    store.close()


def test_a_long_prune_keeps_its_turn(
    store: MemoryStore, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_LAPSE_SECONDS", 0.6)
    other = Periodic(store, "retention", _DAY, lapse_seconds=0.6)
    taken: list[Turn | None] = []

    def prune(**_: object) -> Pruned:
        for _step in range(5):
            before_ms, deadline = other.read().until_ms, time.monotonic() + 5
            clock.advance(400)
            while other.read().until_ms == before_ms and time.monotonic() < deadline:
                time.sleep(0.01)
            taken.append(other.begin())
        return _NOTHING

    monkeypatch.setattr(store, "prune", prune)
    reports: list[Retained] = []
    retention.repeat(store, _KEPT, _DAY, reports.append, lambda _: True)
    assert taken == [None] * 5
    assert len(reports) == 1
    assert other.read().is_done


def test_a_run_that_is_forgotten_meanwhile_is_not_among_the_largest(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_runs([new_run("gone"), new_run("there")])
    real = store.load_journal

    def load_journal(run: str, *, since: int | None = None) -> Journal:
        if run == "gone":
            raise UnknownRun("there is no run 'gone'")
        return real(run, since=since)

    monkeypatch.setattr(store, "load_journal", load_journal)
    assert [one.run for one in retention.largest(store, 5)] == ["there"]
