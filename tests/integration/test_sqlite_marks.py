"""Killed exactly where the SQLite store says what the next life finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import RunQuery
from ninelives.core.model.session import Cause, Fate
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.maintenance import accept_loss
from tests.contract.makers import new_run, new_session
from tests.crash.marks import Victim
from tests.integration.conftest import Opener, Starter
from tests.integration.test_sqlite_sessions import ShiftedClock

HERE = "tests.integration.test_sqlite_marks"


def accept(path: str) -> None:
    """Accept the loss of a store's tail."""
    accept_loss(path, SystemClock())


def register(path: str) -> None:
    """Begin a session."""
    SqliteStore(path).register_session(new_session("worker"))


def back_up(path: str, target: str) -> None:
    """Back a store up."""
    SqliteStore(path).backup(target)


def sweep(path: str) -> None:
    """End what is gone."""
    SqliteStore(path).end_sessions(None, Cause.STOPPED)


def test_a_loss_that_was_half_accepted_is_refused_until_it_is_accepted_again(path: Path) -> None:
    store = SqliteStore(path)
    store.create_runs([new_run("a"), new_run("b")])
    store.close()
    Path(f"{path}-anchor").write_bytes(b"damaged")
    with Victim("the runs are paused and the anchor", f"{HERE}:accept", path) as victim:
        victim.dies()
    with pytest.raises(Corrupt):
        SqliteStore(path)
    assert accept_loss(path, SystemClock()) == []  # they were paused before
    store = SqliteStore(path)
    assert {run.id: run.paused for run in store.list_runs(RunQuery())} == {"a": True, "b": True}
    store.close()


def test_a_lock_file_without_a_session_is_in_nobodys_way(path: Path, opened: Opener) -> None:
    store = opened()
    with Victim("a lock file without a session", f"{HERE}:register", path) as victim:
        victim.dies()
    assert len(list(path.with_name("runs.db-live").glob("*.session"))) == 1
    assert store.list_sessions() == store.end_sessions(None, Cause.DIED) == []
    assert store.register_session(new_session("worker")).id == "worker"


def test_a_session_whose_lock_file_was_not_removed_is_gone_by_its_row(
    path: Path, opened: Opener, started: Starter
) -> None:
    clock = ShiftedClock()
    store = opened(clock=clock)
    with started("hold", "worker", 1_000) as child:
        assert child.read() == "ready"
        clock.ahead_ms = 2_000
        assert [one.cause for one in store.end_sessions(None, Cause.STOPPED)] == [Cause.EXPIRED]
        child.kill()
    with Victim("lock files that are no longer needed", f"{HERE}:sweep", path) as victim:
        victim.dies()
    (left,) = path.with_name("runs.db-live").glob("*.session")
    left.unlink()  # the row says the same without it
    found = store.read_session("worker")
    assert found is not None
    assert found.evidence is not None
    assert (found.fate, found.evidence.is_gone) == (Fate.GONE, True)
    assert store.end_sessions(None, Cause.STOPPED) == []


def test_a_backup_that_was_not_named_leaves_the_one_before_and_a_draft_for_the_next(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    store, target = opened(), tmp_path / "copy.db"
    store.backup(target)
    before = target.read_bytes()
    store.create_runs([new_run("a")])
    with Victim("a draft beside the target", f"{HERE}:back_up", path, target) as victim:
        victim.dies()
    assert target.read_bytes() == before
    assert Path(f"{target}-draft").exists()
    assert store.backup(target).runs == 1
    assert not Path(f"{target}-draft").exists()
