"""Claims: which runs a session gets, in which order, and what that does to them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ninelives.core.errors import LeaseLost
from ninelives.core.model.commit import Park
from ninelives.core.model.run import Claims, Control, State
from ninelives.core.model.session import Cause
from ninelives.engine.worker.stranded import Stranded
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, append, new_run


def claimed(
    bench: Bench, limit: int = 100, agents: dict[str, int] | None = None, **where: object
) -> list[str]:
    claims = bench.store.claim_runs("s1", limit, AGENTS if agents is None else agents, **where)  # type: ignore[arg-type]
    return [run.id for run in claims.runs]


def test_a_claimed_run_is_running_in_the_next_epoch(bench: Bench) -> None:
    bench.session()
    bench.create()
    bench.clock.advance(5)
    claims = bench.store.claim_runs("s1", 1, AGENTS)
    (run,) = claims.runs
    assert run == bench.row("r1")
    assert (run.state, run.session, run.epoch, run.due_ms, run.waits) == ("running", "s1", 1, None, "")
    assert run.changed_ms == bench.clock.now_ms()


def test_a_run_that_is_created_for_a_session_is_its_own(bench: Bench) -> None:
    bench.session()
    bench.clock.advance(5)
    made, kept = bench.store.create_runs(
        [new_run("r1", queue="slow", pin="there"), new_run("r2", due_ms=bench.clock.now_ms() + 1)],
        session="s1",
    )
    assert [made, kept] == [bench.row("r1"), bench.row("r2")]
    assert (made.state, made.session, made.epoch, made.due_ms) == ("running", "s1", 1, None)  # type: ignore[union-attr]
    assert (kept.state, kept.session, kept.epoch) == ("pending", None, 0)  # type: ignore[union-attr]
    assert [record.kind for record in bench.store.load_journal("r1").records] == ["created"]
    bench.write(bench.row("r1"), b"mine")
    assert claimed(bench, queues=("slow", "default"), host="there") == []


def test_the_end_of_a_session_releases_what_was_created_for_it(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("r1")], session="s1")
    bench.store.end_sessions(["s1"], Cause.DIED)
    bench.session("s2")
    assert bench.claim("r1", "s2").epoch == 3


def test_creating_for_a_session_takes_no_run_that_was_there(bench: Bench) -> None:
    bench.session()
    run = bench.create()
    assert bench.store.create_runs([new_run("r1")], session="s1") == [run]
    assert bench.row("r1") == run
    made = bench.store.create_runs([new_run("r2")], session="s1")
    bench.session("s2")
    assert bench.store.create_runs([new_run("r2")], session="s2") == made


def test_who_may_not_claim_creates_nothing_for_itself(bench: Bench) -> None:
    bench.session()
    bench.session("s2", lease_ms=100)
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    bench.clock.advance(100)
    before = bench.snapshot()
    for name in ("s1", "s2", "nobody", "\0", "\ud800"):
        with pytest.raises(LeaseLost):
            bench.store.create_runs([new_run("r1")], session=name)
    assert bench.snapshot() == before
    assert bench.create().number == 1  # and has taken no number


def test_a_running_run_is_not_claimed_again(bench: Bench) -> None:
    bench.running()
    bench.session("s2")
    assert bench.store.claim_runs("s2", 9, AGENTS).runs == ()


def test_the_epoch_grows_with_each_claim_and_fences_the_owner_before(bench: Bench) -> None:
    first = bench.running()
    bench.store.end_sessions(["s1"], Cause.DIED)
    bench.session("s2")
    second = bench.claim("r1", "s2")
    assert (first.epoch, second.epoch) == (1, 3)  # once for the release, once for the claim
    old, new = append(first, b"old"), append(second, b"new")
    assert [verdict.outcome for verdict in bench.store.commit([old])] == ["fenced"]
    assert [verdict.outcome for verdict in bench.store.commit([new])] == ["committed"]


def test_expired_session_cannot_claim(bench: Bench) -> None:
    bench.session(lease_ms=100)
    run = bench.create()
    bench.clock.advance(100)
    with pytest.raises(LeaseLost):
        bench.store.claim_runs("s1", 1, AGENTS)
    assert bench.row("r1") == run


def test_ended_or_unknown_session_cannot_claim(bench: Bench) -> None:
    bench.session()
    run = bench.create()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    for name in ("s1", "nobody"):
        with pytest.raises(LeaseLost):
            bench.store.claim_runs(name, 1, AGENTS)
    assert bench.row("r1") == run


def test_a_run_that_is_not_due_yet_is_not_claimed(bench: Bench) -> None:
    bench.session(lease_ms=10_000)
    due = bench.clock.now_ms() + 50
    bench.create(due_ms=due)
    claims = bench.store.claim_runs("s1", 1, AGENTS)
    assert (claims.runs, claims.next_due_ms) == ((), due)
    bench.clock.advance(49)
    assert claimed(bench) == []
    bench.clock.advance(1)
    assert claimed(bench) == ["r1"]


def test_a_run_parked_until_there_is_news_is_not_claimed_and_sets_no_timer(bench: Bench) -> None:
    bench.write(bench.running(), change=Park(None, "waits", 0))
    claims = bench.store.claim_runs("s1", 1, AGENTS)
    assert (claims.runs, claims.next_due_ms) == ((), None)


def test_a_paused_run_is_not_claimed_and_sets_no_timer(bench: Bench) -> None:
    bench.session()
    bench.create()
    bench.store.control_run("r1", Control.PAUSE)
    claims = bench.store.claim_runs("s1", 1, AGENTS)
    assert (claims.runs, claims.next_due_ms) == ((), None)
    bench.store.control_run("r1", Control.RESUME)
    assert claimed(bench) == ["r1"]


def test_at_most_limit_runs_are_given(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run(f"r{n}") for n in range(5)])
    assert claimed(bench, 2) == ["r0", "r1"]
    assert claimed(bench, 0) == []
    assert claimed(bench, -1) == []
    assert claimed(bench, 9) == ["r2", "r3", "r4"]


def test_of_each_agent_at_most_as_many_as_stated(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run(f"{agent}{n}", agent=agent) for n in range(3) for agent in "abc"])
    assert claimed(bench, agents={"a": 2, "b": 1, "c": 0}) == ["a0", "b0", "a1"]


def test_agents_that_are_not_named_are_left_alone(bench: Bench) -> None:
    bench.session()
    bench.create(agent="stranger")
    claims = bench.store.claim_runs("s1", 9, AGENTS)
    assert (claims.runs, claims.next_due_ms) == ((), None)
    assert bench.store.claim_runs("s1", 9, {}).runs == ()


def test_only_runs_of_the_queues(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run(queue, queue=queue) for queue in ("default", "slow", "gpu")])
    assert claimed(bench, queues=()) == []
    assert claimed(bench) == ["default"]
    assert claimed(bench, queues=("slow", "gpu")) == ["slow", "gpu"]


def test_pinned_runs_only_on_their_host(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("here", pin="here"), new_run("there", pin="there"), new_run("any")])
    assert claimed(bench) == ["any"]
    claims = bench.store.claim_runs("s1", 9, AGENTS, host="here")
    assert [run.id for run in claims.runs] == ["here"]
    assert claims.next_due_ms is None
    assert bench.row("there").state is State.PENDING


def test_within_an_agent_by_priority_then_due_then_age(bench: Bench) -> None:
    bench.session()
    order = [("low", -1, 0), ("new", 0, 5), ("old", 0, 5), ("early", 0, 4), ("high", 2, 9), ("higher", 3, 9)]
    bench.store.create_runs([new_run(name, priority=priority, due_ms=due) for name, priority, due in order])
    assert claimed(bench) == ["higher", "high", "early", "new", "old", "low"]


def test_who_fell_due_first_comes_first_also_when_there_is_room_for_one(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("late", due_ms=9), new_run("early", due_ms=4)])
    assert claimed(bench, 1) == ["early"]


def test_a_paused_run_is_passed_over_when_others_are_due(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("paused"), new_run("other")])
    bench.store.control_run("paused", Control.PAUSE)
    assert claimed(bench) == ["other"]


def test_order_is_one_over_all_queues(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs(
        [
            new_run("a", queue="x", priority=1),
            new_run("b", queue="y", priority=2),
            new_run("c", queue="x", priority=3),
        ]
    )
    assert claimed(bench, 2, queues=("x", "y")) == ["c", "b"]


def test_agents_take_turns(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run(f"busy{n}", agent="busy") for n in range(4)])
    bench.store.create_runs([new_run("quiet0", agent="quiet"), new_run("other0", agent="other")])
    agents = {"quiet": 9, "busy": 9, "other": 9}
    assert claimed(bench, 5, agents) == ["quiet0", "busy0", "other0", "busy1", "busy2"]


def test_the_turn_begins_with_the_agent_that_is_named_first(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run(f"{agent}{n}", agent=agent) for agent in "abc" for n in range(2)])
    given = [claimed(bench, 1, dict.fromkeys(order, 9)) for order in ("cab", "bca", "abc", "cab", "bca")]
    assert given == [["c0"], ["b0"], ["a0"], ["c1"], ["b1"]]


def test_a_higher_priority_goes_before_the_turn_of_another_agent(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs(
        [
            *[new_run(f"a{n}", agent="a") for n in range(2)],
            *[new_run(f"z{n}", agent="z") for n in range(2)],
            new_run("z-high", agent="z", priority=1),
            new_run("a-low", agent="a", priority=-1),
        ]
    )
    assert claimed(bench, 1, {"a": 9, "z": 9}) == ["z-high"]
    assert claimed(bench, 3, {"a": 9, "z": 9}) == ["a0", "z0", "a1"]
    assert claimed(bench, 3, {"a": 9, "z": 9}) == ["z1", "a-low"]


def test_the_next_due_run_of_these_agents_is_told(bench: Bench) -> None:
    bench.session()
    now = bench.clock.now_ms()
    bench.store.create_runs(
        [
            new_run("due"),
            new_run("later", due_ms=now + 90),
            new_run("latest", due_ms=now + 99),
            new_run("other agent", agent="other", due_ms=now + 1),
            new_run("other queue", queue="other", due_ms=now + 2),
            new_run("other host", pin="there", due_ms=now + 3),
            new_run("no quota", agent="none", due_ms=now + 4),
        ]
    )
    claims = bench.store.claim_runs("s1", 9, AGENTS | {"none": 0}, host="here")
    assert [run.id for run in claims.runs] == ["due"]
    assert claims.next_due_ms == now + 90


def test_runs_left_over_are_told_as_due(bench: Bench) -> None:
    bench.session()
    bench.store.create_runs([new_run("a", due_ms=3), new_run("b", due_ms=4), new_run("c", due_ms=5)])
    assert bench.store.claim_runs("s1", 1, AGENTS).next_due_ms == 4
    assert bench.store.claim_runs("s1", 9, {"helper": 1}).next_due_ms == 5
    assert bench.store.claim_runs("s1", 9, AGENTS).next_due_ms is None


def test_two_sessions_never_get_the_same_run(bench: Bench) -> None:
    other = bench.reopen()
    bench.session()
    bench.session("s2")
    bench.store.create_runs([new_run(f"r{n:02}") for n in range(20)])
    taken = []
    for _ in range(5):
        taken += [run.id for run in bench.store.claim_runs("s1", 2, AGENTS).runs]
        taken += [run.id for run in other.claim_runs("s2", 2, AGENTS).runs]
    assert sorted(taken) == [f"r{n:02}" for n in range(20)]
    assert all(one != two for one, two in pairwise(sorted(taken)))


def test_with_only_no_other_run_is_claimed(bench: Bench) -> None:
    bench.session("s1")
    for name in ("r1", "r2", "r3"):
        bench.create(name)
    claims = bench.store.claim_runs("s1", 9, {"helper": 9}, only="r2")
    assert [run.id for run in claims.runs] == ["r2"]
    assert claims.next_due_ms is None
    assert bench.row("r1").state == bench.row("r3").state == "pending"


def test_only_a_run_that_may_be_claimed_is_claimed(bench: Bench) -> None:
    bench.session("s1")
    bench.create("later", due_ms=bench.clock.now_ms() + 5)
    bench.create("pinned", pin="elsewhere")
    bench.create("other", agent="another")
    bench.create("paused")
    bench.store.control_run("paused", Control.PAUSE)
    for name in ("pinned", "other", "paused", "nobody"):
        assert bench.store.claim_runs("s1", 9, {"helper": 9}, only=name) == Claims((), None)
    claims = bench.store.claim_runs("s1", 9, {"helper": 9}, only="later")
    assert claims == Claims((), bench.clock.now_ms() + 5)
    bench.clock.advance(5)
    assert len(bench.store.claim_runs("s1", 9, {"helper": 9}, only="later").runs) == 1


def test_a_worker_that_wants_one_run_gets_its_descendants_too(bench: Bench) -> None:
    bench.session(lease_ms=1_000_000)
    bench.create("root", agent="boss")
    bench.create("child", parent="root")
    bench.create("grandchild", parent="child", due_ms=bench.clock.now_ms() + 50)
    bench.create("stranger")
    bench.create("orphan", parent="nobody")
    agents = {"helper": 9, "boss": 9}
    claims = bench.store.claim_runs("s1", 9, agents, only="root")
    assert sorted(run.id for run in claims.runs) == ["child", "root"]
    assert claims.next_due_ms == bench.clock.now_ms() + 50
    bench.clock.advance(50)
    assert [run.id for run in bench.store.claim_runs("s1", 9, agents, only="child").runs] == ["grandchild"]


def suspected(bench: Bench, *names: str, deaths: int = 2) -> None:
    """Let workers die under runs, which make no progress."""
    bench.store.create_runs([new_run(name) for name in names])
    for number in range(deaths):
        bench.session(f"dies{number}")
        assert len(bench.store.claim_runs(f"dies{number}", 9, AGENTS).runs) == len(names)
        bench.store.end_sessions([f"dies{number}"], Cause.DIED)


def test_a_suspect_is_not_given_together_with_others(bench: Bench) -> None:
    suspected(bench, "a", "b")
    bench.session(lease_ms=10_000)
    bench.create("innocent")
    claims = bench.store.claim_runs("s1", 9, AGENTS)
    assert [run.id for run in claims.runs] == ["innocent"]
    assert (claims.next_due_ms, claims.next_suspect_ms) == (None, bench.clock.now_ms())
    assert not claims.runs[0].is_alone


def test_suspects_are_given_alone_one_at_a_time(bench: Bench) -> None:
    suspected(bench, "a", "b")
    bench.session(lease_ms=10_000)
    bench.create("innocent")
    claims = bench.store.claim_runs("s1", 9, AGENTS, solo=True)
    assert [(run.id, run.is_alone) for run in claims.runs] == [("a", True)]
    assert claims.next_due_ms == claims.next_suspect_ms == bench.clock.now_ms()
    assert claimed(bench, solo=True) == ["b"]
    assert bench.store.claim_runs("s1", 9, AGENTS, solo=True) == Claims((), None, None)


def test_a_suspect_is_given_to_who_asks_for_it_only(bench: Bench) -> None:
    suspected(bench, "a")
    bench.session()
    claims = bench.store.claim_runs("s1", 1, AGENTS, only="a")
    assert [(run.id, run.is_alone) for run in claims.runs] == [("a", True)]


def test_one_death_makes_no_suspect(bench: Bench) -> None:
    suspected(bench, "a", deaths=1)
    bench.session()
    assert bench.store.claim_runs("s1", 9, AGENTS, solo=True).runs == ()
    assert claimed(bench) == ["a"]


def test_the_suspect_that_has_waited_longest_is_given_whatever_its_agent_and_priority(bench: Bench) -> None:
    agents = {"a": 9, "z": 9}
    bench.store.create_runs(
        [new_run("z1", agent="z"), new_run("a1", agent="a", priority=5), new_run("a2", agent="a")]
    )
    for name in ("dies1", "dies2"):
        bench.session(name)
        assert len(bench.store.claim_runs(name, 9, agents).runs) == 3
        bench.store.end_sessions([name], Cause.DIED)
    served = []
    for turn in range(6):
        bench.clock.advance(1)
        bench.session(f"solo{turn}")
        (run,) = bench.store.claim_runs(f"solo{turn}", 9, agents, solo=True).runs
        served.append(run.id)
        bench.store.end_sessions([f"solo{turn}"], Cause.DIED)
    assert served == ["z1", "a1", "a2"] * 2


def test_a_run_that_its_session_does_not_execute_is_given_back_and_claimed_again(bench: Bench) -> None:
    bench.session()
    bench.create()
    assert claimed(bench) == ["r1"]  # whose answer, say, was lost
    stranded = Stranded(bench.store, "s1", 1000)
    stranded.check({"r1"}, 0)
    assert bench.row("r1").state is State.RUNNING
    for now_ms in (1000, 1001):
        stranded.check(set(), now_ms)
    assert (bench.row("r1").state, bench.row("r1").session) == (State.CHECKPOINTED, None)
    assert claimed(bench) == ["r1"]
    assert bench.row("r1").epoch == 2
