"""Many threads, two objects, one file: consistent; and pruning lets writers through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from ninelives.core.errors import StoreUnavailable
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.run import RunQuery, State
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files.write_queue import WritersQueue
from tests.contract.makers import append, damage_in, new_run, new_session, reserve
from tests.integration.conftest import Opener, Starter
from tests.integration.roles import advance

LONG_SECONDS = 60.0
THREADS, COMMITS = 6, 12


def together(works: Sequence[Callable[[], object]]) -> None:
    """Run all at once; raise what any of them raises."""
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], object]) -> None:
        start.wait(LONG_SECONDS)
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for one in [pool.submit(begin, work) for work in works]:
            one.result(LONG_SECONDS)


def test_two_objects_and_many_threads_on_one_file_are_consistent(opened: Opener) -> None:
    stores = [opened(), opened()]
    stores[0].register_session(new_session(lease_ms=1_000_000))

    def work(number: int) -> None:
        store, other = stores[number % 2], stores[(number + 1) % 2]
        name = f"r{number}"
        store.create_runs([new_run(name, agent=name)])
        (row,) = other.claim_runs("s1", 1, {name: 1}).runs
        for commit in range(COMMITS):
            row = advance(store if commit % 2 else other, row, append(row, b"%d" % commit))
            other.send_signal(name, "tick", b"", id=f"{commit}")
            assert len(other.load_journal(name, since=0).records) == commit + 2
        store.renew_session("s1")

    def writer(number: int) -> Callable[[], None]:
        return lambda: work(number)

    together([writer(number) for number in range(THREADS)])
    for number in range(THREADS):
        journal = stores[0].load_journal(f"r{number}", since=0)
        assert [record.body for record in journal.records[1:]] == [b"%d" % one for one in range(COMMITS)]
        assert [signal.number for signal in journal.signals] == list(range(1, COMMITS + 1))
    assert damage_in(stores[1]) == []
    numbers = sorted(run.number for run in stores[0].list_runs(RunQuery(limit=100)))
    assert numbers == list(range(1, THREADS + 1))


def test_of_many_threads_one_gets_the_key_and_one_the_run(opened: Opener) -> None:
    stores = [opened(), opened()]
    stores[0].register_session(new_session(lease_ms=1_000_000))
    names = [f"r{number}" for number in range(THREADS)]
    stores[0].create_runs([new_run(name, agent="helper") for name in names])
    claimed: list[str] = []
    outcomes: list[Outcome] = []

    def work(number: int) -> None:
        store = stores[number % 2]
        (row,) = store.claim_runs("s1", 1, {"helper": 1}).runs
        claimed.append(row.id)
        (verdict,) = store.commit([append(row, b"x", keys=[reserve("k", resumable=False)])])
        outcomes.append(verdict.outcome)

    def worker(number: int) -> Callable[[], None]:
        return lambda: work(number)

    together([worker(number) for number in range(THREADS)])
    assert sorted(claimed) == names
    assert sorted(outcomes) == [Outcome.COMMITTED] + [Outcome.HELD] * (THREADS - 1)


def test_a_writer_gets_through_while_the_store_is_pruned(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(), opened()
    store.register_session(new_session())
    store.create_runs([new_run(f"r{number}") for number in range(250)])
    for run in store.claim_runs("s1", 250, {"helper": 250}).runs:
        store.commit([append(run, b"x", change=End(State.COMPLETED))])
    between: list[int] = []
    write = store._files.write

    def interrupted(*args: object, **named: object) -> object:
        # Between any two of its transactions, somebody else writes, and in the middle of none.
        other.create_runs([new_run(f"new{len(between)}", agent="other")])
        between.append(other.stats().records)
        return write(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(store._files, "write", interrupted)
    pruned = store.prune(ended_before_ms=store.now_ms() + 1000)
    assert (pruned.journals, pruned.records) == (250, 500)
    assert len(between) >= 6
    removed = [before - after + 1 for before, after in pairwise(between)]
    assert max(removed) <= 200, "one transaction removed too much at once"
    assert damage_in(store) == []


def test_writers_of_other_threads_get_through_while_the_store_is_pruned(opened: Opener) -> None:
    store, other = opened(), opened()
    store.register_session(new_session())
    store.create_runs([new_run(f"r{number}") for number in range(400)])
    for run in store.claim_runs("s1", 400, {"helper": 400}).runs:
        store.commit([append(run, bytes(2000), change=End(State.COMPLETED))])
    soon = store.now_ms() + 1000
    together(
        [
            lambda: store.prune(ended_before_ms=soon, forget_before_ms=soon),
            lambda: [other.create_runs([new_run(f"new{number}")]) for number in range(20)],
        ]
    )
    assert len(store.list_runs(RunQuery(limit=1000))) == 20
    assert damage_in(store) == []


# The writers' queue ------------------------------------------------------------------------------


def test_a_stopped_writer_holds_others_up_only_for_a_while(opened: Opener, started: Starter) -> None:
    store = opened(lock_timeout_seconds=0.3)
    child = started("die_writing")
    assert {child.read(), child.read()} == {"forked", "ready"}
    child.stop()
    with pytest.raises(StoreUnavailable, match=r"0\.3 s") as caught:
        store.create_runs([new_run()])
    assert caught.value.remedy
    assert store.read_run("r1") is None
    assert store.list_runs(RunQuery()) == []


def test_renewals_pass_writers_who_wait_at_the_door(path: Path, opened: Opener) -> None:
    store = opened(lock_timeout_seconds=LONG_SECONDS)
    store.register_session(new_session())
    door = WritersQueue(path.with_name(path.name + "-live"), LONG_SECONDS)
    door._enter("next.lock")  # somebody waits at the door
    try:
        assert store.renew_session("s1").id == "s1"
    finally:
        door.close()


def test_a_queue_that_gave_up_holds_nothing(tmp_path: Path) -> None:
    first, second, third = (WritersQueue(tmp_path, 0.05) for _ in range(3))
    first.acquire()
    with pytest.raises(StoreUnavailable):
        second.acquire()
    with pytest.raises(StoreUnavailable):
        second.acquire(urgent=True)
    first.release()
    third.acquire()
    third.release()
    for queue in (first, second, third):
        queue.close()


def test_errors_of_one_thread_do_not_end_the_others_transactions(opened: Opener) -> None:
    store: SqliteStore = opened()

    def fail() -> None:
        for _ in range(20):
            with pytest.raises(RuntimeError):
                store._files.write(_breaks)

    def write() -> None:
        for number in range(20):
            store.create_runs([new_run(f"r{number}")])

    together([fail, write])
    assert len(store.list_runs(RunQuery(limit=100))) == 20
    assert store.read_run("half") is None
    assert damage_in(store) == []


def _breaks(tx: object) -> None:
    from ninelives.stores.sqlite import claims as ownership

    ownership.create(tx, [new_run("half")], None)  # type: ignore[arg-type]
    raise RuntimeError("in the middle of a transaction")
