"""Sessions: one process's life, and what happens to its runs after it."""

from __future__ import annotations

import pytest

from ninelives.core.errors import IdConflict, LeaseLost, UsageError
from ninelives.core.model.commit import Commit, Escalate, Park
from ninelives.core.model.key import ReserveKey
from ninelives.core.model.run import Kind, State
from ninelives.core.model.session import Cause, Evidence, Fate, Session
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, append, new_run, new_session


def test_a_session_begins_with_a_whole_lease(bench: Bench) -> None:
    now = bench.clock.now_ms()
    session = bench.store.register_session(new_session(host="box", pid=42, code="v1", lease_ms=9_000))
    assert session == Session(
        id="s1", host="box", pid=42, code="v1", lease_ms=9_000, started_ms=now, renewed_ms=now, left_ms=9_000
    )
    assert bench.store.list_sessions() == [session]


def test_a_session_id_names_one_life_only(bench: Bench) -> None:
    bench.session()
    with pytest.raises(IdConflict):
        bench.session()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    with pytest.raises(IdConflict):
        bench.session()
    assert bench.store.list_sessions() == []


def test_renewing_gives_a_whole_lease_again(bench: Bench) -> None:
    bench.session(lease_ms=100)
    bench.clock.advance(60)
    (before,) = bench.store.list_sessions()
    assert before.left_ms == 40
    after = bench.store.renew_session("s1")
    assert (after.left_ms, after.renewed_ms) == (100, bench.clock.now_ms())
    assert after.started_ms == before.started_ms
    bench.clock.advance(60)
    assert bench.store.list_sessions()[0].left_ms == 40


def test_runs_of_a_renewed_session_stay_its_own(bench: Bench) -> None:
    run = bench.running()
    bench.store.renew_session("s1")
    assert bench.row("r1") == run


def test_an_ended_session_cannot_be_renewed(bench: Bench) -> None:
    bench.session()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1")


def test_a_lease_that_has_run_out_is_lost_even_if_nobody_ended_it(bench: Bench) -> None:
    bench.session(lease_ms=100)
    bench.clock.advance(99)
    bench.store.renew_session("s1")
    bench.clock.advance(100)
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1")
    assert bench.store.list_sessions()[0].left_ms == 0
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1")


def test_an_unknown_session_has_no_lease(bench: Bench) -> None:
    with pytest.raises(LeaseLost):
        bench.store.renew_session("nobody")


def test_leases_do_not_care_for_the_wall_clock(bench: Bench) -> None:
    bench.session(lease_ms=100)
    bench.clock.jump(3_600_000)
    assert bench.store.end_sessions(None, Cause.STOPPED) == []
    assert bench.store.renew_session("s1").left_ms == 100
    bench.clock.jump(-7_200_000)
    assert bench.store.list_sessions()[0].left_ms == 100
    bench.clock.advance(100)
    bench.clock.jump(-3_600_000)
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1")


def test_ending_a_session_releases_all_its_runs_which_fall_due_at_once(bench: Bench) -> None:
    bench.session()
    bench.session("s2")
    bench.store.create_runs([new_run("a"), new_run("b"), new_run("c", agent="other")])
    bench.store.claim_runs("s1", 9, AGENTS)
    bench.store.claim_runs("s2", 9, {"other": 9})
    bench.clock.advance(5)
    (ended,) = bench.store.end_sessions(["s1"], Cause.DIED)
    assert (ended.id, ended.ended_ms, ended.cause) == ("s1", bench.clock.now_ms(), Cause.DIED)
    for name in ("a", "b"):
        run = bench.row(name)
        assert (run.state, run.session, run.due_ms, run.epoch) == (
            "checkpointed",
            None,
            bench.clock.now_ms(),
            2,
        )
        assert run.deaths == 1
    assert bench.row("c").session == "s2"
    assert [session.id for session in bench.store.list_sessions()] == ["s2"]


def test_parked_runs_of_an_ended_session_are_left_alone(bench: Bench) -> None:
    parked = bench.write(bench.running(), change=Park(None, "sleeps", 0))
    bench.store.end_sessions(["s1"], Cause.DIED)
    assert bench.row("r1") == parked


def test_ended_sessions_are_left_alone_and_unknown_ids_ignored(bench: Bench) -> None:
    bench.running()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    before = bench.snapshot()
    bench.clock.advance(5)
    assert bench.store.end_sessions(["s1", "nobody", "s1"], Cause.DIED) == []
    assert bench.snapshot() == before


def test_a_session_named_twice_ends_once(bench: Bench) -> None:
    bench.running()
    assert len(bench.store.end_sessions(["s1", "s1"], Cause.DIED)) == 1
    assert bench.row("r1").deaths == 1


def test_no_ids_end_nothing(bench: Bench) -> None:
    bench.session(lease_ms=100)
    bench.clock.advance(200)
    assert bench.store.end_sessions([], Cause.DIED) == []
    assert len(bench.store.list_sessions()) == 1


def test_ended_sessions_are_returned_oldest_first(bench: Bench) -> None:
    for name in ("c", "a", "b"):
        bench.session(name)
    ended = bench.store.end_sessions(["a", "b", "c"], Cause.STOPPED)
    assert [session.id for session in ended] == ["c", "a", "b"]


def test_live_sessions_are_listed_oldest_first(bench: Bench) -> None:
    for name in ("c", "a", "b"):
        bench.session(name)
    assert [session.id for session in bench.store.list_sessions()] == ["c", "a", "b"]


def test_without_ids_only_sessions_whose_lease_has_run_out_end_as_expired(bench: Bench) -> None:
    bench.session("short", lease_ms=100)
    bench.session("long", lease_ms=101)
    bench.create()
    bench.claim("r1", "short")
    bench.clock.advance(100)
    (ended,) = bench.store.end_sessions(None, Cause.STOPPED)
    assert (ended.id, ended.cause, ended.left_ms) == ("short", Cause.EXPIRED, 0)
    assert bench.row("r1").deaths == 1
    assert bench.store.end_sessions(None, Cause.STOPPED) == []


def test_a_session_told_to_stop_costs_no_life(bench: Bench) -> None:
    bench.running()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    assert (bench.row("r1").state, bench.row("r1").deaths) == (State.CHECKPOINTED, 0)


def test_deaths_count_up_without_progress_and_start_again_after_it(bench: Bench) -> None:
    bench.create()
    for number in (1, 2):
        bench.session(f"dies{number}")
        run = bench.claim("r1", f"dies{number}")
        bench.store.end_sessions([f"dies{number}"], Cause.DIED)
        assert (bench.row("r1").deaths, bench.row("r1").death_length) == (number, 1)
    bench.session("works")
    run = bench.claim("r1", "works")
    bench.write(run, b"progress")
    bench.store.end_sessions(["works"], Cause.EXPIRED)
    assert (bench.row("r1").deaths, bench.row("r1").death_length) == (1, 2)


def test_a_worker_whose_session_was_ended_is_fenced(bench: Bench) -> None:
    run = bench.running()
    bench.store.end_sessions(["s1"], Cause.EXPIRED)
    before = bench.snapshot()
    (verdict,) = bench.store.commit([append(run, b"late")])
    assert verdict.outcome == "fenced"
    assert bench.snapshot() == before


def test_another_store_object_ends_sessions_too(bench: Bench) -> None:
    bench.session(lease_ms=100)
    bench.clock.advance(100)
    assert [session.id for session in bench.reopen().end_sessions(None, Cause.DIED)] == ["s1"]
    with pytest.raises(LeaseLost):
        bench.store.renew_session("s1")


def test_nothing_of_a_released_owner_is_taken_for_done(bench: Bench) -> None:
    run = bench.running()
    bench.store.end_sessions(["s1"], Cause.DIED)
    before = bench.snapshot()
    parts = {"run": run.id, "epoch": run.epoch, "length": run.length, "head": run.head}
    reserve = ReserveKey("k", "act", b"f", resumable=False)
    park, escalate = Park(None, "w", run.news), Escalate("w", run.news)
    for late in (
        Commit(**parts, keys=(reserve,), change=park),  # type: ignore[arg-type]
        Commit(**parts, change=park),  # type: ignore[arg-type]
        Commit(**parts, change=escalate),  # type: ignore[arg-type]
    ):
        (verdict,) = bench.store.commit([late])
        assert verdict.outcome == "fenced"
    assert bench.snapshot() == before


def test_a_session_says_which_agents_it_serves_and_who_keeps_it(bench: Bench) -> None:
    bench.session("s1", agents=("ant", "bee"), keeper="boss")
    (session,) = bench.store.list_sessions()
    assert (session.agents, session.keeper) == (("ant", "bee"), "boss")


def test_a_session_is_read_as_long_as_the_store_lives(bench: Bench) -> None:
    assert bench.store.read_session("s1") is None
    bench.session(lease_ms=100)
    found = bench.store.read_session("s1")
    assert found == bench.store.list_sessions()[0]
    assert found.fate is Fate.LIVES
    bench.clock.advance(100)
    found = bench.store.read_session("s1")
    assert found is not None
    assert found.fate is Fate.UNKNOWN
    (ended,) = bench.store.end_sessions(None, Cause.DIED)
    assert bench.store.read_session("s1") == ended
    assert (ended.cause, ended.fate, ended.evidence) == (Cause.EXPIRED, Fate.UNKNOWN, None)


def test_who_saw_a_session_end_says_what_it_looked_like(bench: Bench) -> None:
    bench.session()
    bench.session("s2")
    seen = Evidence(is_gone=True, signal=9, is_oom=True, note="cgroup", log=("last words",))
    for ended in bench.store.end_sessions(["s1", "s2"], Cause.DIED, evidence={"s1": seen}):
        assert ended == bench.store.read_session(ended.id)
        expected = (seen, Fate.GONE) if ended.id == "s1" else (None, Fate.UNKNOWN)
        assert (ended.evidence, ended.fate) == expected


def test_proof_that_a_session_is_gone_may_come_later_and_is_never_taken_back(bench: Bench) -> None:
    bench.session()
    bench.store.end_sessions(["s1"], Cause.STOPPED, evidence={"s1": Evidence(exit_code=1)})
    proof, other = Evidence(is_gone=True, exit_code=0), Evidence(is_gone=True, signal=9)
    for evidence in (Evidence(signal=15), proof, other, Evidence()):
        assert bench.store.end_sessions(["s1"], Cause.DIED, evidence={"s1": evidence}) == []
        found = bench.store.read_session("s1")
        assert found is not None
        assert found.cause is Cause.STOPPED
        if evidence.signal == 15:
            assert (found.fate, found.evidence) == (Fate.UNKNOWN, Evidence(exit_code=1))
        else:
            assert (found.fate, found.evidence) == (Fate.GONE, proof)


def test_evidence_that_cannot_be_kept_is_refused_before_anything_ends(bench: Bench) -> None:
    bench.session()
    for bad in (Evidence(note="\ud800"), Evidence(log=("a\0b",)), Evidence(log=("x" * 9_000,) * 2)):
        with pytest.raises(UsageError, match="s1"):
            bench.store.end_sessions(["s1"], Cause.DIED, evidence={"s1": bad})
    assert len(bench.store.list_sessions()) == 1


def test_a_session_with_a_bad_keeper_or_agent_is_refused(bench: Bench) -> None:
    for bad in ({"keeper": "a\nb"}, {"agents": ("",)}):
        with pytest.raises(UsageError):
            bench.session(**bad)
    assert bench.store.list_sessions() == []


def test_records_that_get_a_run_nowhere_forgive_no_death(bench: Bench) -> None:
    bench.create()
    for number in (1, 2, 3):
        bench.session(f"dies{number}")
        (run,) = bench.store.claim_runs(f"dies{number}", 1, AGENTS, only="r1").runs
        bench.write(run, b"begun", kind=Kind.INTENT)
        bench.store.end_sessions([f"dies{number}"], Cause.DIED)
        assert (bench.row("r1").deaths, bench.row("r1").death_length) == (number, 1 + number)
    assert bench.row("r1").solo_deaths == 1
    assert bench.row("r1").left_by == "dies3"
