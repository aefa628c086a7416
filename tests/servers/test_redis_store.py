"""What is Redis's own: round trips, lost answers, settings, damage, wake-ups."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast
from urllib.parse import urlsplit

import pytest

from ninelives.core.errors import Corrupt, StoreUnavailable
from ninelives.core.model.commit import End, Outcome, Park
from ninelives.core.model.key import SettleKey, WaitKey
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.session import Cause
from ninelives.stores.redis import RedisStore, pruning
from ninelives.stores.redis.run_rows import read_runs
from ninelives.stores.redis.server import server_checks
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.connection import ServerConnection
from ninelives.stores.redis.server.lost_writes import Lineage
from ninelives.stores.redis.sessions import end
from ninelives.stores.redis.tables import Tables
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.commit_rules import apply
from ninelives.stores.shared.inbound import send_signal
from ninelives.stores.shared.sessions import Ending
from tests.contract.makers import AGENTS, append, damage_in, new_run, new_session, reserve
from tests.servers.proxy import Proxy
from tests.servers.valkey import shared_url

T = TypeVar("T")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Yield a proxy before the shared server."""
    with Proxy(urlsplit(shared_url()).port or 6379) as made:
        yield made


@pytest.fixture
def far(redis_url: str, proxy: Proxy) -> Iterator[RedisStore]:
    """Yield a store that speaks through the proxy."""
    port = urlsplit(redis_url).port
    store = RedisStore(redis_url.replace(f":{port}/", f":{proxy.port}/"))
    yield store
    store.close()


def running(store: RedisStore, name: str = "r1") -> RunRow:
    """Create a run and claim it."""
    store.create_runs([new_run(name)])
    if store.read_session("s1") is None:
        store.register_session(new_session("s1", lease_ms=1_000_000))
    (run,) = store.claim_runs("s1", 1, AGENTS).runs
    return run


def until(look: Callable[[], T]) -> T:
    """Look until there is something to see."""
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def row(store: RedisStore, name: str = "r1") -> RunRow:
    found = store.read_run(name)
    assert found is not None
    return found


def test_a_process_with_a_session_knows_the_time_without_asking(far: RedisStore, proxy: Proxy) -> None:
    far.register_session(new_session("s1"))
    before, asked_ms = proxy.round_trips, far.read_clock()
    assert proxy.round_trips > before
    for renews in (False, True):
        if renews:
            far.renew_session("s1")
        before = proxy.round_trips
        known_ms = [far.now_ms() for _ in range(100)]
        assert proxy.round_trips - before < 5  # other threads may speak meanwhile
        assert known_ms == sorted(known_ms)
        assert asked_ms - 1000 <= known_ms[0] <= known_ms[-1] <= far.read_clock() + 1000


def test_a_step_of_a_single_run_takes_one_round_trip_and_its_end_two(far: RedisStore, proxy: Proxy) -> None:
    run = running(far)
    for _ in range(2):  # the first time, the server learns the script
        far.commit([append(run, b"1")])
        run = row(far)
    before = proxy.round_trips
    far.commit([append(run, b"1")])
    assert proxy.round_trips - before == 1
    before = proxy.round_trips
    far.commit([append(row(far), b"1", change=End(State.COMPLETED))])
    assert proxy.round_trips - before == 1 + 2  # read_run is one of them
    assert row(far).state is State.COMPLETED


NTH = pytest.mark.parametrize("nth", range(1, 6))
"""Which answer is lost: that of a question, that of a write, or none, where an operation takes fewer."""


@NTH
def test_an_append_whose_answer_was_lost_counts_once(far: RedisStore, proxy: Proxy, nth: int) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"only once")])
    assert verdict.outcome is Outcome.COMMITTED
    assert proxy.cuts == (nth == 1)
    assert row(far).length == run.length + 1
    assert damage_in(far) == []


@NTH
def test_a_signal_whose_answer_was_lost_is_sent_once(far: RedisStore, proxy: Proxy, nth: int) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    sent = far.send_signal(run.id, "paid", b"1")
    assert [one.number for one in far.load_journal(run.id).signals] == [sent.number] == [1]


@NTH
def test_a_claim_whose_answer_was_lost_is_still_answered(far: RedisStore, proxy: Proxy, nth: int) -> None:
    far.create_runs([new_run("r1")])
    far.register_session(new_session("s1", lease_ms=1_000_000))
    proxy.lose_answer(nth)
    claimed = far.claim_runs("s1", 1, AGENTS).runs
    assert [(run.id, run.epoch) for run in claimed] == [("r1", 1)]
    assert (row(far).session, row(far).epoch) == ("s1", 1)


@NTH
def test_a_birth_whose_answer_was_lost_is_still_the_session_s(
    far: RedisStore, proxy: Proxy, nth: int
) -> None:
    far.register_session(new_session("s1", lease_ms=1_000_000))
    proxy.lose_answer(nth)
    (made,) = far.create_runs([new_run("r1")], session="s1")
    assert made == row(far)
    assert (row(far).session, row(far).epoch, row(far).length) == ("s1", 1, 1)
    assert damage_in(far) == []


@NTH
def test_a_session_whose_answer_was_lost_is_registered_once(far: RedisStore, proxy: Proxy, nth: int) -> None:
    proxy.lose_answer(nth)
    assert far.register_session(new_session("s1", lease_ms=1_000_000)).id == "s1"
    assert far.renew_session("s1").left_ms > 0


@NTH
def test_a_key_and_an_end_whose_answers_were_lost_count_once(far: RedisStore, proxy: Proxy, nth: int) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"1", keys=[reserve("k")])])
    assert verdict.outcome is Outcome.COMMITTED
    assert far.read_keys(["k"])["k"].run == run.id
    run = row(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"2", change=End(State.COMPLETED))])
    assert (verdict.outcome, row(far).state) == (Outcome.COMMITTED, State.COMPLETED)
    assert row(far).length == run.length + 1
    assert damage_in(far) == []


def test_a_server_that_cannot_be_reached_is_unavailable(far: RedisStore, proxy: Proxy) -> None:
    run = running(far)
    proxy.stop()
    with pytest.raises(StoreUnavailable):
        far.send_signal(run.id, "paid", b"1")


def test_signals_that_are_sent_at_once_are_all_there_and_numbered(redis_url: str) -> None:
    stores = [RedisStore(redis_url) for _ in range(4)]
    run = running(stores[0])

    def send(store: RedisStore) -> list[int]:
        return [store.send_signal(run.id, "go", b"").number for _ in range(25)]

    with ThreadPoolExecutor(4) as threads:
        numbers = [number for sent in threads.map(send, stores) for number in sent]
    assert sorted(numbers) == list(range(1, 101))
    journal = stores[0].load_journal(run.id)
    assert (len(journal.signals), journal.run.news) == (100, 100)
    assert damage_in(stores[0]) == []
    for store in stores:
        store.close()


def test_runs_that_many_want_are_each_given_once(redis_url: str) -> None:
    stores = [RedisStore(redis_url) for _ in range(4)]
    stores[0].create_runs([new_run(f"r{number}") for number in range(80)])
    for number, store in enumerate(stores):
        store.register_session(new_session(f"s{number}", lease_ms=1_000_000))

    def claim(number: int) -> list[str]:
        taken: list[str] = []
        while claims := stores[number].claim_runs(f"s{number}", 3, AGENTS).runs:
            taken += [run.id for run in claims]
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = [run for got in threads.map(claim, range(4)) for run in got]
    assert sorted(taken) == sorted(f"r{number}" for number in range(80))
    assert damage_in(stores[0]) == []
    for store in stores:
        store.close()


def test_a_key_that_many_want_is_one_runs(redis_url: str) -> None:
    stores = [RedisStore(redis_url) for _ in range(4)]
    runs = [running(stores[0], f"r{number}") for number in range(20)]

    def take(number: int) -> list[Outcome]:
        mine = runs[number::4]
        return [stores[number].commit([append(run, b"1", keys=[reserve("k")])])[0].outcome for run in mine]

    with ThreadPoolExecutor(4) as threads:
        outcomes = [outcome for got in threads.map(take, range(4)) for outcome in got]
    assert sorted(outcomes) == sorted([Outcome.COMMITTED, *[Outcome.HELD] * 19])
    assert damage_in(stores[0]) == []
    for store in stores:
        store.close()


def test_who_begins_to_wait_for_a_key_while_it_is_settled_is_not_overlooked(redis_url: str) -> None:
    store = RedisStore(redis_url)
    owner, waiter = running(store, "owner"), running(store, "waiter")
    store.commit([append(owner, b"1", keys=[reserve("k")])])
    with store._pool._borrowed() as connection:
        settles = Transaction(connection, store._pool.names, None)
        apply(settles, Tables(settles), [append(row(store, "owner"), b"2", keys=[SettleKey("k", b"v")])])
        store.commit([append(waiter, keys=[WaitKey("k")], change=Park(None, "for k", 0))])
        assert settles.apply()[0] == b"conflict"
    store.commit([append(row(store, "owner"), b"2", keys=[SettleKey("k", b"v")])])
    assert row(store, "waiter").due_ms is not None
    store.close()


def test_a_child_that_is_born_while_its_parent_fails_is_not_overlooked(redis_url: str) -> None:
    store = RedisStore(redis_url)
    parent = running(store, "parent")
    with store._pool._borrowed() as connection:
        fails = Transaction(connection, store._pool.names, None)
        apply(fails, Tables(fails), [append(parent, b"1", change=End(State.FAILED))])
        store.create_runs([new_run("child", parent="parent")])
        assert fails.apply()[0] == b"conflict"
    store.commit([append(parent, b"1", change=End(State.FAILED))])
    assert row(store, "child").state is State.CANCELLED
    store.close()


def test_a_run_that_is_claimed_while_its_session_is_ended_is_not_left_behind(redis_url: str) -> None:
    store = RedisStore(redis_url)
    running(store, "r1")
    store.create_runs([new_run("r2")])
    with store._pool._borrowed() as connection:
        ends = Transaction(connection, store._pool.names, None)
        end(ends, {"s1": Ending(Cause.DIED)})
        assert store.claim_runs("s1", 1, AGENTS).runs
        assert ends.apply()[0] == b"conflict"
    store.end_sessions(["s1"], Cause.DIED)
    assert [row(store, name).session for name in ("r1", "r2")] == [None, None]
    store.close()


def test_a_run_that_is_born_while_its_session_is_ended_is_not_left_behind(redis_url: str) -> None:
    store = RedisStore(redis_url)
    store.register_session(new_session("s1", lease_ms=1_000_000))
    with store._pool._borrowed() as connection:
        ends = Transaction(connection, store._pool.names, None)
        end(ends, {"s1": Ending(Cause.DIED)})
        store.create_runs([new_run("r1")], session="s1")
        assert ends.apply()[0] == b"conflict"
    store.end_sessions(["s1"], Cause.DIED)
    assert row(store).session is None
    store.close()


def test_a_write_that_is_still_on_its_way_does_not_come_after_it_was_looked_for(redis_url: str) -> None:
    store = RedisStore(redis_url)
    run = running(store)
    with store._pool._borrowed() as connection:
        late = Transaction(connection, store._pool.names, None)
        send_signal(late, Tables(late), run.id, "go", b"", "")
        connection.count += 1  # as if it had been sent, and not arrived
        assert not store._pool._has_happened(connection)
        connection.count -= 1
        assert late.apply()[0] == b"closed"
    assert store.load_journal(run.id).signals == ()
    store.close()


def test_a_child_that_came_by_fork_does_not_speak_on_its_parents_lines(redis_url: str) -> None:
    store = RedisStore(redis_url)
    store.wait_for_work(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, which is what this is about
        pid = os.fork()
    if pid == 0:
        store.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert running(store).state is State.RUNNING
    assert store.wait_for_work(5)
    store.close()


def test_a_run_that_has_lost_the_record_before_a_turn_is_not_shortened(redis_url: str) -> None:
    store = RedisStore(redis_url)
    run = running(store)
    for body in (b"step", b"one", b"two"):
        store.commit([append(run, body, kind=Kind.RESULT if body == b"step" else Kind.TURN)])
        run = row(store)
    journal = store._pool.names.journal("r1")
    (records,) = store._pool.read(lambda tx: tx.ask([(b"LRANGE", journal, 0, -1)]))
    store._pool.read(lambda tx: tx.ask([(b"LREM", journal, 1, records[1])]))
    with pytest.raises(Corrupt, match="record 1 is missing") as caught:
        store.prune(ended_before_ms=0)
    assert caught.value.run == "r1"
    assert row(store) == run
    (left,) = store._pool.read(lambda tx: tx.ask([(b"LRANGE", journal, 0, -1)]))
    assert left == [records[0], *records[2:]]
    store.close()


def test_a_run_that_two_processes_shorten_at_once_is_not_taken_for_damaged(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = RedisStore(redis_url), RedisStore(redis_url)
    run = running(store)
    for _ in range(3):
        store.commit([append(run, b"turn", kind=Kind.TURN)])
        run = row(store)
    real, gone = read_runs, list[int]()

    def overtaken(tx: Transaction, names: list[str]) -> dict[str, RunRow]:
        found = real(tx, names)
        if not gone:
            gone.append(0)
            gone.append(other.prune(ended_before_ms=0).records)
        return found

    monkeypatch.setattr(pruning, "read_runs", overtaken)
    assert store.prune(ended_before_ms=0).records == 0
    assert gone[1] > 0
    assert store.verify() == []
    other.close()
    store.close()


@pytest.mark.parametrize("is_renewed", [False, True], ids=["acknowledged", "renewed"])
def test_what_two_threads_saw_acknowledged_at_once_is_not_forgotten(is_renewed: bool) -> None:
    lineage = Lineage()
    lineage.renew("here", 0)
    other = threading.Thread(target=lineage.acknowledge, args=("here", 10))

    class Compared(int):
        def __gt__(self, than: int) -> bool:
            other.start()
            other.join(0.2)  # it comes between, or waits for us
            return int(self) > than

    (lineage.renew if is_renewed else lineage.acknowledge)("here", Compared(5))
    other.join()
    assert lineage.seen == 10


def test_a_server_that_still_loads_its_log_is_not_ready_and_not_unsafe() -> None:
    class Loading:
        def ask(self, _: object) -> list[object]:
            said = b"valkey_version:8.1.0\r\nrole:master\r\nloading:1\r\naof_enabled:0\r\n"
            return [said, [b"appendonly", b"yes", b"appendfsync", b"always"]]

    with pytest.raises(StoreUnavailable, match="loads"):
        server_checks.check(cast("ServerConnection", Loading()), parse("redis://localhost/0?prefix=p"))
