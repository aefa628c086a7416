"""Group commit: order, verdicts, bisection, pauses, and the end of all certainty."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count, cycle
from math import ceil, log2

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninelives.core.errors import BadRecord, Corrupt, NineLivesError, StoreBroken, StoreUnavailable
from ninelives.core.model.commit import Commit, End, Outcome, Park, Verdict
from ninelives.core.model.run import INLINE_BYTES, Kind, State
from ninelives.engine.commit import committer as module
from ninelives.engine.commit.committer import EXIT_CODE, Committer
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, Tail, Ticket
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.contract.makers import new_run, new_session, reserve

LONG_SECONDS = 30.0


class FaultyStore(MemoryStore):
    """The reference, which can be made to fail, to wait, and which counts its calls."""

    def __init__(self, clock: SteppingClock) -> None:
        super().__init__(clock)
        self.batches: list[list[Commit]] = []
        self.before: Callable[[Sequence[Commit]], None] = lambda _: None
        self.before_blobs: Callable[[list[bytes]], None] = lambda _: None

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Count the call, do what the test wants, then commit."""
        self.batches.append(list(batch))
        self.before(batch)
        return super().commit(batch)

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Do what the test wants, then put."""
        contents = list(contents)
        self.before_blobs(contents)
        return super().put_blobs(contents)


class Gate:
    """Holds store calls up, so that tickets queue behind the first one."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, _: object) -> None:
        self.reached.set()
        assert self.opened.wait(LONG_SECONDS)


class Bench:
    """A committer over a store with some runs that are owned, and helpers to look at the outcome."""

    def __init__(self, count: int = 3) -> None:
        self.clock = SteppingClock()
        self.store = FaultyStore(self.clock)
        self.fatal: list[BaseException] = []
        self.pauses: list[StoreUnavailable | None] = []
        self.committer = Committer(self.store, self.clock, fatal=self.fatal.append, paused=self.pauses.append)
        self.store.register_session(new_session(lease_ms=1_000_000))
        names = [f"r{number}" for number in range(count)]
        self.store.create_runs([new_run(name) for name in names])
        runs = {run.id: run for run in self.store.claim_runs("s1", count, {"helper": count}).runs}
        self.tails = [Tail(runs[name]) for name in names]
        self._pool = ThreadPoolExecutor(64)

    def queue(
        self, tail: Tail, *bodies: bytes, extras: Extras = NO_EXTRAS, within: float | None = None
    ) -> Ticket:
        """Submit without waiting."""
        return self.committer.submit(tail, results(*bodies), extras, within_seconds=within)

    def refused(self, tail: Tail, body: bytes) -> Ticket:
        """Submit a record of a time that no store can keep: the store refuses it by a verdict."""
        now = self.clock.now_ms()
        self.clock.jump(2**63)
        try:
            return self.queue(tail, body)
        finally:
            self.clock.jump(now - self.clock.now_ms())

    def commit(self, tail: Tail, *bodies: bytes, extras: Extras = NO_EXTRAS) -> Outcome:
        """Submit and wait."""
        return self.committer.commit(tail, results(*bodies), extras).outcome

    def behind(self, tickets: Callable[[], list[Ticket]]) -> list[Ticket]:
        """Queue tickets while a first batch is under way, so that they come as one; then let all go."""
        gate = Gate()
        self.store.before, after = gate, self.store.before
        first = self.later(lambda: self.committer.commit(self.tails[-1], results(b"first")))
        assert gate.reached.wait(LONG_SECONDS)
        self.store.before = after
        self.store.batches.clear()
        queued = tickets()
        gate.opened.set()
        first.result(LONG_SECONDS)
        for ticket in queued:
            self.later(lambda one=ticket: settled(self.committer, one)).result(LONG_SECONDS)  # type: ignore[misc]
        return queued

    def later(self, work: Callable[[], object]) -> Future[object]:
        """Do something in another thread."""
        return self._pool.submit(work)

    def bodies(self, run: str) -> list[bytes]:
        """Return what a run's journal holds after its first record, verified."""
        return [record.body for record in self.store.load_journal(run, since=0).records[1:]]


def settled(committer: Committer, ticket: Ticket) -> object:
    """Wait for a ticket; return its verdict or its error."""
    try:
        return committer.wait(ticket)
    except NineLivesError as error:
        return error


_STEPS = count()


def results(*bodies: bytes) -> list[Draft]:
    """Return outcomes of steps, each of another: two of one step would be a fault."""
    return [(Kind.RESULT, f"step#{next(_STEPS)}", body) for body in bodies]


def outcomes(tickets: Iterable[Ticket]) -> list[Outcome]:
    return [ticket.result().outcome for ticket in tickets]


@pytest.fixture
def bench() -> Bench:
    """Return a committer over three runs."""
    return Bench()


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.0001, raising=False)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.001, raising=False)


def bad(*bodies: bytes) -> Callable[[Sequence[Commit]], None]:
    """Return a store's choking on batches that hold one of these bodies."""

    def choke(batch: Sequence[Commit]) -> None:
        if any(record.body in bodies for commit in batch for record in commit.records):
            raise BadRecord("the store cannot take it")

    return choke


# Alone -------------------------------------------------------------------------------------------


def test_a_commit_is_durable_when_it_returns(bench: Bench) -> None:
    (tail, *_) = bench.tails
    assert bench.commit(tail, b"one", b"two") is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"one", b"two"]
    assert (tail.length, tail.is_over) == (3, False)
    assert bench.commit(tail, b"three") is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"one", b"two", b"three"]


def test_who_waits_commits_himself_and_starts_no_thread(bench: Bench) -> None:
    before = threading.active_count()
    by: list[threading.Thread] = []
    bench.store.before = lambda _: by.append(threading.current_thread())
    for number in range(5):
        bench.commit(bench.tails[0], b"%d" % number)
    assert by == [threading.current_thread()] * 5
    assert threading.active_count() == before


def test_records_carry_the_clocks_time_and_their_own_kind_and_step(bench: Bench) -> None:
    bench.clock.advance(7)
    bench.committer.commit(bench.tails[0], [(Kind.LOG, "says#3", b"hello")])
    (record,) = bench.store.load_journal("r0", since=1).records
    assert (record.kind, record.step, record.body) == (Kind.LOG, "says#3", b"hello")
    assert record.at_ms == bench.clock.now_ms()


def test_a_ticket_without_records_may_change_the_run(bench: Bench) -> None:
    assert bench.commit(bench.tails[0], extras=Extras(change=Park(None, "sleeps", 0))) is Outcome.COMMITTED
    row = bench.store.read_run("r0")
    assert row is not None
    assert row.state is State.CHECKPOINTED


@pytest.mark.parametrize("change", [Park(None, "", 0), End(State.COMPLETED)], ids=["park", "end"])
def test_after_its_run_was_left_a_tail_is_over(bench: Bench, change: Park | End) -> None:
    (tail, *_) = bench.tails
    bench.commit(tail, b"x", extras=Extras(change=change))
    assert tail.is_over
    bench.store.batches.clear()
    assert bench.commit(tail, b"late") is Outcome.FENCED
    assert bench.store.batches == []
    assert bench.bodies("r0") == [b"x"]


def test_large_bodies_become_blobs_and_come_back(bench: Bench) -> None:
    large, limit = b"L" * (INLINE_BYTES + 1), b"l" * INLINE_BYTES
    bench.commit(bench.tails[0], large, limit, large)
    first, second, third = bench.store.load_journal("r0", since=1).records
    assert (first.body, second.body, third.body) == (b"", limit, b"")
    assert (second.blobs, first.blobs) == ((), third.blobs)
    assert bench.store.get_blobs(first.blobs) == {first.blobs[0]: large}


# Together ----------------------------------------------------------------------------------------


def test_what_queues_meanwhile_goes_in_one_transaction(bench: Bench) -> None:
    tickets = bench.behind(lambda: [bench.queue(tail, b"a", b"b") for tail in bench.tails for _ in range(4)])
    assert outcomes(tickets) == [Outcome.COMMITTED] * 12
    assert len(bench.store.batches) == 1
    assert [len(commit.records) for commit in bench.store.batches[0]] == [8, 8, 8]


def test_many_threads_share_few_transactions_and_keep_each_runs_order() -> None:
    bench, threads, each = Bench(8), 8, 40
    start = threading.Barrier(threads)

    def work(tail: Tail) -> None:
        start.wait(LONG_SECONDS)
        for number in range(each):
            assert bench.commit(tail, b"%d" % number) is Outcome.COMMITTED

    def slowly(_: object) -> None:
        start_of_batch.wait(0.002)  # as a sync would: others queue meanwhile

    start_of_batch = threading.Event()
    bench.store.before = slowly
    for one in [bench.later(lambda tail=tail: work(tail)) for tail in bench.tails]:  # type: ignore[misc]
        one.result(LONG_SECONDS)
    for tail in bench.tails:
        assert bench.bodies(tail.run) == [b"%d" % number for number in range(each)]
    assert len(bench.store.batches) < threads * each / 2


def test_many_threads_of_one_run_lose_and_double_nothing(bench: Bench) -> None:
    (tail, *_) = bench.tails

    def work(name: int) -> None:
        for number in range(25):
            assert bench.commit(tail, b"%d-%02d" % (name, number)) is Outcome.COMMITTED

    for one in [bench.later(lambda name=name: work(name)) for name in range(8)]:  # type: ignore[misc]
        one.result(LONG_SECONDS)
    found = bench.bodies("r0")
    assert len(found) == 200
    for name in range(8):
        own = [body for body in found if body.startswith(b"%d-" % name)]
        assert own == [b"%d-%02d" % (name, number) for number in range(25)]


def test_an_answer_comes_only_after_the_transaction(bench: Bench) -> None:
    gate = Gate()
    bench.store.before = gate
    ticket = bench.queue(bench.tails[0], b"x")
    waiting = bench.later(lambda: bench.committer.wait(ticket))
    assert gate.reached.wait(LONG_SECONDS)
    assert not ticket.is_answered
    assert not waiting.done()
    gate.opened.set()
    assert waiting.result(LONG_SECONDS)
    assert bench.bodies("r0") == [b"x"]


# Verdicts ----------------------------------------------------------------------------------------


def test_one_runs_fence_is_its_own(bench: Bench) -> None:
    stale, *others = bench.tails
    stale.epoch = 0
    tickets = bench.behind(
        lambda: [bench.queue(tail, b"%d" % n) for n in range(2) for tail in (stale, *others)]
    )
    assert outcomes(tickets) == [Outcome.FENCED, Outcome.COMMITTED, Outcome.COMMITTED] * 2
    assert stale.is_over
    assert bench.bodies("r0") == []
    bench.store.batches.clear()
    assert [bench.commit(stale, b"later") for _ in range(3)] == [Outcome.FENCED] * 3
    assert bench.store.batches == []


def test_a_refused_key_leaves_what_came_before_and_after_it(bench: Bench) -> None:
    mine, other, _ = bench.tails
    bench.commit(other, b"x", extras=Extras(keys=(reserve("k"),)))
    held = Extras(keys=(reserve("k"),))
    tickets = bench.behind(
        lambda: [
            bench.queue(mine, b"1"),
            bench.queue(mine, b"2"),
            bench.queue(mine, b"refused", extras=held),
            bench.queue(mine, b"3"),
            bench.queue(other, b"4"),
        ]
    )
    committed = Outcome.COMMITTED
    assert outcomes(tickets) == [committed, committed, Outcome.HELD, committed, committed]
    assert bench.bodies("r0") == [b"1", b"2", b"3"]
    assert bench.bodies("r1") == [b"x", b"4"]
    assert tickets[2].result().key is not None
    assert not mine.is_over


def test_a_signal_taken_twice_is_stale_and_leaves_no_hole(bench: Bench) -> None:
    (tail, *_) = bench.tails
    bench.store.send_signal("r0", "go", b"")
    take = Extras(takes=(1,))

    def submit(body: bytes) -> Ticket:
        return bench.committer.submit(tail, [(Kind.SIGNAL, "wait#0", body)], take, within_seconds=None)

    tickets = bench.behind(lambda: [submit(b"once"), submit(b"twice"), bench.queue(tail, b"on")])
    assert outcomes(tickets) == [Outcome.COMMITTED, Outcome.STALE, Outcome.COMMITTED]
    assert bench.bodies("r0") == [b"once", b"on"]


def test_a_group_that_the_store_refuses_is_taken_apart(bench: Bench) -> None:
    (tail, *_) = bench.tails
    tickets = bench.behind(
        lambda: [
            bench.queue(tail, b"1"),
            bench.refused(tail, b"bad"),
            bench.queue(tail, b"2", extras=Extras(change=Park(None, "", 0))),
        ]
    )
    assert outcomes(tickets) == [Outcome.COMMITTED, Outcome.REFUSED, Outcome.COMMITTED]
    assert isinstance(tickets[1].result().error, BadRecord)
    assert bench.bodies("r0") == [b"1", b"2"]


def test_what_follows_a_change_of_its_run_is_fenced(bench: Bench) -> None:
    (tail, *_) = bench.tails
    tickets = bench.behind(
        lambda: [
            bench.queue(tail, b"1"),
            bench.queue(tail, b"end", extras=Extras(change=End(State.COMPLETED))),
            bench.queue(tail, b"after"),
        ]
    )
    assert outcomes(tickets) == [Outcome.COMMITTED, Outcome.COMMITTED, Outcome.FENCED]
    assert bench.bodies("r0") == [b"1", b"end"]


class NosyTail(Tail):
    """A tail that does something the first time that a batch is made with it."""

    __slots__ = ("_over", "looks")

    looks: Callable[[], object] | None

    @property
    def is_over(self) -> bool:
        """Do it, and tell whether the run is left."""
        look = getattr(self, "looks", None)
        self.looks = None
        if look is not None:
            look()
        return self._over

    @is_over.setter
    def is_over(self, over: bool) -> None:
        self._over = over


def test_what_comes_while_a_batch_is_made_stays_behind_what_was_left_over(bench: Bench) -> None:
    (tail, other, _) = bench.tails
    row = bench.store.read_run(other.run)
    assert row is not None
    nosy, came = NosyTail(row), list[Ticket]()

    def submit() -> list[Ticket]:
        nosy.looks = lambda: came.append(bench.queue(tail, b"3"))
        first = bench.queue(tail, b"1", extras=Extras(keys=(reserve(),)))
        return [first, bench.queue(tail, b"2"), bench.queue(nosy, b"x")]

    tickets = bench.behind(submit)
    assert outcomes(tickets) == [Outcome.COMMITTED] * 3
    assert len(came) == 1
    bench.committer.wait(came[0])
    assert bench.bodies("r0") == [b"1", b"2", b"3"]


def test_two_claims_of_one_run_do_not_stop_the_others(bench: Bench) -> None:
    old, other, _ = bench.tails
    row = bench.store.read_run("r0")
    assert row is not None
    new = Tail(row)
    old.epoch = 0
    tickets = bench.behind(
        lambda: [bench.queue(old, b"old"), bench.queue(new, b"new"), bench.queue(other, b"x")]
    )
    assert bench.fatal == []
    assert outcomes(tickets) == [Outcome.FENCED, Outcome.COMMITTED, Outcome.COMMITTED]
    assert bench.bodies("r0") == [b"new"]


# Bad content -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{0}, {31}, {7, 8}, {0, 15, 31}, set(range(0, 32, 8))])
def test_exactly_the_bad_tickets_are_refused_in_few_calls(wrong: set[int]) -> None:
    bench = Bench(33)
    bench.store.before = bad(b"bad")
    tickets = bench.behind(
        lambda: [
            bench.queue(tail, b"bad" if number in wrong else b"good")
            for number, tail in enumerate(bench.tails[:32])
        ]
    )
    for number, ticket in enumerate(tickets):
        expected = Outcome.REFUSED if number in wrong else Outcome.COMMITTED
        assert ticket.result().outcome is expected
        assert bench.bodies(f"r{number}") == ([] if number in wrong else [b"good"])
        assert isinstance(ticket.result().error, BadRecord) == (number in wrong)
    assert len(bench.store.batches) <= 1 + 2 * len(wrong) * ceil(log2(32))
    assert bench.fatal == []


def test_in_one_run_only_the_bad_ticket_is_refused(bench: Bench) -> None:
    bench.store.before = bad(b"bad")
    (tail, other, _) = bench.tails
    bodies = [b"1", b"bad", b"2", b"bad", b"3"]
    tickets = bench.behind(lambda: [*(bench.queue(tail, body) for body in bodies), bench.queue(other, b"x")])
    refused = [ticket.result().outcome is Outcome.REFUSED for ticket in tickets]
    assert refused == [False, True, False, True, False, False]
    assert bench.bodies("r0") == [b"1", b"2", b"3"]
    assert bench.bodies("r1") == [b"x"]
    assert bench.commit(tail, b"4") is Outcome.COMMITTED


def test_a_damaged_run_is_over_and_the_others_go_on(bench: Bench) -> None:
    def damaged(batch: Sequence[Commit]) -> None:
        if any(commit.run == "r0" for commit in batch):
            raise Corrupt("the run's row is damaged", run="r0")

    bench.store.before = damaged
    tickets = bench.behind(lambda: [bench.queue(tail, b"%d" % n) for n in range(2) for tail in bench.tails])
    with pytest.raises(Corrupt):
        tickets[0].result()
    assert tickets[3].result().outcome is Outcome.FENCED
    assert outcomes(tickets[1:3] + tickets[4:]) == [Outcome.COMMITTED] * 4
    assert bench.tails[0].is_over
    assert bench.fatal == []


def test_a_blob_that_the_store_refuses_is_its_own_tickets_trouble(bench: Bench) -> None:
    large = b"bad" + bytes(INLINE_BYTES)

    def choke(contents: list[bytes]) -> None:
        if large in contents:
            raise BadRecord("the store cannot take it")

    bench.store.before_blobs = choke
    mine, other, _ = bench.tails
    tickets = bench.behind(lambda: [bench.queue(mine, large), bench.queue(other, b"x")])
    assert bench.fatal == []
    assert outcomes(tickets) == [Outcome.REFUSED, Outcome.COMMITTED]


@pytest.mark.parametrize(
    "draft",
    [
        ("result", "step", b""),
        (Kind.RESULT, b"step", b""),
        (Kind.RESULT, "step", "text"),
        (Kind.RESULT, "step", bytearray(b"x")),
        (Kind.RESULT, "step", None),
        (Kind.RESULT, None, b""),
        (Kind.RESULT, "step"),
        (Kind.RESULT, "step", b"", b""),
        (Kind.RESULT, "half \ud800", b""),
    ],
)
def test_what_cannot_be_a_record_is_refused_before_it_is_queued(bench: Bench, draft: Draft) -> None:
    for submit in (bench.committer.submit, bench.committer.commit):
        with pytest.raises(BadRecord) as caught:
            submit(bench.tails[0], [(Kind.RESULT, "good", b"first"), draft])
        assert caught.value.run == "r0"
        assert caught.value.remedy
    assert bench.commit(bench.tails[0], b"x") is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"x"]
    assert bench.fatal == []


def test_a_body_beyond_every_limit_is_refused_before_it_is_queued(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ninelives.core.values import blobs

    monkeypatch.setattr(blobs, "MAX_BYTES", 100_000)
    with pytest.raises(BadRecord, match="100001 bytes"):
        bench.queue(bench.tails[0], bytes(100_001))
    assert bench.commit(bench.tails[0], bytes(100_000)) is Outcome.COMMITTED


# The store is away, or worse ---------------------------------------------------------------------


def test_while_the_store_is_away_nobody_is_answered_and_then_it_goes_on(bench: Bench) -> None:
    failures = [StoreUnavailable(f"away {number}") for number in range(3)]
    left = list(failures)
    answered: list[bool] = []
    tickets: list[Ticket] = []

    def away(_: object) -> None:
        answered.append(any(ticket.is_answered for ticket in tickets))
        if left:
            raise left.pop(0)

    bench.store.before = away
    tickets += [bench.queue(tail, b"x") for tail in bench.tails]
    for ticket in tickets:
        assert bench.committer.wait(ticket).outcome is Outcome.COMMITTED
    assert answered == [False] * 4
    assert bench.pauses == [*failures, None]
    assert bench.fatal == []
    assert [len(batch) for batch in bench.store.batches] == [3, 3, 3, 3]


def test_blobs_wait_for_the_store_too(bench: Bench) -> None:
    left = [StoreUnavailable("away")]

    def away(_: object) -> None:
        if left:
            raise left.pop()

    bench.store.before_blobs = away
    assert bench.commit(bench.tails[0], bytes(INLINE_BYTES + 1)) is Outcome.COMMITTED
    assert [error is None for error in bench.pauses] == [False, True]


def test_without_trouble_nobody_hears_of_pauses(bench: Bench) -> None:
    bench.commit(bench.tails[0], b"x")
    assert bench.pauses == []


BREAKS = [
    StoreBroken("a sync failed"),
    RuntimeError("something else"),
    KeyboardInterrupt(),
    MemoryError(),
    NineLivesError("odd"),
]


@pytest.mark.parametrize("error", BREAKS, ids=lambda error: type(error).__name__)
def test_when_nobody_knows_what_is_durable_everything_ends_once(bench: Bench, error: BaseException) -> None:
    calls = 0

    def fail(_: object) -> None:
        nonlocal calls
        calls += 1
        raise error

    bench.store.before = fail
    tickets = [bench.queue(tail, b"x") for tail in bench.tails]
    for ticket in tickets:
        with pytest.raises(NineLivesError):
            bench.committer.wait(ticket)
        assert ticket.verdict is None
    bench.store.before = lambda _: None
    for tail in bench.tails:
        with pytest.raises(NineLivesError):
            bench.queue(tail, b"later")
    assert bench.fatal == [error]
    assert calls == 1
    assert all(bench.bodies(tail.run) == [] for tail in bench.tails)
    bench.committer.close()


def test_threads_that_wait_are_let_go_when_everything_ends(bench: Bench) -> None:
    gate = Gate()

    def fail(batch: Sequence[Commit]) -> None:
        gate(batch)
        raise StoreBroken("a sync failed")

    bench.store.before = fail
    first = bench.later(lambda: bench.committer.commit(bench.tails[0], results(b"x")))
    assert gate.reached.wait(LONG_SECONDS)
    queued = [bench.queue(tail, b"x") for tail in bench.tails[1:]]
    others = [bench.later(lambda one=one: bench.committer.wait(one)) for one in queued]  # type: ignore[misc]
    gate.opened.set()
    for one in (first, *others):
        assert isinstance(one.exception(LONG_SECONDS), StoreBroken)
    assert len(bench.fatal) == 1


def test_what_was_on_its_way_when_everything_ended_is_not_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreBroken("a sync failed")

    bench.store.before = fail
    gate, now_ms = Gate(), bench.clock.now_ms

    def held_up() -> int:
        if threading.current_thread() is not threading.main_thread():
            gate(None)  # in submit, past its first look
        return now_ms()

    monkeypatch.setattr(bench.clock, "now_ms", held_up)
    late = bench.later(lambda: bench.committer.commit(bench.tails[1], results(b"late")))
    assert gate.reached.wait(LONG_SECONDS)
    with pytest.raises(StoreBroken):
        bench.commit(bench.tails[0], b"x")
    bench.store.before = lambda _: None  # the store seems well again: nobody may believe it
    gate.opened.set()
    assert isinstance(late.exception(LONG_SECONDS), NineLivesError)
    assert bench.bodies("r1") == []
    assert len(bench.fatal) == 1
    assert len(bench.store.batches) == 1


def test_what_one_half_committed_is_told_even_if_the_other_breaks_the_store() -> None:
    bench = Bench(5)

    def fail(batch: Sequence[Commit]) -> None:
        if len(batch) > 2:
            raise BadRecord("halve it")
        if any(commit.run == "r2" for commit in batch):
            raise StoreBroken("a sync failed")

    bench.store.before = fail
    tickets = bench.behind(lambda: [bench.queue(tail, b"x") for tail in bench.tails[:4]])
    assert outcomes(tickets[:2]) == [Outcome.COMMITTED] * 2
    for ticket in tickets[2:]:
        with pytest.raises(StoreBroken):
            ticket.result()
    assert len(bench.fatal) == 1


_DIES = """
import sys
from ninelives.core.errors import StoreBroken
from ninelives.engine.commit.ticket import Tail
from ninelives.engine.commit.committer import Committer
from tests.unit.test_committer import Bench, results

bench = Bench()
def fail(_):
    raise StoreBroken("a sync failed")
bench.store.before = fail
committer = Committer(bench.store, bench.clock)
try:
    if sys.argv[1] == "thread":
        committer.submit(bench.tails[0], results(b"x"))
        import threading
        threading.Event().wait(30)
    else:
        committer.commit(bench.tails[0], results(b"x"))
finally:
    print("a handler ran")
"""


@pytest.mark.parametrize("who", ["thread", "caller"])
def test_by_default_the_process_really_ends(who: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _DIES, who], check=False, capture_output=True, text=True, timeout=LONG_SECONDS
    )
    assert ended.returncode == EXIT_CODE
    assert "a sync failed" in ended.stderr
    assert ended.stdout == ""


_ENDS = """
import os, sys
from ninelives.engine.commit.committer import end_process
if sys.argv[1] == "closed":
    os.close(2)
elif sys.argv[1] == "none":
    sys.stderr = None
elif sys.argv[1] == "full":
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    os.dup2(writes, 2)
    try:
        while True:
            os.write(2, bytes(4096))
    except BlockingIOError:
        os.set_blocking(2, True)
class Odd(Exception):
    def __repr__(self):
        raise ValueError("no text")
try:
    end_process(Odd() if sys.argv[1] == "textless" else OSError("a sync failed"))
finally:
    print("it goes on")
"""


@pytest.mark.parametrize("stderr", ["closed", "none", "full", "textless"])
def test_the_process_ends_even_if_it_cannot_say_why(stderr: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS, stderr], check=False, capture_output=True, timeout=LONG_SECONDS
    )
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, b"")


# Late tickets and closing ------------------------------------------------------------------------


class Landing:
    """A home that tells when tickets arrive."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.batches: list[list[Ticket]] = []

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Take tickets that have been answered."""
        self.batches.append(list(tickets))
        for _ in tickets:
            self.arrived.release()


def test_a_late_ticket_is_committed_though_nobody_waits(bench: Bench) -> None:
    home = Landing()
    ticket = bench.committer.submit(bench.tails[0], results(b"x"), home=home, within_seconds=0.005)
    assert home.arrived.acquire(timeout=LONG_SECONDS)
    assert ticket.result().outcome is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"x"]
    bench.committer.close()


def test_a_late_ticket_waits_for_its_time_but_goes_with_an_urgent_one(bench: Bench) -> None:
    home = Landing()
    late = bench.committer.submit(bench.tails[0], results(b"late"), home=home, within_seconds=1000)
    assert not late.is_answered
    assert bench.store.batches == []
    bench.committer.submit(bench.tails[1], results(b"urgent"), home=home)
    for _ in range(2):
        assert home.arrived.acquire(timeout=LONG_SECONDS)
    assert bench.bodies("r0") == [b"late"]
    assert len(bench.store.batches) == 1
    bench.committer.close()


def test_a_late_ticket_goes_with_one_that_somebody_waits_for(bench: Bench) -> None:
    late = bench.queue(bench.tails[0], b"late", within=1000)
    bench.commit(bench.tails[0], b"now")
    assert late.result().outcome is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"late", b"now"]
    bench.committer.close()


def test_a_home_hears_once_per_batch(bench: Bench) -> None:
    home, other = Landing(), Landing()
    gate = Gate()
    bench.store.before = gate
    first = bench.later(lambda: bench.committer.commit(bench.tails[2], results(b"x")))
    assert gate.reached.wait(LONG_SECONDS)
    for tail in bench.tails:
        bench.committer.submit(tail, results(b"1"), home=home)
        bench.committer.submit(tail, results(b"2"), home=other)
    gate.opened.set()
    first.result(LONG_SECONDS)
    for _ in range(3):
        assert home.arrived.acquire(timeout=LONG_SECONDS)
        assert other.arrived.acquire(timeout=LONG_SECONDS)
    assert [len(batch) for batch in home.batches] == [3]
    assert [len(batch) for batch in other.batches] == [3]
    bench.committer.close()


def committing() -> set[threading.Thread]:
    """Return the committers' threads that live."""
    return {thread for thread in threading.enumerate() if thread.name == "ninelives-committer"}


def test_closing_commits_what_is_queued(bench: Bench) -> None:
    before = committing()
    tickets = [bench.queue(tail, b"x", within=1000) for tail in bench.tails]
    tickets.append(bench.queue(bench.tails[0], b"y"))
    bench.committer.close()
    assert outcomes(tickets) == [Outcome.COMMITTED] * 4
    assert committing() == before
    bench.committer.close()


def test_closing_waits_for_what_another_thread_is_committing(bench: Bench) -> None:
    gate = Gate()
    bench.store.before = gate
    first = bench.later(lambda: bench.committer.commit(bench.tails[0], results(b"x")))
    assert gate.reached.wait(LONG_SECONDS)
    late = bench.queue(bench.tails[1], b"late", within=1000)
    seen: list[bool] = []

    def close() -> None:
        bench.committer.close()
        seen.append(late.is_answered)

    closing = bench.later(close)
    wait([closing], timeout=0.2)  # one that does not wait has returned by then
    gate.opened.set()
    first.result(LONG_SECONDS)
    closing.result(LONG_SECONDS)
    assert seen == [True]


def test_a_ticket_that_comes_after_closing_is_refused_or_committed(bench: Bench) -> None:
    bench.queue(bench.tails[0], b"x", within=0)
    bench.committer.close()
    home = Landing()
    try:
        ticket = bench.committer.submit(bench.tails[1], results(b"after"), home=home)
    except NineLivesError:
        assert bench.bodies("r1") == []
    else:
        assert home.arrived.acquire(timeout=1), "it is never answered"
        assert ticket.is_answered


class Closing(SteppingClock):
    """A clock that is read while a ticket is made, and closes the committer then."""

    close: Callable[[], None] = staticmethod(lambda: None)

    def now_ms(self) -> int:
        """Close it, once, in the midst of `submit`."""
        close, self.close = self.close, lambda: None
        close()
        return super().now_ms()


@pytest.mark.parametrize("within", [None, 0.0])
def test_a_ticket_that_is_made_while_the_committer_closes_is_answered(
    bench: Bench, within: float | None
) -> None:
    clock, home = Closing(), Landing()
    committer = Committer(bench.store, clock, fatal=bench.fatal.append)
    clock.close = committer.close
    ticket = committer.submit(bench.tails[0], results(b"late"), home=home, within_seconds=within)
    assert home.arrived.acquire(timeout=1), "it is never answered"
    with pytest.raises(StoreUnavailable, match="closed"):
        ticket.result()
    assert (bench.bodies("r0"), bench.store.batches, bench.fatal) == ([], [], [])


# Any interleaving --------------------------------------------------------------------------------

RUNS = 3
SORTS = ["plain", "bad", "key", "blob", "two", "refused"]


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[int, str]]:
    """Return tickets of several runs in one order of submission, each of some sort."""
    return draw(
        st.lists(st.tuples(st.integers(0, RUNS - 1), st.sampled_from(SORTS)), min_size=1, max_size=30)
    )


def planned(bench: Bench, number: int, run: int, sort: str) -> tuple[Ticket, list[bytes], bool]:
    """Submit a ticket; return it, the bodies that it brings, and whether it must be refused."""
    tail, name = bench.tails[run], b"%d" % number
    if sort == "bad":
        return bench.queue(tail, b"bad"), [], True
    if sort == "key":  # held by the last run from the start
        return bench.queue(tail, name, extras=Extras(keys=(reserve("taken"),))), [], True
    if sort == "refused":
        return bench.refused(tail, name), [], True
    if sort == "blob":
        return bench.queue(tail, name + bytes(INLINE_BYTES)), [b""], False
    bodies = [name, name + b"+"] if sort == "two" else [name]
    return bench.queue(tail, *bodies), bodies, False


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans(), batches=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_any_interleaving_leaves_each_run_its_own_sequence_without_the_refused(
    plan: list[tuple[int, str]], batches: list[int]
) -> None:
    bench = Bench(RUNS + 1)
    bench.commit(bench.tails[RUNS], b"x", extras=Extras(keys=(reserve("taken"),)))
    bench.store.before = bad(b"bad")
    expected: dict[int, list[bytes]] = {run: [] for run in range(RUNS)}
    waiting: list[tuple[Ticket, bool]] = []
    sizes = cycle(batches)
    room = next(sizes)
    for number, (run, sort) in enumerate(plan):
        ticket, bodies, is_refused = planned(bench, number, run, sort)
        waiting.append((ticket, is_refused))
        expected[run] += bodies
        if len(waiting) >= room:
            room = next(sizes)
            check_all(bench, waiting)
    check_all(bench, waiting)
    assert {run: bench.bodies(f"r{run}") for run in range(RUNS)} == expected
    assert bench.store.verify() == []
    assert bench.fatal == []


def check_all(bench: Bench, waiting: list[tuple[Ticket, bool]]) -> None:
    """Wait for tickets, the last one first, and check who was refused."""
    for ticket, is_refused in reversed(waiting):
        outcome = bench.committer.wait(ticket).outcome
        assert (outcome is not Outcome.COMMITTED) == is_refused, outcome
    waiting.clear()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans(), threads=st.integers(2, 4))
def test_the_same_from_many_threads_at_once(plan: list[tuple[int, str]], threads: int) -> None:
    bench = Bench(RUNS + 1)
    bench.commit(bench.tails[RUNS], b"x", extras=Extras(keys=(reserve("taken"),)))
    bench.store.before = bad(b"bad")
    submitted: list[list[tuple[int, list[bytes]]]] = [[] for _ in range(threads)]
    start = threading.Barrier(threads)

    def work(own: int) -> None:
        start.wait(LONG_SECONDS)
        for number, (run, sort) in enumerate(plan):
            if number % threads == own:
                ticket, bodies, is_refused = planned(bench, number, run, sort)
                check_all(bench, [(ticket, is_refused)])
                submitted[own].append((run, bodies))

    for one in [bench.later(lambda own=own: work(own)) for own in range(threads)]:  # type: ignore[misc]
        one.result(LONG_SECONDS)
    for run in range(RUNS):
        found = bench.bodies(f"r{run}")
        assert len(found) == sum(len(bodies) for own in submitted for at, bodies in own if at == run)
        for own in submitted:
            mine = [body for at, bodies in own if at == run for body in bodies if body]
            assert [body for body in found if body in mine] == mine
    assert bench.store.verify() == []
