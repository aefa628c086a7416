"""Counters: they only grow, each in the transaction that causes it, and no death or retry makes one wrong."""

from __future__ import annotations

import threading

import msgspec
import pytest

from ninelives.core.errors import LeaseLost, StaleDocument, UsageError
from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.model.commit import End
from ninelives.core.model.counter import Counter, RunCount
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Control, State
from ninelives.core.model.session import Cause, Evidence
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, new_run


def counted(bench: Bench, name: str) -> dict[str, int]:
    """Return the values of all counters of one name, by their labels' values."""
    found = [one for one in bench.reopen().read_counters() if one.name == name]
    return {" ".join(value for _, value in sorted(one.labels.items())): one.value for one in found}


def recovery(**known: object) -> NewEntry:
    """Return the entry of a recovery of ant's run."""
    said: dict[str, object] = {
        "left_by": "s1", "cause": Cause.DIED, "died_ms": 1000, "renewed_ms": 500, "taken_ms": 1100,
        "progress_ms": 1200, "deaths": 1, "records": 9, "replayed": 4, "decisions": 2, "tokens": 70,
        "redone": ("a#0",), "agent": "ant", "outcome": "recovered", "saved_ms": 30,
        "verified": Verified(records=9, outcomes=4, resources=0, keys=0),
    }  # fmt: skip
    body = msgspec.json.encode(Recovery(**(said | known)))  # type: ignore[arg-type]
    return NewEntry(kind=Happening.RECOVERED, run="r1", session="s2", body=body)


def test_a_recovery_takes_until_the_run_writes_again_not_until_its_first_step_ends(bench: Bench) -> None:
    bench.store.append_log([recovery(resumed_ms=1040, progress_ms=61_000)])
    assert counted(bench, "recovery_ms") == {"ant died": 40}
    assert counted(bench, "recovery_bucket") == {"ant died 0.05": 1}


def test_a_fresh_store_has_counted_nothing(bench: Bench) -> None:
    assert bench.store.read_counters() == []
    assert bench.store.count_runs() == []


def test_runs_are_counted_by_their_rows_and_never_fall(bench: Bench) -> None:
    runs = [bench.running(name) for name in ("a", "b", "c")]
    ends = (End(State.COMPLETED), End(State.FAILED), End(State.FAILED))
    for run, end in zip(runs, ends, strict=True):
        bench.write(run, b"", change=end)
    agent, queue = runs[0].agent, runs[0].queue
    assert bench.store.count_runs() == [
        RunCount(agent, queue, State.COMPLETED, 1),
        RunCount(agent, queue, State.FAILED, 2),
    ]
    assert counted(bench, "runs_started") == {agent: 3}
    assert counted(bench, "runs_ended") == {f"{agent} completed": 1, f"{agent} failed": 2}
    for _ in range(2):  # repeated, it changes nothing more
        bench.store.control_run("b", Control.RETRY)
    assert counted(bench, "runs_ended") == {f"{agent} completed": 1, f"{agent} failed": 2}
    bench.clock.advance(1)
    now = bench.clock.now_ms()
    assert bench.store.prune(ended_before_ms=now, forget_before_ms=now).runs == 2
    assert [(one.state, one.runs) for one in bench.store.count_runs()] == [(State.CHECKPOINTED, 1)]
    assert counted(bench, "runs_started") == {agent: 3}
    assert counted(bench, "runs_ended") == {f"{agent} completed": 1, f"{agent} failed": 2}
    bench.store.create_runs([new_run("a")])  # forgotten, so it is another run
    assert counted(bench, "runs_started") == {agent: 4}
    assert bench.store.verify() == []


def test_what_a_session_did_is_read_while_it_lives_and_kept_when_it_ends(bench: Bench) -> None:
    bench.session("s1", agents=("ant",))
    done = [
        Counter("actions", {"agent": "ant", "kind": "once"}, 5),
        Counter("decisions", {"agent": "ant"}, 2),
    ]
    bench.store.renew_session("s1", counts=done)
    assert bench.reopen().read_counters() == done
    bench.store.renew_session("s1")  # a renewal that says nothing takes nothing back
    bench.store.renew_session("s1", counts=[msgspec.structs.replace(done[0], value=7), done[1]])
    bench.session("s2", agents=("ant",))
    bench.store.renew_session("s2", counts=done[:1])
    assert counted(bench, "actions") == {"ant once": 12}
    for _ in range(2):
        bench.store.end_sessions(["s1"], Cause.DIED, counts={"s1": [*done, done[1]]})
    assert counted(bench, "actions") == {"ant once": 10}, "what it hands over at its end counts instead"
    assert counted(bench, "decisions") == {"ant": 4}
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1", counts=done)
    bench.store.end_sessions(["s2"], Cause.STOPPED)
    assert counted(bench, "actions") == {"ant once": 10}
    assert bench.store.verify() == []


@pytest.mark.parametrize(
    ("cause", "evidence", "told"),
    [
        (Cause.DIED, Evidence(signal=9), {"signal": 1}),
        (Cause.DIED, Evidence(signal=9, is_oom=True), {"oom": 1}),
        (Cause.DIED, Evidence(exit_code=1), {"exit": 1}),
        (Cause.DIED, None, {"unknown": 1}),
        (Cause.EXPIRED, None, {"expired": 1}),
        (Cause.STOPPED, None, {}),
    ],
)
def test_deaths_of_workers_are_counted_by_cause(
    bench: Bench, cause: Cause, evidence: Evidence | None, told: dict[str, int]
) -> None:
    bench.session("s1", agents=("ant",))
    bench.session("boss")
    seen = dict.fromkeys(("s1", "boss"), evidence or Evidence())
    bench.store.end_sessions(["s1", "boss"], cause, evidence=seen)
    assert counted(bench, "worker_deaths") == told


def test_runs_left_and_how_long_that_was_not_noticed(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("a"), new_run("b")])
    bench.store.claim_runs("s1", 9, AGENTS)
    bench.clock.advance(2_600)
    bench.store.end_sessions(["s1"], Cause.DIED)
    agent = new_run("a").agent
    assert counted(bench, "runs_left") == {f"{agent} died": 2}
    assert counted(bench, "detection_bucket") == {f"{agent} died 5": 2}
    assert counted(bench, "detection_ms") == {f"{agent} died": 5_200}
    bench.session("s2")
    bench.store.claim_runs("s2", 9, AGENTS)
    bench.store.end_sessions(["s2"], Cause.STOPPED)
    assert counted(bench, "runs_left") == {f"{agent} died": 2, f"{agent} stopped": 2}
    assert counted(bench, "detection_bucket") == {f"{agent} died 5": 2}


def test_recoveries_are_counted_with_what_they_saved_and_found(bench: Bench) -> None:
    bad = Verified(
        records=1,
        outcomes=1,
        resources=1,
        keys=1,
        stale=("file:x",),
        faults=("key 'k': gone", "step a has two outcomes", "a checksum fails"),
    )
    kinds = {"once": 1, "resumable": 2}
    bench.store.append_log([recovery(), recovery(progress_ms=400_000, verified=bad, redone_kinds=kinds)])
    bench.store.append_log([recovery(outcome="quarantined", progress_ms=None)])
    bench.store.append_log([recovery(outcome="", progress_ms=None, agent="bee")])
    assert counted(bench, "recoveries") == {"ant quarantined": 1, "ant recovered": 2}
    assert counted(bench, "recovery_bucket") == {"ant died +Inf": 1, "ant died 0.25": 1}
    assert counted(bench, "recovery_ms") == {"ant died": 200 + 399_000}
    assert counted(bench, "steps_replayed") == {"ant": 12, "bee": 4}
    assert counted(bench, "steps_redone") == {"ant once": 1, "ant resumable": 4, "bee resumable": 1}
    for name, saved in (("saved_decisions", 2), ("saved_tokens", 70), ("saved_ms", 30)):
        assert counted(bench, name) == {"ant": 3 * saved, "bee": saved}
    assert counted(bench, "verifications") == {"faulty": 1, "sound": 3}
    assert counted(bench, "verification_faults") == {"chain": 1, "key": 1, "outcome": 1, "resource": 1}


def test_an_entry_of_an_older_version_is_counted_as_far_as_it_goes(bench: Bench) -> None:
    said = msgspec.json.decode(recovery().body)
    for name in ("agent", "outcome", "saved_ms", "redone_kinds"):
        del said[name]
    old = msgspec.structs.replace(recovery(), body=msgspec.json.encode(said))
    bench.store.append_log([old, msgspec.structs.replace(old, body=b"{}")])
    assert counted(bench, "recoveries") == {" recovered": 1}
    assert counted(bench, "steps_redone") == {" resumable": 1}


def test_a_write_of_a_document_is_counted_once(bench: Bench) -> None:
    found = [Counter("duplicates", {"kind": "once"}, 3)]
    for _ in range(2):
        bench.store.write_document("audit", b"1", version=0, counts=found)
    with pytest.raises(StaleDocument):
        bench.store.write_document("audit", b"2", version=0, counts=found)
    assert bench.store.read_counters() == found
    for _ in range(2):
        bench.store.write_document("audit", None, version=1, counts=found)
    assert counted(bench, "duplicates") == {"once": 6}


def test_what_is_no_counter_is_refused(bench: Bench) -> None:
    bench.session()
    for bad in (
        Counter("a\n", {}, 1),
        Counter("a", {"b": "\ud800"}, 1),
        Counter("a", {}, -1),
        Counter("a", {}, 2**62),
    ):
        with pytest.raises(UsageError):
            bench.store.renew_session("s1", counts=[bad])
        with pytest.raises(UsageError):
            bench.store.end_sessions(["s1"], Cause.STOPPED, counts={"s1": [bad]})
        with pytest.raises(UsageError):
            bench.store.write_document("a", b"1", version=0, counts=[bad])
    assert bench.store.read_counters() == []
    assert bench.store.read_documents() == []
    assert bench.store.renew_session("s1").ended_ms is None


def test_many_writers_at_once_lose_no_count_and_no_reader_sees_one_fall(bench: Bench) -> None:
    stores, each = [bench.reopen() for _ in range(4)], 10

    def write(number: int) -> None:
        for count in range(each):
            # In different orders: no two of them may wait for each other.
            names = ["a", "b"] if number % 2 else ["b", "a"]
            counts = [Counter(name, {}, 1) for name in names]
            stores[number].write_document(f"{number}/{count}", b"1", version=0, counts=counts)
            stores[number].append_log([recovery()])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        now = sum(one.value for one in bench.store.read_counters() if one.name == "a")
        assert now >= seen
        seen = now
    for thread in threads:
        thread.join()
    assert counted(bench, "a") == counted(bench, "b") == {"": 4 * each}
    assert counted(bench, "recoveries") == {"ant recovered": 4 * each}
