"""The recovery log: deaths are told to it, it is append-only, and it outlives what it tells of."""

from __future__ import annotations

import msgspec
import pytest

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal.recovery_log import Left, SessionEnd
from ninelives.core.model.commit import End
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, Evidence
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, new_run


def entry(run: str = "r1", body: bytes = b"{}", session: str = "s1") -> NewEntry:
    """Return something for the log."""
    return NewEntry(kind=Happening.RECOVERED, run=run, session=session, body=body)


def test_entries_are_read_newest_first_of_all_or_of_one_run(bench: Bench) -> None:
    bench.store.append_log([entry("a"), entry("b")])
    bench.clock.advance(5)
    bench.store.append_log([entry("a", b"[1]")])
    log = bench.store.read_log()
    assert [(one.seq, one.run, one.body) for one in log] == [
        (2, "a", b"[1]"),
        (1, "b", b"{}"),
        (0, "a", b"{}"),
    ]
    assert log[0].at_ms == log[1].at_ms + 5
    assert bench.store.read_log(run="a") == [log[0], log[2]]
    assert bench.store.read_log(run="nobody") == []
    assert bench.store.read_log(before=2) == log[1:]
    assert bench.store.read_log(run="a", before=2, limit=1) == [log[2]]
    assert bench.store.read_log(limit=0) == []
    assert bench.reopen().read_log() == log


def test_the_end_of_a_session_with_runs_is_told_with_each_run_it_left(bench: Bench) -> None:
    bench.session(host="box", pid=42, code="v1", lease_ms=9_000)
    bench.store.create_runs([new_run("a"), new_run("b")])
    first, _ = bench.store.claim_runs("s1", 9, AGENTS).runs
    seen = Evidence(is_gone=True, signal=9)
    bench.store.end_sessions(["s1"], Cause.DIED, evidence={"s1": seen})
    ended, *left = reversed(bench.store.read_log())
    assert (ended.kind, ended.run, ended.session) == (Happening.ENDED, "", "s1")
    said = msgspec.json.decode(ended.body, type=SessionEnd)
    assert (said.cause, said.host, said.pid, said.code, said.runs) == (Cause.DIED, "box", 42, "v1", 2)
    assert said.evidence == seen
    assert [(one.kind, one.run, one.session) for one in left] == [
        (Happening.LEFT, "a", "s1"),
        (Happening.LEFT, "b", "s1"),
    ]
    assert msgspec.json.decode(left[0].body, type=Left) == Left(
        cause=Cause.DIED,
        epoch=1,
        records=1,
        deaths=1,
        solo_deaths=0,
        was_solo=False,
        agent=new_run("a").agent,
        renewed_ms=bench.clock.now_ms(),
        head=first.head.hex(),
    )


def test_the_end_of_a_session_without_runs_is_not_told(bench: Bench) -> None:
    bench.session()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    assert bench.store.read_log() == []


def test_the_log_outlives_the_runs_it_tells_of(bench: Bench) -> None:
    bench.write(bench.running(), b"done", change=End(State.COMPLETED))
    bench.store.append_log([entry()])
    now = bench.clock.now_ms() + 1
    assert bench.store.prune(ended_before_ms=now, forget_before_ms=now).runs == 1
    assert len(bench.store.read_log(run="r1")) == 1
    assert bench.store.verify() == []


def test_bad_entries_are_refused_before_any_is_written(bench: Bench) -> None:
    for bad in (entry("a\nb"), entry(session=""), entry(body=b"x" * 70_000)):
        with pytest.raises(UsageError):
            bench.store.append_log([entry(), bad])
    assert bench.store.read_log() == []


def test_nothing_appended_is_nothing(bench: Bench) -> None:
    bench.store.append_log([])
    assert bench.store.read_log() == []


def test_a_changed_entry_is_never_returned_and_is_found(bench: Bench) -> None:
    bench.store.append_log([entry("a"), entry("b"), entry("c")])
    bench.damage_log(1)
    assert [one.run for one in bench.store.read_log(run="a")] == ["a"]
    for run in (None, "b"):
        with pytest.raises(Corrupt, match="recovery log"):
            bench.store.read_log(run=run)
    assert any("recovery log" in fault.what for fault in bench.store.verify())
