"""One damaged run, and all the others: they are claimed, released and found as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Kind, RunQuery
from ninelives.core.model.session import Cause
from tests.contract.makers import AGENTS, append, new_run, new_session
from tests.integration.conftest import Opener
from tests.integration.roles import advance


def spoil(path: Path, run: str) -> None:
    """Write into a run's row what nobody ever wrote."""
    hand = apsw.Connection(str(path))
    hand.execute("UPDATE runs SET priority = 7, waits = 'for nobody' WHERE id = ?", (run,))
    hand.close()


def test_the_others_are_claimed(path: Path, opened: Opener) -> None:
    store = opened()
    store.create_runs([new_run(name) for name in ("a", "bad", "c")])
    store.register_session(new_session("s1"))
    spoil(path, "bad")
    assert [run.id for run in store.claim_runs("s1", 9, AGENTS).runs] == ["a", "c"]
    assert store.claim_runs("s1", 9, AGENTS).runs == ()
    with pytest.raises(Corrupt):
        store.read_run("bad")
    assert [fault.run for fault in store.verify()] == ["bad"]


def test_the_others_are_released(path: Path, opened: Opener) -> None:
    store = opened()
    store.create_runs([new_run(name) for name in ("a", "bad", "c")])
    store.register_session(new_session("s1"))
    store.claim_runs("s1", 9, AGENTS)
    spoil(path, "bad")
    assert [session.id for session in store.end_sessions(["s1"], Cause.DIED)] == ["s1"]
    store.register_session(new_session("s2"))
    assert [run.id for run in store.claim_runs("s2", 9, AGENTS).runs] == ["a", "c"]


def test_a_list_that_would_miss_it_is_refused(path: Path, opened: Opener) -> None:
    store = opened()
    store.create_runs([new_run(name, labels={"x": "y"}) for name in ("a", "bad")])
    spoil(path, "bad")
    for query in (RunQuery(), RunQuery(labels={"x": "y"})):
        with pytest.raises(Corrupt):
            store.list_runs(query)


def test_a_run_that_has_lost_the_record_before_a_turn_is_not_shortened(path: Path, opened: Opener) -> None:
    store = opened()
    store.register_session(new_session("s1"))
    store.create_runs([new_run("r")])
    (run,) = store.claim_runs("s1", 1, AGENTS).runs
    for body in (b"step", b"one", b"two"):
        run = advance(store, run, append(run, body, kind=Kind.RESULT if body == b"step" else Kind.TURN))
    run = store.read_run("r") or run
    hand = apsw.Connection(str(path))
    hand.execute("DELETE FROM records WHERE seq = 1")
    hand.close()
    with pytest.raises(Corrupt, match="record 1 is missing") as caught:
        store.prune(ended_before_ms=0)
    assert caught.value.run == "r"
    assert store.read_run("r") == run


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE sessions SET cause = 'bogus'", "sessions"),
        ("INSERT INTO keys VALUES ('k', 'a', x'', 'r', 1, 'bogus', 0, x'', NULL, 1, x'')", "keys"),
        (
            'INSERT INTO items (id, run, kind, step, digest, body, "to", opened_ms, state, answer, "by") '
            "VALUES ('i', 'r', 'bogus', '', x'', x'', '', 1, 'open', x'', '')",
            "items",
        ),
    ],
)
def test_verify_reads_what_lies_beside_the_journals(
    path: Path, opened: Opener, statement: str, where: str
) -> None:
    store = opened()
    store.register_session(new_session("s1"))
    hand = apsw.Connection(str(path))
    hand.execute(statement)
    hand.close()
    assert any(where in fault.what for fault in store.verify())
