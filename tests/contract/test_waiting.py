"""Wake-ups: none is lost between two calls, whoever causes it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import pytest

from ninelives.core.model.commit import End, Escalate, Outcome, Park
from ninelives.core.model.key import ReleaseKey, SettleKey, WaitKey
from ninelives.core.model.run import Control, Kind, State
from ninelives.core.model.session import Cause
from tests.contract.benches import Bench
from tests.contract.makers import AnyStore, append, new_item, new_run, reserve

LONG_SECONDS = 30.0


def calm(store: AnyStore) -> None:
    """Take in all wake-ups so far."""
    while store.wait_for_work(0):
        pass


def test_a_quiet_store_does_not_wake(bench: Bench) -> None:
    calm(bench.store)
    assert bench.store.wait_for_work(0) is False
    assert bench.store.wait_for_work(-1) is False
    assert bench.store.wait_for_work(0.001) is False


def test_a_run_that_is_its_session_s_from_birth_wakes_nobody(bench: Bench) -> None:
    bench.session("s1")
    calm(bench.store)
    bench.store.create_runs([new_run("r1")], session="s1")
    assert bench.store.wait_for_work(0.05) is False
    bench.store.create_runs([new_run("r2", due_ms=bench.clock.now_ms() + 1)], session="s1")
    assert bench.store.wait_for_work(LONG_SECONDS) is True


def create(bench: Bench) -> None:
    bench.create("new")


def signal(bench: Bench) -> None:
    bench.store.send_signal("parked", "go", b"")


def answer(bench: Bench) -> None:
    bench.store.answer_item("i1", digest=b"d", body=b"", by="ada")


def cancel(bench: Bench) -> None:
    bench.store.control_run("parked", Control.CANCEL)


def resume(bench: Bench) -> None:
    bench.store.control_run("paused", Control.RESUME)


def retry(bench: Bench) -> None:
    bench.store.control_run("failed", Control.RETRY)


def end_session(bench: Bench) -> None:
    bench.store.end_sessions(["s1"], Cause.DIED)


def end_run(bench: Bench) -> None:
    bench.store.commit([append(bench.row("running"), change=End(State.COMPLETED))])


def park_with_news(bench: Bench) -> None:
    bench.store.send_signal("running", "go", b"")
    calm(bench.store)
    bench.store.commit([append(bench.row("running"), change=Park(None, "", 0))])


def release_key(bench: Bench) -> None:
    bench.store.commit([append(bench.row("running"), b"x", keys=[ReleaseKey("k")])])


CAUSES = [
    create,
    signal,
    answer,
    cancel,
    resume,
    retry,
    end_session,
    end_run,
    park_with_news,
    release_key,
]


def prepare(bench: Bench) -> None:
    bench.write(bench.running("failed"), change=End(State.FAILED))
    bench.write(bench.running("parked"), change=Park(None, "", 0))
    bench.write(bench.running("asks"), opens=[new_item()], change=Escalate("", 0))
    bench.write(bench.running("running"), b"x", keys=[reserve()])
    bench.write(bench.running("waits"), keys=[WaitKey("k")], change=Park(None, "", 0))
    bench.create("paused")
    bench.store.control_run("paused", Control.PAUSE)


def test_a_key_that_no_run_waits_for_wakes_nobody(bench: Bench) -> None:
    run = bench.running()
    calm(bench.store)
    (reserved,) = bench.store.commit([append(run, b"intent", keys=[reserve("alone")])])
    assert reserved.key is not None
    assert (reserved.key.key, reserved.key.run, reserved.key.generation) == ("alone", run.id, 0)
    settles = append(bench.row(run.id), b"result", keys=[SettleKey("alone", b"{}")])
    assert bench.store.commit([settles])[0].key is None
    assert bench.store.wait_for_work(0.05) is False


def test_a_commit_that_was_applied_before_wakes_nobody(bench: Bench) -> None:
    run = bench.running()
    reserves = append(run, b"intent", keys=[reserve("alone")])
    bench.store.commit([reserves])
    calm(bench.store)
    (again,) = bench.store.commit([reserves])
    assert (again.outcome, again.key) == (Outcome.COMMITTED, None)
    assert bench.store.wait_for_work(0.05) is False


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_what_happened_between_two_calls_is_not_lost(bench: Bench, cause: Callable[[Bench], None]) -> None:
    prepare(bench)
    calm(bench.store)
    cause(bench)
    assert bench.store.wait_for_work(LONG_SECONDS) is True
    calm(bench.store)
    assert bench.store.wait_for_work(0) is False


def test_another_store_object_is_woken_too(bench: Bench) -> None:
    other = bench.reopen()
    calm(other)
    bench.create()
    assert other.wait_for_work(LONG_SECONDS) is True


def test_who_waits_already_is_woken(bench: Bench) -> None:
    calm(bench.store)
    woken: list[bool] = []
    started = Event()

    def wait() -> None:
        started.set()
        woken.append(bench.store.wait_for_work(LONG_SECONDS))

    waiter = Thread(target=wait)
    waiter.start()
    assert started.wait(LONG_SECONDS)
    bench.create()
    waiter.join(LONG_SECONDS)
    assert woken == [True]


def test_a_run_is_there_to_be_claimed_when_its_wake_up_comes(bench: Bench) -> None:
    bench.session()
    calm(bench.store)
    found: list[str] = []

    def work() -> None:
        while bench.store.wait_for_work(LONG_SECONDS):
            found.extend(run.id for run in bench.store.claim_runs("s1", 99, {"helper": 99}).runs)
            if len(found) == 20:
                return

    worker = Thread(target=work)
    worker.start()
    for number in range(20):
        bench.store.create_runs([new_run(f"r{number}")])
    worker.join(LONG_SECONDS)
    assert sorted(found) == sorted(f"r{number}" for number in range(20))


# Output -------------------------------------------------------------------------------------------


def calm_readers(store: AnyStore) -> None:
    """Take in all wake-ups of readers so far."""
    while store.wait_for_output(0):
        pass


def test_output_wakes_its_readers_and_no_worker(bench: Bench) -> None:
    run = bench.running()
    calm(bench.store)
    calm_readers(bench.store)
    run = bench.write(run, b"{}", kind=Kind.OUTPUT)
    assert bench.store.wait_for_output(LONG_SECONDS) is True
    calm_readers(bench.store)
    assert bench.store.wait_for_work(0) is False
    bench.write(run, b"x")


def test_the_end_of_a_run_wakes_readers(bench: Bench) -> None:
    run = bench.running()
    calm_readers(bench.store)
    bench.write(run, change=End(State.COMPLETED))
    assert bench.store.wait_for_output(LONG_SECONDS) is True


def test_readers_of_another_store_object_are_woken(bench: Bench) -> None:
    run = bench.running()
    other = bench.reopen()
    calm_readers(other)
    woken: list[bool] = []
    waiter = Thread(target=lambda: woken.append(other.wait_for_output(LONG_SECONDS)))
    waiter.start()
    bench.write(run, b"{}", kind=Kind.OUTPUT)
    waiter.join(LONG_SECONDS)
    assert woken == [True]


def test_output_committed_with_a_change_wakes_both(bench: Bench) -> None:
    run = bench.running()
    calm(bench.store)
    calm_readers(bench.store)
    bench.write(run, b"{}", kind=Kind.OUTPUT, change=Park(None, "", 0))
    assert bench.store.wait_for_output(LONG_SECONDS) is True
    assert bench.store.wait_for_work(LONG_SECONDS) is True
