"""Copies of the working tree, and what a run has changed in them."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ninelives.chaos.trial import work_tree
from ninelives.chaos.trial.work_tree import GONE, Tree, state_of
from ninelives.core.errors import UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "data" / "empty").mkdir(parents=True)
    (home / "__pycache__").mkdir()
    (home / ".git").mkdir()
    (home / ".git" / "HEAD").write_text("x")
    (home / "__pycache__" / "a.pyc").write_text("x")
    for name in ("myenv", "env", "target"):
        (home / name).mkdir()
    (home / "myenv" / "pyvenv.cfg").write_text("x")
    for name in ("agent.py", "data/old.txt", ".env", "env/conf.json"):
        (home / name).write_text(name)
    return home


def test_a_copy_has_what_a_run_needs_and_changes_are_told_by_content(root: Path, tmp_path: Path) -> None:
    known, copy = Tree(root), tmp_path / "copy"
    known.copy(copy)
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*")} == {
        "agent.py", "data", "data/empty", "data/old.txt", ".env", "env", "env/conf.json", "target",
    }  # fmt: skip
    assert known.changes(copy) == {}
    (copy / "data" / "old.txt").unlink()
    (copy / "new.txt").write_text("a\nb\n")
    (copy / "agent.py").write_text("other")
    changes = known.changes(copy)
    assert changes.keys() == {"data/old.txt", "new.txt", "agent.py"}
    assert changes["data/old.txt"] == GONE
    assert changes["new.txt"].lines == 2


def test_databases_are_compared_by_their_rows(root: Path, tmp_path: Path) -> None:
    known, found = Tree(root), []
    for number, rows in enumerate(([1, 2], [1, 2], [1, 2, 2])):
        copy = tmp_path / f"copy-{number}"
        known.copy(copy)
        with closing(sqlite3.connect(copy / "shop.db")) as database, database:
            database.execute("CREATE TABLE booked (id INTEGER)")
            for _ in range(number):  # other pages, the same rows
                database.execute("INSERT INTO booked VALUES (0)")
                database.execute("DELETE FROM booked WHERE id = 0")
            database.executemany("INSERT INTO booked VALUES (?)", [(row,) for row in rows])
        found.append(known.changes(copy)["shop.db"])
    assert found[0] == found[1] != found[2]


def test_a_tree_that_is_too_large_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_tree, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="--tree"):
        Tree(root)


def test_pipes_and_sockets_are_neither_copied_nor_compared(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
    (root / "broken").symlink_to("nowhere")
    known, copy = Tree(root), tmp_path / "copy"
    known.copy(copy)
    assert {path.name for path in copy.iterdir()}.isdisjoint({"pipe", "socket"})
    assert (copy / "broken").is_symlink()
    os.mkfifo(copy / "left")
    assert known.changes(copy) == {}


def test_a_tree_that_cannot_be_copied_is_a_wrong_call(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(root / "agent.py"))

    known = Tree(root)
    monkeypatch.setattr(shutil, "copy2", refuse)
    with pytest.raises(UsageError, match=r"agent\.py.*\n?.*--tree"):
        known.copy(tmp_path / "copy")


def test_a_file_that_a_run_left_unreadable_is_a_change(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    known, copy = Tree(root), tmp_path / "copy"
    known.copy(copy)
    (copy / "agent.py").write_text("other")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert known.changes(copy)["agent.py"].digest == "unreadable: Permission denied"


def test_a_file_outside_is_told_by_its_content_or_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    assert state_of(str(file)) == GONE.digest
    assert state_of(str(tmp_path)) == "no file"
    for path in (file, other):
        path.write_text("abc")
    assert state_of(str(file)) == state_of(str(other)) != "3 bytes"
    other.write_text("abd")
    assert state_of(str(file)) != state_of(str(other))
    monkeypatch.setattr(work_tree, "MOST_READ_BYTES", 2)
    assert state_of(str(file)) == "3 bytes"


def test_who_has_locked_a_file_keeps_the_lock_when_it_is_looked_at(tmp_path: Path) -> None:
    def is_locked() -> bool:
        """Ask from another process: to oneself one's locks are never in the way."""
        pid = os.fork()
        if not pid:
            with file.open("r+") as again:
                try:
                    fcntl.lockf(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1

    file = tmp_path / "pid"
    file.write_text("1234")
    with file.open("r+") as locked:
        fcntl.lockf(locked, fcntl.LOCK_EX)
        assert is_locked()
        assert state_of(str(file)) == "4 bytes"
        assert is_locked()
