"""Creating, reading and listing runs."""

from __future__ import annotations

from typing import Literal

from ninelives.core.errors import IdConflict
from ninelives.core.journal import chain
from ninelives.core.model.commit import End
from ninelives.core.model.run import Kind, RunQuery, RunRow, State
from tests.contract.benches import Bench
from tests.contract.makers import new_run


def test_a_new_run_is_pending_and_due_and_has_record_zero(bench: Bench) -> None:
    (run,) = bench.store.create_runs(
        [
            new_run(
                queue="slow",
                pin="here",
                priority=3,
                labels={"team": "a b"},
                parent="p",
                due_ms=7,
                body=b"args",
            )
        ]
    )
    assert isinstance(run, RunRow)
    assert (run.id, run.number, run.agent, run.fingerprint) == ("r1", 1, "helper", b"f")
    assert (run.queue, run.pin, run.priority, run.labels, run.parent) == (
        "slow",
        "here",
        3,
        {"team": "a b"},
        "p",
    )
    assert (run.state, run.paused, run.cancelling, run.epoch, run.session) == (
        "pending",
        False,
        False,
        0,
        None,
    )
    assert (run.length, run.base, run.turn, run.turn_seq) == (1, 0, 0, 0)
    assert (run.due_ms, run.waits, run.news, run.deaths) == (7, "", 0, 0)
    assert run.created_ms == run.changed_ms == bench.clock.now_ms()
    assert run.base_check == chain.start("r1")
    assert bench.store.read_run("r1") == run
    journal = bench.store.load_journal("r1")
    (first,) = journal.records
    assert journal.run == run
    assert (first.seq, first.kind, first.at_ms, first.body) == (
        0,
        Kind.CREATED,
        bench.clock.now_ms(),
        b"args",
    )
    assert first.check == run.head


def test_answers_come_in_the_order_of_the_batch(bench: Bench) -> None:
    answers = bench.store.create_runs([new_run("c"), new_run("a"), new_run("b")])
    assert [(run.id, run.number) for run in answers if isinstance(run, RunRow)] == [
        ("c", 1),
        ("a", 2),
        ("b", 3),
    ]


def test_an_empty_batch_creates_nothing(bench: Bench) -> None:
    assert bench.store.create_runs([]) == []


def test_creating_again_gives_the_run_whatever_became_of_it(bench: Bench) -> None:
    run = bench.write(bench.running(), change=End(State.COMPLETED))
    bench.clock.advance(5)
    assert bench.store.create_runs([new_run(body=b"not looked at", queue="other")]) == [run]
    assert bench.row("r1") == run


def test_creating_again_takes_no_number(bench: Bench) -> None:
    bench.create("a")
    bench.create("a")
    assert bench.create("b").number == 2


def test_an_id_with_another_agent_is_a_conflict_in_its_place_and_the_rest_is_created(bench: Bench) -> None:
    first = bench.create()
    conflict, other = bench.store.create_runs([new_run(agent="else"), new_run("r2")])
    assert isinstance(conflict, IdConflict)
    assert isinstance(other, RunRow)
    assert other.number == 2
    assert bench.row("r1") == first


def test_an_id_with_another_fingerprint_is_a_conflict(bench: Bench) -> None:
    bench.create()
    (conflict,) = bench.store.create_runs([new_run(fingerprint=b"g")])
    assert isinstance(conflict, IdConflict)


def test_two_equal_ids_in_one_batch_are_one_run(bench: Bench) -> None:
    first, second, third = bench.store.create_runs([new_run(), new_run(), new_run(agent="else")])
    assert first == second == bench.row("r1")
    assert isinstance(third, IdConflict)
    assert len(bench.store.list_runs(RunQuery())) == 1


def test_what_the_caller_does_to_its_labels_later_changes_nothing(bench: Bench) -> None:
    labels = {"team": "a"}
    bench.store.create_runs([new_run(labels=labels)])
    labels["team"] = "b"
    assert bench.row("r1").labels == {"team": "a"}


def test_an_unknown_run_reads_as_none(bench: Bench) -> None:
    assert bench.store.read_run("nobody") is None


def test_another_store_object_sees_the_run(bench: Bench) -> None:
    run = bench.create(labels={"a": "ä"})
    assert bench.reopen().read_run("r1") == run


def ids(bench: Bench, **conditions: object) -> list[str]:
    return [run.id for run in bench.store.list_runs(RunQuery(**conditions))]  # type: ignore[arg-type]


def test_runs_are_listed_newest_first(bench: Bench) -> None:
    bench.store.create_runs([new_run("a"), new_run("b"), new_run("c")])
    assert ids(bench) == ["c", "b", "a"]


def test_listing_pages_by_limit_and_the_last_number_seen(bench: Bench) -> None:
    bench.store.create_runs([new_run(f"r{n}") for n in range(5)])
    assert ids(bench, limit=2) == ["r4", "r3"]
    assert ids(bench, limit=2, after=4) == ["r2", "r1"]
    assert ids(bench, limit=2, after=2) == ["r0"]
    assert ids(bench, after=1) == []


def test_a_limit_below_one_gives_nothing(bench: Bench) -> None:
    bench.create()
    assert ids(bench, limit=0) == []
    assert ids(bench, limit=-1) == []


def test_all_given_conditions_hold(bench: Bench) -> None:
    bench.running("a", labels={"team": "x", "tier": "1"})
    bench.store.create_runs(
        [
            new_run("b", parent="a", labels={"team": "x"}),
            new_run("c", agent="other", labels={"team": "y", "tier": "1"}),
            new_run("d", agent="other", parent="a"),
        ]
    )
    assert ids(bench, states=(State.PENDING,)) == ["d", "c", "b"]
    assert ids(bench, states=(State.RUNNING, State.PENDING)) == ["d", "c", "b", "a"]
    assert ids(bench, states=(State.FAILED,)) == []
    assert ids(bench, agent="other") == ["d", "c"]
    assert ids(bench, session="s1") == ["a"]
    assert ids(bench, parent="a") == ["d", "b"]
    assert ids(bench, parent="a", agent="helper") == ["b"]
    assert ids(bench, labels={"team": "x"}) == ["b", "a"]
    assert ids(bench, labels={"team": "x", "tier": "1"}) == ["a"]
    assert ids(bench, labels={"tier": "x"}) == []
    assert ids(bench, labels={"team": "x"}, states=(State.PENDING,), after=3) == ["b"]
    assert ids(bench, labels={"team": "x"}, limit=1) == ["b"]


ENDS: tuple[tuple[str, Literal[State.COMPLETED, State.FAILED]], ...] = (
    ("a", State.FAILED),
    ("b", State.COMPLETED),
    ("c", State.FAILED),
)


def test_runs_that_ended_since_a_moment_are_listed_newest_first(bench: Bench) -> None:
    moments = []
    for name, state in ENDS:
        row = bench.running(name, labels={"team": "x"})
        bench.clock.advance(10)
        moments.append(bench.clock.now_ms())
        bench.write(row, change=End(state))
    bench.create("d")
    ended = (State.COMPLETED, State.FAILED, State.CANCELLED)
    assert ids(bench, states=ended, changed_since_ms=moments[0]) == ["c", "b", "a"]
    assert ids(bench, states=ended, changed_since_ms=moments[0] + 1) == ["c", "b"]
    assert ids(bench, states=(State.FAILED,), changed_since_ms=moments[0]) == ["c", "a"]
    assert ids(bench, states=(State.FAILED,), changed_since_ms=moments[0], limit=1) == ["c"]
    assert ids(bench, states=(State.FAILED,), changed_since_ms=moments[0], after=3) == ["a"]
    assert ids(bench, states=ended, changed_since_ms=moments[2], labels={"team": "x"}) == ["c"]
    assert ids(bench, changed_since_ms=moments[2]) == ["d", "c"]
    assert ids(bench, states=ended, changed_since_ms=moments[2] + 1) == []
    bench.clock.advance(10)
    bench.store.prune(ended_before_ms=bench.clock.now_ms())
    assert ids(bench, states=ended, changed_since_ms=moments[1]) == ["c", "b"]


def test_filter_values_are_values_and_never_patterns_or_code(bench: Bench) -> None:
    bench.create("a", labels={"team": "x"})
    for value in ("%", "_", "*", "x' OR '1'='1", '"x"', "$.team", "X"):
        assert ids(bench, labels={"team": value}) == []
        assert ids(bench, agent=value) == []
        assert ids(bench, session=value) == []
        assert ids(bench, parent=value) == []
    for label in ("%", "t*", "team' --", "$.team", 'te"am', "TEAM"):
        assert ids(bench, labels={label: "x"}) == []
