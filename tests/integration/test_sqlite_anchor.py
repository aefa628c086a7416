"""The anchor beside the database: no tail is lost without a word, and going on after a loss is explicit."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import Corrupt, NineLivesError, SchemaMismatch, StoreBroken, UsageError
from ninelives.core.model.commit import End, Outcome, Park
from ninelives.core.model.run import Control, RunRow, State
from ninelives.core.model.session import Cause
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore, queries
from ninelives.stores.sqlite.files import anchor
from ninelives.stores.sqlite.maintenance import accept_loss
from tests.contract.makers import AGENTS, append, damage_in, new_run, new_session
from tests.integration.conftest import Opener, Starter

CLOCK = SystemClock()


@pytest.fixture
def beside(path: Path) -> Path:
    """Return where the anchor is."""
    return path.with_name(path.name + "-anchor")


def made(path: Path) -> None:
    """Make a store with a few commits, and let go of it."""
    store = SqliteStore(path)
    for name in ("a", "b", "c"):
        store.create_runs([new_run(name)])
    store.close()


def moved(beside: Path, by: int) -> None:
    """Let the anchor count more, or fewer, commits than there are."""
    store_id, commits, _ = anchor.read(beside)
    anchor.create(beside, store_id, commits + by)


def refusal(path: Path) -> Corrupt:
    """Open the store, which must be refused as often as it is tried."""
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            SqliteStore(path)
        assert str(path) in str(caught.value)
        assert caught.value.remedy
    return caught.value


def test_the_anchor_counts_every_commit(path: Path, beside: Path) -> None:
    made(path)
    assert anchor.read(beside)[1] == 3


def test_a_call_that_changes_nothing_is_no_commit(path: Path, beside: Path, opened: Opener) -> None:
    made(path)
    store = opened()
    store.create_runs([new_run("a")])
    assert anchor.read(beside)[1] == 3


def test_a_copy_without_its_anchor_opens_and_gets_one(path: Path, beside: Path, opened: Opener) -> None:
    made(path)
    beside.unlink()
    store = opened()
    assert store.read_run("c") is not None
    assert anchor.read(beside)[1] == 3
    store.create_runs([new_run("d")])
    assert anchor.read(beside)[1] == 4


def test_the_anchor_of_another_database_is_refused(path: Path, beside: Path, tmp_path: Path) -> None:
    made(path)
    made(tmp_path / "other.db")
    beside.write_bytes((tmp_path / "other.db-anchor").read_bytes())
    assert "another database" in refusal(path).what


def test_an_anchor_ahead_of_the_database_is_a_lost_tail(path: Path, beside: Path) -> None:
    made(path)
    moved(beside, 2)
    fault = refusal(path)
    assert "ends at commit 3, and 5 were acknowledged" in fault.what
    assert f"accept-loss {path}" in str(fault.remedy)


def test_an_anchor_behind_is_harmless_and_catches_up(path: Path, beside: Path, opened: Opener) -> None:
    made(path)
    moved(beside, -2)
    opened().create_runs([new_run("d")])
    assert anchor.read(beside)[1] == 4


@pytest.mark.parametrize("size", [0, 1, 35, 37, 4096])
def test_an_anchor_of_another_size_is_damaged(path: Path, beside: Path, size: int) -> None:
    made(path)
    os.truncate(beside, size)
    assert "is damaged" in refusal(path).what


@pytest.mark.parametrize("place", [0, 8, 23, 24, 31, 35])
def test_an_anchor_with_a_flipped_bit_is_damaged(path: Path, beside: Path, place: int) -> None:
    made(path)
    image = bytearray(beside.read_bytes())
    image[place] ^= 1
    beside.write_bytes(image)
    assert "is damaged" in refusal(path).what


def test_a_database_that_is_gone_is_not_made_again(path: Path) -> None:
    made(path)
    path.unlink()
    assert "is gone, and its anchor counts 3 commits" in refusal(path).what
    assert not path.exists()


def test_an_anchor_without_commits_does_not_hinder_a_new_database(path: Path, beside: Path) -> None:
    anchor.create(beside, b"i" * 16)
    made(path)


def test_a_store_without_its_own_row_is_damaged(path: Path) -> None:
    made(path)
    changed(path, "DELETE FROM store")
    with pytest.raises(Corrupt):
        SqliteStore(path)


def changed(path: Path, *statements: str) -> None:
    """Change the database behind the store's back, with checks as we write them."""
    from ninelives.stores.sqlite.files.connection import connect

    connection = connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


_BACK = queries.load(
    "-- name: back\nUPDATE store SET commits = 1, \"check\" = sealed('store', @store(commits = 1))\n"
    f"-- name: insert_store\n{queries.SQL['insert_store']}"
)["back"]


# While the process runs --------------------------------------------------------------------------


def test_a_database_that_goes_back_under_a_running_process_is_noticed(path: Path, opened: Opener) -> None:
    store = opened()
    for name in ("a", "b", "c"):
        store.create_runs([new_run(name)])
    changed(path, _BACK)
    with pytest.raises(Corrupt, match="went back"):
        store.create_runs([new_run("d")])
    assert store.read_run("d") is None


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_renewal_notices_that_the_database_is_another_one(path: Path, how: str, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.register_session(new_session())
    assert store.renew_session("s1").id == "s1"
    if how == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere.db")
    if how == "replaced":
        made(tmp_path / "new.db")
        (tmp_path / "new.db").rename(path)
    with pytest.raises(StoreBroken, match="moved or replaced") as caught:
        store.renew_session("s1")
    assert str(path) in caught.value.what
    for _ in range(2):
        with pytest.raises(StoreBroken):
            store.create_runs([new_run("lost")])
        with pytest.raises(StoreBroken):
            store.read_run("a")
    store.close()


# Going on after a loss ---------------------------------------------------------------------------


def lost(path: Path, beside: Path) -> dict[str, RunRow]:
    """Make a store with a run in each state, which then loses its tail; return the rows."""
    store = SqliteStore(path)
    store.register_session(new_session(lease_ms=1_000_000))
    names = ["completed", "failed", "parked", "running", "pending", "paused", "cancelled"]
    store.create_runs([new_run(name, agent=name) for name in names])
    owned = [name for name in names if name not in ("pending", "paused", "cancelled")]
    rows = {run.id: run for run in store.claim_runs("s1", 9, dict.fromkeys(owned, 1)).runs}
    store.commit(
        [
            append(rows["completed"], b"x", change=End(State.COMPLETED)),
            append(rows["failed"], b"x", change=End(State.FAILED)),
            append(rows["parked"], b"x", change=Park(1, "sleeps", 0)),
            append(rows["running"], b"x"),
        ]
    )
    store.control_run("paused", Control.PAUSE)
    store.control_run("cancelled", Control.CANCEL)
    found = {name: store.read_run(name) for name in names}
    store.close()
    moved(beside, 1)
    return {name: run for name, run in found.items() if run is not None}


def test_after_a_loss_every_unfinished_run_is_paused_and_no_other(
    path: Path, beside: Path, opened: Opener
) -> None:
    before = lost(path, beside)
    refusal(path)
    assert sorted(accept_loss(path, CLOCK)) == ["parked", "pending", "running"]
    store = opened()
    for name in ("completed", "failed", "cancelled", "paused"):
        assert store.read_run(name) == before[name]
    for name in ("parked", "pending", "running"):
        row = store.read_run(name)
        assert row is not None
        assert row.paused
        assert (row.state, row.length, row.head) == (
            before[name].state,
            before[name].length,
            before[name].head,
        )
    assert damage_in(store) == []


def test_accepting_a_loss_twice_is_refused_and_harmless(path: Path, beside: Path, opened: Opener) -> None:
    lost(path, beside)
    accept_loss(path, CLOCK)
    with pytest.raises(UsageError, match="nothing is lost"):
        accept_loss(path, CLOCK)
    assert all((row := opened().read_run(name)) and row.paused for name in ("parked", "pending", "running"))


def test_a_whole_store_is_not_touched(path: Path, opened: Opener) -> None:
    made(path)
    with pytest.raises(UsageError, match="nothing is lost"):
        accept_loss(path, CLOCK)
    assert not any((row := opened().read_run(name)) and row.paused for name in ("a", "b", "c"))


def test_a_loss_is_not_accepted_while_a_process_has_the_store_open(
    path: Path, beside: Path, started: Starter
) -> None:
    writer = started("create", "r")
    assert writer.read() == "ready"
    assert writer.ask("3") == "done"
    beside.write_bytes(b"damaged")
    with pytest.raises(UsageError, match="is open in a process"):
        accept_loss(path, CLOCK)
    writer.kill()
    assert len(accept_loss(path, CLOCK)) == 3


def test_runs_resumed_after_a_loss_go_on(path: Path, beside: Path, opened: Opener) -> None:
    lost(path, beside)
    accept_loss(path, CLOCK)
    store = opened()
    agents = dict.fromkeys(("parked", "pending", "running"), 1)
    store.register_session(new_session("s2"))
    assert store.claim_runs("s2", 9, agents).runs == ()
    store.end_sessions(["s1"], Cause.DIED)
    for name in agents:
        store.control_run(name, Control.RESUME)
    claimed = store.claim_runs("s2", 9, agents).runs
    assert {run.id for run in claimed} == set(agents)
    for run in claimed:
        (verdict,) = store.commit([append(run, b"on", change=End(State.COMPLETED))])
        assert verdict.outcome is Outcome.COMMITTED
        assert store.load_journal(run.id, since=0).run.state is State.COMPLETED
    assert damage_in(store) == []


def test_a_missing_or_damaged_anchor_can_be_accepted_too(path: Path, beside: Path, opened: Opener) -> None:
    made(path)
    beside.write_bytes(b"damaged")
    assert sorted(accept_loss(path, CLOCK)) == ["a", "b", "c"]
    beside.unlink()
    assert accept_loss(path, CLOCK) == []
    assert opened().read_run("a") is not None
    assert beside.stat().st_mode & 0o777 == 0o600


def test_a_loss_of_everything_cannot_be_accepted(path: Path) -> None:
    made(path)
    path.unlink()
    with pytest.raises(NineLivesError) as caught:
        accept_loss(path, CLOCK)
    assert str(path) in caught.value.what
    assert not path.exists()


def test_a_process_that_has_seen_what_was_lost_cannot_go_on(path: Path, opened: Opener) -> None:
    store = opened()
    for name in ("a", "b", "c"):
        store.create_runs([new_run(name)])
    changed(path, _BACK, "DELETE FROM runs WHERE id = 'c'")
    with pytest.raises(Corrupt, match="went back"):
        store.control_run("a", Control.PAUSE)


def test_accepting_a_loss_runs_nothing_that_is_in_the_file(path: Path) -> None:
    made(path)
    changed(path, "CREATE TRIGGER evil AFTER UPDATE ON runs BEGIN DELETE FROM runs; END")
    with pytest.raises(SchemaMismatch, match="trigger evil"):
        accept_loss(path, CLOCK)
    left = apsw.Connection(str(path))
    assert left.execute("SELECT count(*), sum(paused) FROM runs").fetchall() == [(3, 0)]
    left.close()


def test_claims_of_a_store_that_was_copied_whole_go_on(path: Path, tmp_path: Path, opened: Opener) -> None:
    made(path)
    there = tmp_path / "there"
    there.mkdir()
    for one in ("", "-wal", "-anchor"):
        source = Path(f"{path}{one}")
        if not source.exists():
            continue
        target = there / f"runs.db{one}"
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
    store = opened(there / "runs.db")
    store.register_session(new_session())
    assert len(store.claim_runs("s1", 9, AGENTS).runs) == 3


def test_a_copy_without_its_log_is_a_lost_tail(path: Path, tmp_path: Path, opened: Opener) -> None:
    store = opened()
    before = path.read_bytes()  # before the log went into it
    for name in ("a", "b", "c"):
        store.create_runs([new_run(name)])
    copy = tmp_path / "copy.db"
    copy.write_bytes(before)
    copy.chmod(0o600)
    Path(f"{copy}-anchor").write_bytes(Path(f"{path}-anchor").read_bytes())
    assert "lost its tail" in refusal(copy).what
