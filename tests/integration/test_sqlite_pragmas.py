"""Every setting is read back on every connection: one that does not take is refused."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import StoreUnsafe
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import connection
from ninelives.stores.sqlite.files.connection import connect
from tests.contract.makers import new_run
from tests.integration.conftest import Opener

WANTED = {
    "journal_mode": "wal",
    "synchronous": 2,
    "wal_autocheckpoint": 0,
    "cell_size_check": 1,
    "trusted_schema": 0,
    "recursive_triggers": 0,
    "locking_mode": "normal",
    "foreign_keys": 0,
}


def test_what_our_promises_rest_on_is_among_the_settings() -> None:
    assert dict(connection._PRAGMAS).items() >= WANTED.items()


def test_every_connection_of_a_store_has_the_settings(opened: Opener) -> None:
    store = opened()
    for one in (store._files._writer, store._files._reader, store._files.connect()):
        for name, wanted in WANTED.items():
            assert one.pragma(name) == wanted
    assert store._files._writer.pragma("page_size") == connection.PAGE_BYTES
    assert store._files._writer.pragma("application_id") == connection.APPLICATION_ID


class Deaf(apsw.Connection):
    """A connection on which one setting does not take, and says nothing about it."""

    ignores = ""
    answers: object = None

    def pragma(self, name: str, *values: object, **named: object) -> object:
        """Set nothing, and read back what the setting was."""
        if name == self.ignores:
            return self.answers
        return super().pragma(name, *values, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(WANTED))
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "existing"])
def test_a_setting_that_does_not_take_is_refused(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    if is_there:
        SqliteStore(path).close()
    monkeypatch.setattr(Deaf, "ignores", name)
    monkeypatch.setattr(Deaf, "answers", "delete" if name == "journal_mode" else 7)
    monkeypatch.setattr(apsw, "Connection", Deaf)
    with pytest.raises(StoreUnsafe, match=f"SQLite has {name} = ") as caught:
        SqliteStore(path)
    assert str(path) in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("wanted", [("synchronous", 7), ("no_such_pragma", 1), ("encoding", "UTF-16le")])
def test_each_setting_in_the_list_is_compared_with_what_is_read_back(
    path: Path, wanted: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(path).close()
    monkeypatch.setattr(connection, "_PRAGMAS", (*connection._PRAGMAS, wanted))
    with pytest.raises(StoreUnsafe, match=f"SQLite has {wanted[0]} = "):
        SqliteStore(path)


def test_a_store_that_another_program_took_out_of_wal_mode_is_put_back(path: Path, opened: Opener) -> None:
    SqliteStore(path).close()
    other = apsw.Connection(str(path))
    assert other.pragma("journal_mode", "delete") == "delete"
    other.pragma("page_size", 1024)
    other.execute("VACUUM")
    assert other.pragma("page_size") == 1024
    other.close()
    store = opened()
    store.create_runs([new_run("a")])
    assert store._files._writer.pragma("journal_mode") == "wal"
    assert store.verify() == []


def test_schemas_cannot_be_written_and_names_of_functions_in_them_do_not_run(path: Path) -> None:
    SqliteStore(path).close()
    guarded = connect(path)
    guarded.pragma("writable_schema", 1)
    with pytest.raises(apsw.SQLError):
        guarded.execute("DELETE FROM sqlite_schema")
    assert guarded.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    assert not guarded.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, -1)
    guarded.close()
