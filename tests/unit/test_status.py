"""What `status` calls a problem, and what not."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ninelives.core.clock import moment
from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.model.capsule import Move
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Control, NewRun
from ninelives.core.model.session import Cause, NewSession
from ninelives.ops.disk_growth import growth_per_day, note_size
from ninelives.ops.doctor import examine
from ninelives.ops.notify.state import ChannelState, NotifyState, write_state
from ninelives.ops.retention import size_of
from ninelives.ops.status import STUCK_SECONDS, status
from ninelives.stores.memory import MemoryStore
from ninelives.stores.open import open_store
from ninelives.views.recoveries import recoveries
from tests.clocks import SteppingClock
from tests.notify.scene import Scene


def kinds(store: MemoryStore) -> list[str]:
    return [one.kind for one in status(store, "memory:").problems]


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def store(clock: SteppingClock) -> MemoryStore:
    return MemoryStore(clock)


def test_an_empty_store_is_healthy(store: MemoryStore) -> None:
    found = status(store, "memory:")
    assert (found.healthy, found.problems, found.workers) == (True, [], 0)


def test_runs_that_no_worker_takes_are_stuck_after_a_while(store: MemoryStore, clock: SteppingClock) -> None:
    store.create_runs([NewRun(id="r", agent="a", fingerprint=b"", body=b"{}")])
    later = clock.now_ms() + 86_400_000
    store.create_runs([NewRun(id="later", agent="b", fingerprint=b"", body=b"{}", due_ms=later)])
    clock.advance(STUCK_SECONDS * 1000)
    assert kinds(store) == []
    clock.advance(1)
    (stuck,) = status(store, "memory:").stuck
    assert (stuck.agent, stuck.runs, stuck.oldest, stuck.has_code) == ("a", 1, "r", False)
    assert kinds(store) == ["stuck"]
    store.register_session(NewSession(id="s", host="h", pid=1, agents=("a",), lease_ms=10**6))
    assert status(store, "memory:").stuck[0].has_code


def test_faults_of_an_audit_and_copies_that_are_behind_are_problems(
    store: MemoryStore, clock: SteppingClock
) -> None:
    now_ms = clock.now_ms()
    audit = {"finished_ms": now_ms, "seconds": 1.0, "faults": 2}
    store.write_document("audit/last", json.dumps(audit).encode(), version=0)
    copy = {"written_ms": now_ms, "lag_seconds": 1.0}
    store.write_document("replication/s3", json.dumps(copy).encode(), version=0)
    assert kinds(store) == ["audit"]
    clock.advance(61_000)  # the replicator is silent: it may be dead
    assert kinds(store) == ["audit", "replication"]
    assert status(store, "memory:").copies[0].lag_seconds == 62


def test_notices_that_are_not_delivered_are_a_problem(store: MemoryStore, clock: SteppingClock) -> None:
    channel = ChannelState(
        sent=3, failed=0, waiting=2, oldest_waiting_ms=clock.now_ms(), last_sent_ms=0, error="answered 500"
    )
    write_state(store, NotifyState(at_ms=clock.now_ms(), by="h|1|t", channels={"on-call": channel}))
    clock.advance(600_000)
    assert kinds(store) == []
    clock.advance(1_000)
    (problem,) = status(store, "memory:").problems
    assert problem.kind == "notices"
    assert "2 notices to on-call are not delivered, the oldest for 10 minutes: no notifier" in problem.text
    write_state(store, NotifyState(at_ms=clock.now_ms(), by="h|2|t", channels={"on-call": channel}))
    (problem,) = status(store, "memory:").problems
    assert problem.text.endswith("for 10 minutes: answered 500")


def test_growth_is_known_after_an_hour(store: MemoryStore, clock: SteppingClock) -> None:
    note_size(store, clock.now_ms(), 1000)
    note_size(store, clock.now_ms(), 5000)  # within the hour: not kept
    assert growth_per_day(store, clock.now_ms(), 1000) is None
    clock.advance(12 * 3_600_000)
    assert growth_per_day(store, clock.now_ms(), 1500) == 1000


def test_errors_that_name_their_requests_are_one_outage(store: MemoryStore, clock: SteppingClock) -> None:
    scene = Scene(store)
    for number in range(40):
        scene.retry(f"r{number}", f"HTTPError: 503 (request {number})", agent="bee")
    store.control_run("r0", Control.PAUSE)  # a person has stopped it
    found = status(store, "memory:")
    (one,) = found.retried
    assert (one.agent, one.step, one.runs, found.retried_runs, found.paused) == ("bee", "think", 39, 39, 1)
    assert one.error.startswith("HTTPError: 503 (request")
    assert one.error.endswith("(and 38 other texts)")
    (problem,) = found.problems
    assert problem.text.startswith(
        "39 runs of bee retry think since 22:13:20Z, the next attempt is at 22:14:20Z"
    )
    clock.advance(STUCK_SECONDS * 1000)
    (problem,) = [one for one in status(store, "memory:").problems if one.kind == "retried"]
    assert "the next attempt is due, and no worker" in problem.text


def test_texts_that_are_few_are_counted(store: MemoryStore) -> None:
    scene = Scene(store)
    for number in range(20):
        scene.retry(f"r{number}", f"HTTPError: HTTP Error {429 if number < 8 else 503}: no", agent="bee")
    (one,) = status(store, "memory:").retried
    assert one.error == "HTTPError: HTTP Error 503: no (12), HTTP Error 429: no (8)"


def test_all_are_counted_however_many_kinds_there_are(store: MemoryStore) -> None:
    scene = Scene(store)
    for number in range(30):
        scene.retry(f"r{number}", f"Error{number}: no", agent="bee")
        scene.fail(f"f{number}", f"Error{number}: no", agent="bee")
        scene.fail(f"g{number}", f"ValueError: no {number}", agent="bee")
    found = status(store, "memory:")
    assert (found.retried_runs, len(found.retried), found.failed_hour, found.failed_day) == (30, 20, 60, 60)
    assert "10 more runs retry, at other steps or for other errors" in [one.text for one in found.problems]
    assert found.failed[0].hour == 30


def test_runs_whose_worker_died_while_no_other_was_there_are_stuck(
    store: MemoryStore, clock: SteppingClock
) -> None:
    store.create_runs([NewRun(id="r", agent="a", fingerprint=b"", body=b"{}")])
    store.register_session(NewSession(id="s", host="h", pid=1, agents=("a",), lease_ms=10_000))
    assert store.claim_runs("s", 1, {"a": 1}).runs
    heard_ms = clock.now_ms()
    clock.advance(50_000)  # nothing of it is to be heard, and nobody ends its session
    assert kinds(store) == []
    clock.advance(11_000)
    (stuck,) = status(store, "memory:").stuck
    assert (stuck.runs, stuck.oldest, stuck.since, stuck.has_code) == (1, "r", moment(heard_ms), False)
    assert kinds(store) == ["stuck"]


def test_a_move_that_was_killed_half_way_is_a_problem(clock: SteppingClock, store: MemoryStore) -> None:
    for name in ("r1", "r2"):
        store.create_runs([NewRun(id=name, agent="a", fingerprint=b"", body=b"{}")])
    store.depart_runs(["r1"], Move(id="m1", to="other", url="sqlite:///other.db"))
    store.control_run("r2", Control.PAUSE)
    assert kinds(store) == []  # it may be under way
    clock.advance(61_000)
    (found,) = status(store, "memory:").problems
    assert (found.kind, "1 run is on its way to sqlite:///other.db" in found.text) == ("moving", True)
    store.settle_move("m1", arrived=True)
    assert kinds(store) == []


def recovery(**known: Any) -> Recovery:
    """Return the log's body for a recovery after a death at 1000."""
    usual: dict[str, Any] = {
        "left_by": "s", "cause": Cause.DIED, "died_ms": 1000, "renewed_ms": 500, "taken_ms": 1100,
        "progress_ms": None, "deaths": 1, "records": 9, "replayed": 4, "decisions": 2, "tokens": 70,
        "redone": (), "verified": Verified(records=9, outcomes=4, resources=0, keys=0),
    }  # fmt: skip
    return Recovery(**(usual | known))


def logged(run: str, body: Recovery) -> NewEntry:
    return NewEntry(kind=Happening.RECOVERED, run=run, session="s2", body=msgspec.json.encode(body))


def test_a_recovery_is_not_slow_because_the_first_new_step_takes_long(store: MemoryStore) -> None:
    store.append_log([logged("r", recovery(resumed_ms=1_040, progress_ms=76_000))])
    found = status(store, "memory:")
    assert (found.recovery.p99_seconds, found.recovery.slow_last_hour, found.problems) == (0.04, 0, [])
    (entry,) = recoveries(store)
    assert "resumed 40 ms after that was noticed" in entry.text
    store.append_log([logged("r", recovery(resumed_ms=32_000, progress_ms=76_000))])
    assert status(store, "memory:").recovery.slow_last_hour == 1


def test_the_rate_of_recovery_is_that_of_the_metrics(store: MemoryStore) -> None:
    for number, outcome in enumerate(["recovered", "recovered", "recovered", "quarantined", ""]):
        store.append_log([logged(f"r{number}", recovery(outcome=outcome))])
    numbers = status(store, "memory:").recovery
    assert (numbers.recoveries, numbers.recovered, numbers.rate, numbers.lost) == (5, 3, 0.75, 0)


def test_status_doctor_and_stats_show_one_size_of_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with closing(open_store(url)) as store:
        (size,) = [one.what for one in examine(url) if one.check == "size"]
        used = status(store, url).used_bytes  # after the doctor, who writes to see whether that works
        assert used == store.stats().disk_bytes == size_of(store).bytes > 0
    assert f"{used / (1 << 20):,.1f} MiB used after these checks" in size
