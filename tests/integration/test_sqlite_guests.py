"""Other programs and other objects on the same file: looking at a store does not harm it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.stores.open import open_store
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import database
from ninelives.stores.sqlite.files.wakeups import Datagrams
from tests.contract.makers import new_run
from tests.integration.conftest import Opener, Starter

_TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
"""


def is_locked(path: Path) -> bool:
    """Tell whether another process would take the database for one that nobody uses.

    SQLite holds a shared lock on these bytes while it is open; who can lock them for itself believes
    to be the last, copies the log without asking anybody, and removes it.
    """
    asked = [sys.executable, "-c", _TRY_LOCK, str(path)]
    return subprocess.run(asked, check=False, capture_output=True).returncode != 0


def test_an_open_store_is_locked_until_its_last_object_is_closed(path: Path) -> None:
    first = SqliteStore(path)
    locked = [is_locked(path)]
    second = SqliteStore(path)
    locked.append(is_locked(path))
    second.close()
    locked.append(is_locked(path))
    first.close()
    locked.append(is_locked(path))
    assert locked == [True, True, True, False]


def test_objects_that_are_opened_at_the_same_time_keep_their_lock(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Datagrams

    def make_late(*words: object) -> object:
        # Here the first one has its connections and has left the writers' queue, but is not ready yet.
        monkeypatch.setattr(database, "Datagrams", make)
        opened()
        return make(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "Datagrams", make_late)
    opened()
    assert is_locked(path), "the second one let go of the first one's lock"


def test_a_refused_opening_does_not_unlock_the_open_store(path: Path, opened: Opener) -> None:
    opened()
    Path(f"{path}-anchor").rename(f"{path}-elsewhere")
    Path(f"{path}-anchor").write_bytes(b"damaged")
    with pytest.raises(NineLivesError):
        SqliteStore(path)
    Path(f"{path}-elsewhere").rename(f"{path}-anchor")
    assert is_locked(path)


@pytest.mark.parametrize("objects", [1, 2])
def test_another_program_may_look_at_a_live_store(
    path: Path, opened: Opener, started: Starter, objects: int
) -> None:
    stores = [opened() for _ in range(objects)]
    stores[0].create_runs([new_run("a")])
    assert started("peek").read() == "1"
    stores[0].create_runs([new_run("b")])
    assert stores[0].verify() == []
    assert started("peek").read() == "2"


def test_another_program_may_look_at_a_store_that_was_closed(
    path: Path, started: Starter, opened: Opener
) -> None:
    writer = started("create", "r")
    assert writer.read() == "ready"
    assert writer.ask("20") == "done"
    writer.tell("")
    writer.wait()
    assert started("peek").read() == "20"
    store = opened()
    assert store.verify() == []
    assert store.read_run("r19") is not None


def test_another_program_may_look_at_the_store_of_a_killed_one(
    path: Path, started: Starter, opened: Opener
) -> None:
    writer = started("create", "r")
    assert writer.read() == "ready"
    assert writer.ask("20") == "done"
    writer.kill()
    assert started("peek").read() == "20"  # and on closing it copies the log into the database
    assert not Path(f"{path}-wal").exists()
    store = opened()
    assert None not in [store.read_run(f"r{number}") for number in range(20)]
    assert store.verify() == []


def test_a_forked_child_opens_its_parents_store_with_locks_of_its_own_or_not_at_all(
    path: Path, started: Starter
) -> None:
    family = started("reopen")
    told = family.read()
    if told == "opened":
        family.kill()  # the parent, and its locks with it; the child lives on
        try:
            assert is_locked(path), "the child works without any lock"
        finally:
            family.tell()
    else:
        assert told.startswith("StoreUnsafe")
        assert str(path) in told


# Addresses ---------------------------------------------------------------------------------------


def test_a_url_names_a_file_below_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///deep/runs.db")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "deep" / "runs.db"
    store.close()


def test_a_url_with_four_slashes_names_a_file_from_the_root(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    assert isinstance(store, SqliteStore)
    assert store.path == path
    store.close()


def test_the_default_is_below_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store().close()
    assert (tmp_path / ".ninelives" / "runs.db").exists()


def test_escapes_in_a_url_are_undone(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/a%20b%25%C3%A4.db")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "a b%ä.db"
    store.close()


@pytest.mark.parametrize("name", ["plain.db", "a b.db", "100%41.db", "ä?b#c.db"])
def test_the_url_of_a_store_opens_the_same_store(tmp_path: Path, opened: Opener, name: str) -> None:
    store = opened(tmp_path / name)
    again = open_store(store.url)
    again.close()
    assert isinstance(again, SqliteStore)
    assert again.path == store.path


def test_memory_is_a_store_too() -> None:
    assert open_store("memory:").url == "memory:"


@pytest.mark.parametrize(
    "url",
    [
        "",
        ":",
        "runs.db",
        "/abs/runs.db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:runs.db",
        "sqlite://host/runs.db",
        "SQLITE:///runs.db",
        "redys://x",
        "memory",
        "memory:x",
        "memory:///x",
    ],
)
def test_any_other_url_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="names no store") as caught:
        open_store(url)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_names_no_possible_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NineLivesError) as caught:
        open_store(f"sqlite:///{tmp_path}/a%00b.db")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


# Closing -----------------------------------------------------------------------------------------


def test_closing_twice_is_harmless(started: Starter) -> None:
    assert started("close_twice").read() == "fine"


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    calls = (
        lambda: store.read_run("a"),
        lambda: store.create_runs([new_run()]),
        lambda: store.wait_for_work(0),
        store.stats,
        store.verify,
    )
    for call in calls:
        with pytest.raises(NineLivesError):
            call()
