"""Retention: what is old goes, agent by agent; the log keeps its chain, and nothing that is open is lost."""

from __future__ import annotations

import threading

import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.model.commit import End
from ninelives.core.model.key import SettleKey
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Kind, State
from ninelives.core.model.session import Cause, Evidence
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, new_run, reserve


def entries(count: int, run: str = "") -> list[NewEntry]:
    """Return entries for the log."""
    return [NewEntry(kind=Happening.TAKEN, run=run, session="s1", body=b"{}") for _ in range(count)]


def test_the_oldest_entries_go_and_the_rest_verifies(bench: Bench) -> None:
    bench.store.append_log([*entries(300), *entries(2, "a")])
    bench.clock.advance(10)
    bench.store.append_log([*entries(2, "a"), *entries(1, "b")])
    rest = bench.store.read_log(limit=3)
    now = bench.clock.now_ms()
    assert bench.store.prune(ended_before_ms=0, log_before_ms=now).entries == 302
    assert bench.store.prune(ended_before_ms=0, log_before_ms=now).entries == 0
    for store in (bench.store, bench.reopen()):
        assert store.read_log() == rest
        assert [one.seq for one in store.read_log(run="a")] == [303, 302]
        assert store.read_log(before=303) == rest[2:]
        assert store.read_log(before=5) == []
        assert store.verify() == []
    bench.store.append_log(entries(1))
    assert [one.seq for one in bench.reopen().read_log(limit=2)] == [305, 304]
    bench.clock.advance(1)
    assert bench.store.prune(ended_before_ms=0, log_before_ms=now + 1).entries == 4
    assert bench.store.read_log() == []
    assert bench.store.verify() == []
    bench.store.append_log(entries(1))
    assert [one.seq for one in bench.reopen().read_log()] == [306]
    assert bench.store.verify() == []


def test_a_blob_is_kept_for_a_journal_whose_reference_is_lost(bench: Bench) -> None:
    """A lost row beside the journal must not cost what the journal says that it needs."""
    needed, second, settled, unused = bench.store.put_blobs([b"needed", b"second", b"settled", b"unused"])
    run = bench.write(bench.running(), b"", blobs=(needed, second), keys=[reserve()])
    bench.write(run, b"x", kind=Kind.LOG, keys=[SettleKey("k", b"", (settled,))])
    for digest in (needed, second, settled):
        bench.lose_reference("r1", digest)
    bench.clock.advance(10**9)
    assert bench.store.prune(ended_before_ms=0).blobs == 1
    kept = bench.store.get_blobs([needed, second, settled])
    assert list(kept.values()) == [b"needed", b"second", b"settled"]
    with pytest.raises(Corrupt):
        bench.store.get_blobs([unused])


def test_an_entry_of_an_open_recovery_stays_and_all_after_it(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("a")])
    bench.store.append_log(entries(1))
    bench.store.claim_runs("s1", 1, AGENTS)
    bench.store.end_sessions(["s1"], Cause.DIED, evidence={"s1": Evidence(is_gone=True)})
    bench.clock.advance(10**9)
    now = bench.clock.now_ms()
    bench.store.append_log(entries(1))
    gone = bench.store.prune(ended_before_ms=0, log_before_ms=now)
    assert (gone.entries, gone.sessions) == (2, 0), (
        "what came before the run was left may go; its session not"
    )
    assert [one.kind for one in bench.store.read_log(run="a")] == [Happening.LEFT]
    bench.session("s2")
    (run,) = bench.store.claim_runs("s2", 1, AGENTS).runs
    bench.write(run, b"", change=End(State.COMPLETED))
    gone = bench.store.prune(ended_before_ms=0, log_before_ms=now)
    assert (gone.entries, gone.sessions) == (1, 1)
    assert bench.store.read_session("s1") is None
    assert bench.store.read_session("s2") is not None
    assert bench.store.verify() == []


def test_a_session_whose_process_may_live_is_kept(bench: Bench) -> None:
    bench.session("a")
    bench.session("b")
    bench.store.end_sessions(["a"], Cause.EXPIRED)
    bench.clock.advance(1)
    assert bench.store.prune(ended_before_ms=0, log_before_ms=bench.clock.now_ms()).sessions == 0
    bench.store.end_sessions(["a"], Cause.DIED, evidence={"a": Evidence(is_gone=True)})
    assert bench.store.prune(ended_before_ms=0, log_before_ms=bench.clock.now_ms()).sessions == 1
    assert [one.id for one in bench.store.list_sessions()] == ["b"]


def test_each_agent_has_its_own_limit(bench: Bench) -> None:
    bench.session()
    names = [(f"{agent}{number}", agent) for number in range(3) for agent in AGENTS]
    bench.store.create_runs([new_run(name, agent=agent) for name, agent in names])
    for run in bench.store.claim_runs("s1", 99, AGENTS).runs:
        bench.write(run, b"", change=End(State.COMPLETED))
    bench.clock.advance(100)
    now = bench.clock.now_ms()
    first = next(iter(AGENTS))
    assert bench.store.prune(ended_before_ms=now, agents={first: now - 1000}).journals == len(names) - 3
    assert bench.store.prune(ended_before_ms=0, agents={"nobody": now}).journals == 0
    assert bench.store.prune(ended_before_ms=0, agents={first: now}).journals == 3
    assert bench.store.prune(ended_before_ms=0, forget_before_ms=now, agents={first: 0}).runs == len(names)
    assert bench.store.verify() == []


def test_a_log_that_lost_its_beginning_is_found(bench: Bench) -> None:
    bench.store.append_log(entries(3))
    bench.clock.advance(1)
    bench.store.append_log(entries(3))
    bench.store.prune(ended_before_ms=0, log_before_ms=bench.clock.now_ms())
    bench.damage_log(3)
    assert any("recovery log" in fault.what for fault in bench.store.verify())
    with pytest.raises(Corrupt):
        bench.store.read_log()
    bench.clock.advance(1)
    with pytest.raises(Corrupt):
        bench.store.prune(ended_before_ms=0, log_before_ms=bench.clock.now_ms())


def test_two_that_prune_at_once_remove_everything_once(bench: Bench) -> None:
    bench.store.append_log(entries(900))
    bench.clock.advance(1)
    before, stores = bench.clock.now_ms(), [bench.reopen() for _ in range(2)]
    bench.store.append_log(entries(1))
    gone: list[int] = []

    def prune(number: int) -> None:
        gone.append(stores[number].prune(ended_before_ms=0, log_before_ms=before).entries)

    threads = [threading.Thread(target=prune, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert [one.seq for one in bench.store.read_log(limit=1)] == [900]
    for thread in threads:
        thread.join()
    assert sum(gone) == 900
    assert bench.store.verify() == []
