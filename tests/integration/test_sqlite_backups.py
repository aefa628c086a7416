"""Backup and restore of a store: live, whole, verified; and nothing is done again because of a restore."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ninelives.core.errors import Corrupt, StoreUnavailable, UsageError
from ninelives.core.journal.answers import ItemBody
from ninelives.core.journal.settlement import StartBody
from ninelives.core.model.commit import Outcome
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Control, Kind, Record, RunQuery, RunRow
from ninelives.core.model.session import Fate
from ninelives.core.rules import restore as restoring
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import anchor
from ninelives.stores.sqlite.files.backups import restore
from tests.clocks import SteppingClock
from tests.contract.makers import AGENTS, append, new_run, new_session
from tests.integration.conftest import Opener, Starter

CLOCK = SystemClock()


def test_a_backup_of_a_store_in_use_is_a_store(
    path: Path, tmp_path: Path, started: Starter, opened: Opener
) -> None:
    writer = started("create", "r")
    assert writer.read() == "ready"
    assert writer.ask("20") == "done"
    writer.tell("500")
    made = opened().backup(tmp_path / "copy.db")
    assert writer.read() == "done"
    copy = opened(tmp_path / "copy.db")
    names = {run.id for run in copy.list_runs(RunQuery(limit=1000))}
    assert names == {f"r{number}" for number in range(made.runs)}
    assert made.runs >= 20
    assert copy.verify() == []
    copy.create_runs([new_run("goes on")])
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_backup_replaces_the_one_before_and_nothing_else(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    store, target = opened(), tmp_path / "copy.db"
    store.create_runs([new_run("a")])
    assert store.backup(target).runs == 1
    store.create_runs([new_run("b")])
    assert store.backup(target).runs == 2
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(theirs)) as tool:
        tool.execute("CREATE TABLE theirs (x)")
    for wrong in (theirs, path):
        before = wrong.read_bytes()
        with pytest.raises((UsageError, Corrupt)):
            store.backup(wrong)
        assert wrong.read_bytes() == before
    with pytest.raises(UsageError, match="no directory"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    assert sorted(file.name for file in tmp_path.glob("*draft*")) == []


def test_a_backup_that_was_opened_as_a_store_is_not_replaced(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    store, target = opened(), tmp_path / "copy.db"
    store.backup(target)
    SqliteStore(target).close()
    with pytest.raises(UsageError, match="was opened as a store"):
        store.backup(target)


def is_open(path: Path) -> bool:
    """Ask another process whether any has a database open."""
    asking = (
        "import sys; from pathlib import Path; from ninelives.core.errors import UsageError\n"
        "from ninelives.stores.sqlite.files.database import require_closed\n"
        "try: require_closed(Path(sys.argv[1]))\n"
        "except UsageError: sys.exit(7)"
    )
    code = subprocess.run([sys.executable, "-c", asking, path], check=False).returncode
    assert code in (0, 7)
    return code == 7


def test_a_store_that_this_process_has_open_keeps_its_locks_when_a_backup_onto_it_is_refused(
    tmp_path: Path, opened: Opener
) -> None:
    store, target = opened(), tmp_path / "other.db"
    opened(target)
    assert is_open(target)
    with pytest.raises(UsageError, match="is open in a process"):
        store.backup(target)
    assert is_open(target)


def test_a_store_that_this_process_has_open_keeps_its_locks_when_it_is_restored_from(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    opened().create_runs([new_run("a")])
    assert restore(path, tmp_path / "new.db", CLOCK).runs == 1
    assert is_open(path)


def test_a_backup_of_damage_is_refused_and_leaves_the_old_one(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    store, target = opened(), tmp_path / "copy.db"
    store.create_runs([new_run("a")])
    store.backup(target)
    before = target.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute("UPDATE runs SET epoch = epoch + 1")
    with pytest.raises(Corrupt, match="not sound"):
        store.backup(target)
    assert target.read_bytes() == before


def lived(path: Path, target: Path) -> None:
    """Make a store with a start that has no outcome, back it up, and live on; then it is gone."""
    store = SqliteStore(path)
    store.register_session(new_session(lease_ms=1_000_000))
    store.create_runs([new_run(name) for name in ("begun", "waits")])
    (run,) = store.claim_runs("s1", 1, AGENTS).runs
    start = start_by("s1")
    (verdict,) = store.commit([append(run, start, kind=Kind.INTENT)])
    assert verdict.outcome is Outcome.COMMITTED
    store.backup(target)
    store.create_runs([new_run("later")])
    store.close()


def start_by(session: str) -> bytes:
    """Return the body of the start of a non-resumable action."""
    return msgspec.json.encode(StartBody(f="00", a={"cents": "500"}, w=session, l=1000))


def test_a_restored_store_lets_unfinished_runs_wait_for_a_person(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    lived(path, tmp_path / "copy.db")
    before = {run.id: run for run in opened(tmp_path / "copy.db").list_runs(RunQuery())}
    done = restore(tmp_path / "copy.db", tmp_path / "new.db", CLOCK)
    assert done.paused == ("begun", "waits")
    assert done.doubts == (("begun", "step#0"),)
    store = opened(tmp_path / "new.db")
    assert store.verify() == []
    for name, run in before.items():
        after = store.read_run(name)
        assert after is not None
        assert after.paused
        assert after.epoch > run.epoch
        assert after.session is None
    (item,) = store.list_inbox()
    assert (item.run, item.step, item.kind) == ("begun", "step#0", ItemKind.DOUBT)
    journal = store.load_journal("begun", since=0)
    assert journal.records[-1].kind is Kind.DOUBT
    assert store.list_sessions() == []
    assert anchor.read(tmp_path / "new.db-anchor")[0] != anchor.read(Path(f"{path}-anchor"))[0]


def test_whoever_owned_a_run_before_the_restore_is_fenced(path: Path, tmp_path: Path, opened: Opener) -> None:
    lived(path, tmp_path / "copy.db")
    run = opened(tmp_path / "copy.db").read_run("begun")
    assert run is not None
    restore(tmp_path / "copy.db", tmp_path / "new.db", CLOCK)
    (verdict,) = opened(tmp_path / "new.db").commit([append(run, b"late")])
    assert verdict.outcome is Outcome.FENCED


def test_a_store_in_use_is_not_overwritten(
    path: Path, tmp_path: Path, opened: Opener, started: Starter
) -> None:
    lived(path, tmp_path / "copy.db")
    with pytest.raises(UsageError, match="there is a store") as caught:
        restore(tmp_path / "copy.db", path, CLOCK)
    assert "--replace" in str(caught.value.remedy)
    writer = started("create", "r")
    assert writer.read() == "ready"
    with pytest.raises(UsageError, match="is open in a process"):
        restore(tmp_path / "copy.db", path, CLOCK, replaces=True)
    writer.kill()
    done = restore(tmp_path / "copy.db", path, CLOCK, replaces=True)
    assert opened().read_run("later") is None
    assert done.replaced is not None
    assert opened(Path(done.replaced)).read_run("later") is not None


def test_a_damaged_backup_is_not_restored(path: Path, tmp_path: Path, opened: Opener) -> None:
    lived(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db", isolation_level=None)) as tool:
        tool.execute("UPDATE runs SET epoch = 0")
    with pytest.raises(Corrupt, match="not sound"):
        restore(tmp_path / "copy.db", path, CLOCK, replaces=True)
    assert opened().read_run("later") is not None


@pytest.mark.parametrize("what", ["text", "empty", "another database", "damaged"])
def test_a_refused_restore_says_why_and_leaves_nothing(path: Path, tmp_path: Path, what: str) -> None:
    source, there = tmp_path / "source", tmp_path / "new" / "deep"
    if what == "another database":
        with closing(sqlite3.connect(source)) as tool:
            tool.execute("CREATE TABLE theirs (a)")
    elif what == "damaged":
        lived(path, source)
        with closing(sqlite3.connect(source, isolation_level=None)) as tool:
            tool.execute("UPDATE runs SET epoch = 0")
    else:
        source.write_text("hello" if what == "text" else "")
    before = sorted(tmp_path.iterdir())
    expected = (Corrupt, "not sound") if what == "damaged" else (UsageError, "is not a Nine Lives store")
    for target in (tmp_path / "n.db", there / "n.db"):
        with pytest.raises(expected[0], match=expected[1]):
            restore(source, target, CLOCK)
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_is_no_place_for_a_store(path: Path, tmp_path: Path, opened: Opener) -> None:
    lived(path, tmp_path / "copy.db")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for replaces in (False, True):
        with pytest.raises(StoreUnavailable, match="Is a directory"):
            restore(tmp_path / "copy.db", tmp_path / "folder", CLOCK, replaces=replaces)
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        opened(tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("tool", ["backup API", "VACUUM INTO", "files"])
def test_copies_that_stock_tools_made_are_restored_too(
    path: Path, tmp_path: Path, opened: Opener, tool: str
) -> None:
    lived(path, tmp_path / "ours.db")
    copy = tmp_path / "copy.db"
    if tool == "files":
        shutil.copyfile(path, copy)
    else:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            if tool == "backup API":
                source.backup(target)
            else:
                source.execute("VACUUM INTO ?", (str(tmp_path / "vacuumed.db"),))
        copy = copy if tool == "backup API" else tmp_path / "vacuumed.db"
    done = restore(copy, tmp_path / "new.db", CLOCK)
    assert done.paused == ("begun", "waits", "later")
    assert opened(tmp_path / "new.db").verify() == []
    store = opened(tmp_path / "new.db")
    store.control_run("waits", Control.RESUME)
    store.register_session(new_session("s2"))
    assert [run.id for run in store.claim_runs("s2", 9, AGENTS).runs] == ["waits"]


class Killed(BaseException):
    """Stands for SIGKILL right here: nothing after it is done."""


@pytest.mark.parametrize("last", range(5))
def test_a_restore_that_is_killed_between_two_files_leaves_no_room_for_an_empty_store(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    lived(path, tmp_path / "copy.db")
    Path(f"{path}-wal").write_bytes(b"the log of the killed")
    renamed: list[Path] = []
    rename = Path.rename

    def until_killed(old: Path, new: Path | str) -> Path:
        if len(renamed) == last:
            raise Killed
        renamed.append(old)
        return rename(old, new)

    monkeypatch.setattr(Path, "rename", until_killed)
    with pytest.raises(Killed):
        restore(tmp_path / "copy.db", path, CLOCK, replaces=True)
    monkeypatch.undo()
    if not path.exists():
        with pytest.raises(Corrupt, match="is gone, and its anchor counts"):
            SqliteStore(path)
    restore(tmp_path / "copy.db", path, CLOCK, replaces=True)
    # What was there is kept together, under one name.
    kept, *parts = sorted(tmp_path.glob("runs.db-replaced-*"))
    assert [part.name.removeprefix(kept.name) for part in parts] == ["-anchor", "-wal"]
    assert Path(f"{kept}-wal").read_bytes() == b"the log of the killed"
    with closing(sqlite3.connect(kept)) as tool:
        (store_id,) = tool.execute("SELECT id FROM store").fetchone()
    assert anchor.read(Path(f"{kept}-anchor"))[0] == store_id


def test_a_worker_of_another_machine_is_not_called_gone_by_a_restored_store(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    lived(path, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "new.db", SteppingClock())
    session = opened(tmp_path / "new.db", clock=SteppingClock()).read_session("s1")
    assert session is not None
    assert session.fate is Fate.UNKNOWN


def test_a_question_of_a_restored_store_names_step_and_arguments_as_people_do(
    path: Path, tmp_path: Path, opened: Opener
) -> None:
    start = StartBody(f="00", a={"to": '"ada"', "text": '"once… (900)'}, w="s1")
    run = restoring.fenced(_some_run(path), 7)
    record = Record(
        seq=1, kind=Kind.INTENT, step="#mail#0", at_ms=5, body=msgspec.json.encode(start), check=b""
    )
    (doubt,) = restoring.doubts_in(run, [record], 7)
    asked = msgspec.json.decode(doubt.item.body, type=ItemBody)
    assert asked.what.startswith("Did mail happen?")
    assert {name: bytes(raw) for name, raw in asked.arguments.items()} == {
        "to": b'"ada"',
        "text": '"\\"once… (900)"'.encode(),
    }


def _some_run(path: Path) -> RunRow:
    with closing(SqliteStore(path)) as store:
        (run,) = store.create_runs([new_run("a")])
        assert isinstance(run, RunRow)
        return run


def test_two_backups_of_one_name_at_once_do_not_empty_the_finished_one(
    path: Path, tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = opened(), tmp_path / "copy.db"
    store.create_runs([new_run("a")])
    flock = fcntl.flock

    def finished_just_before(fd: int, how: int) -> None:
        monkeypatch.undo()
        (tmp_path / "copy.db-draft").rename(target)  # the other one's last act, after we opened its draft
        flock(fd, how)

    (tmp_path / "copy.db-draft").write_bytes(b"whole")
    monkeypatch.setattr(fcntl, "flock", finished_just_before)
    with pytest.raises(UsageError, match="another process is writing"):
        store.backup(target)
    assert target.read_bytes() == b"whole"
