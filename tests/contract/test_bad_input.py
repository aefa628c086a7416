"""Bad input: refused before anything is written, or answered as unknown; nothing of a driver leaks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

from ninelives.core.errors import BadName, LeaseLost, NotSerializable, StoreUnsafe, UnknownRun, UsageError
from ninelives.core.model.run import INLINE_BYTES, Control, NewRun, RunQuery, RunRow
from ninelives.core.model.session import Cause, NewSession
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, AnyStore, new_run, new_session

UNUSABLE = ["", "a\nb", "a\0b", "a\x1b[31m", "\ud800", "e\u0301", "x" * 256]
USABLE = ["../../etc", "a:{b}", "'; DROP TABLE runs; --", "%_*?", "Ünïcode 猫", "x" * 255, "$(id)", '"', "\\"]


@pytest.mark.parametrize("name", USABLE)
def test_ids_are_data(bench: Bench, name: str) -> None:
    bench.session(name)
    run = bench.create(name, agent=name, queue=name, pin=name, parent=name, labels={name: name})
    assert bench.reopen().read_run(name) == run
    assert (run.id, run.agent, run.queue, run.pin, run.parent, run.labels) == (
        *([name] * 5),
        {name: name},
    )
    assert bench.store.list_runs(RunQuery(agent=name, parent=name, labels={name: name})) == [run]
    claims = bench.store.claim_runs(name, 1, {name: 1}, queues=(name,), host=name)
    assert [run.id for run in claims.runs] == [name]
    assert bench.store.send_signal(name, name, b"", id=name).id == name
    assert [session.id for session in bench.store.end_sessions([name], Cause.STOPPED)] == [name]


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize(
    "wrong",
    [
        new_run,
        lambda name: new_run("bad", agent=name),
        lambda name: new_run("bad", queue=name),
        lambda name: new_run("bad", pin=name),
        lambda name: new_run("bad", parent=name),
        lambda name: new_run("bad", labels={name: "x"}),
    ],
    ids=["id", "agent", "queue", "pin", "parent", "label"],
)
def test_an_unusable_name_is_refused_in_place_and_the_rest_is_created(
    bench: Bench, name: str, wrong: Callable[[str], NewRun]
) -> None:
    bad, good = bench.store.create_runs([wrong(name), new_run("good")])
    assert isinstance(bad, BadName)
    assert isinstance(good, RunRow)
    assert bench.store.list_runs(RunQuery()) == [good]


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\ud800", "x" * 256])
def test_an_unprintable_label_value_is_refused(bench: Bench, value: str) -> None:
    (bad,) = bench.store.create_runs([new_run(labels={"team": value})])
    assert isinstance(bad, BadName)
    assert bench.store.read_run("r1") is None


def test_arguments_over_the_limit_are_refused(bench: Bench) -> None:
    bad, good = bench.store.create_runs(
        [new_run("bad", body=b"x" * (INLINE_BYTES + 1)), new_run("good", body=b"x" * INLINE_BYTES)]
    )
    assert isinstance(bad, NotSerializable)
    assert isinstance(good, RunRow)
    assert bench.store.read_run("bad") is None


@pytest.mark.parametrize(
    "field", [{"due_ms": 2**63}, {"due_ms": -1}, {"priority": 2**63}, {"priority": -(2**63)}]
)
def test_numbers_out_of_range_are_refused(bench: Bench, field: dict[str, int]) -> None:
    (bad,) = bench.store.create_runs([new_run(**field)])  # type: ignore[arg-type]
    assert isinstance(bad, UsageError)
    assert bench.store.read_run("r1") is None


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_session_is_refused(bench: Bench, name: str) -> None:
    for wrong in (new_session(name), new_session("s", host=name)):
        with pytest.raises(BadName):
            bench.store.register_session(wrong)
    assert bench.store.list_sessions() == []


@pytest.mark.parametrize(
    "wrong",
    [new_session(lease_ms=0), new_session(lease_ms=2**63), new_session(pid=-1), new_session(code="\ud800")],
    ids=["no lease", "endless lease", "pid", "code"],
)
def test_a_session_that_cannot_be_kept_is_refused(bench: Bench, wrong: NewSession) -> None:
    with pytest.raises(UsageError):
        bench.store.register_session(wrong)
    assert bench.store.list_sessions() == []


@pytest.mark.parametrize("name", UNUSABLE)
def test_names_that_nobody_could_have_given_are_unknown(bench: Bench, name: str) -> None:
    bench.session()
    run = bench.create()
    assert bench.store.read_run(name) is None
    assert bench.store.read_keys([name]) == {}
    assert bench.store.list_inbox(run=name) == []
    assert bench.store.end_sessions([name], Cause.DIED) == []
    for query in (
        RunQuery(agent=name),
        RunQuery(session=name),
        RunQuery(parent=name),
        RunQuery(labels={name: name}),
    ):
        assert bench.store.list_runs(query) == []
    with pytest.raises(UnknownRun):
        bench.store.load_journal(name)
    with pytest.raises(UnknownRun):
        bench.store.send_signal(name, "go", b"")
    with pytest.raises(UnknownRun):
        bench.store.control_run(name, Control.PAUSE)
    with pytest.raises(LeaseLost):
        bench.store.renew_session(name)
    with pytest.raises(LeaseLost):
        bench.store.claim_runs(name, 1, AGENTS)
    assert bench.store.claim_runs("s1", 1, {name: 1}, queues=(name,), host=name).runs == ()
    assert bench.row("r1") == run


def test_a_queue_named_twice_counts_once(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("a"), new_run("b")])
    claims = bench.store.claim_runs("s1", 9, AGENTS, queues=("default", "default"))
    assert [(run.id, run.epoch) for run in claims.runs] == [("a", 1), ("b", 1)]


def _all_calls(store: AnyStore) -> list[Callable[[], object]]:
    return [
        lambda: store.create_runs([new_run("child")]),
        lambda: store.read_run("r1"),
        lambda: store.list_runs(RunQuery()),
        lambda: store.register_session(new_session("s2")),
        lambda: store.renew_session("s1"),
        lambda: store.end_sessions(["s1"], Cause.DIED),
        lambda: store.end_sessions(None, Cause.DIED),
        store.list_sessions,
        lambda: store.claim_runs("s1", 1, AGENTS),
        lambda: store.load_journal("r1"),
        lambda: store.commit([]),
        lambda: store.read_keys(["k"]),
        lambda: store.send_signal("r1", "go", b""),
        lambda: store.control_run("r1", Control.PAUSE),
        store.list_inbox,
        lambda: store.answer_item("i1", digest=b"", body=b"", by="ada"),
        lambda: store.put_blobs([b"x"]),
        lambda: store.get_blobs([b"\1" * 16]),
        lambda: store.wait_for_work(0),
        store.stats,
        store.gauges,
        store.verify,
        lambda: store.prune(ended_before_ms=0),
    ]


def _in_the_child(store: AnyStore) -> int:
    """Return the number of the first call that is not refused, counted from one; 0 if all are."""
    for number, call in enumerate(_all_calls(store), 1):
        try:
            call()
        except StoreUnsafe:
            continue
        except BaseException:
            return number
        return number
    return 0


def test_a_store_is_not_carried_across_fork(bench: Bench) -> None:
    bench.session()
    bench.create()
    before = bench.snapshot()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(_in_the_child(bench.store))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert bench.snapshot() == before
