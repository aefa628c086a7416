"""The schema: exactly ours or refused, before anything in it can run; old versions are migrated."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ninelives.backends.sqlite import SqliteStore, schema
from ninelives.backends.sqlite.connection import connect
from ninelives.core.commits import Outcome
from ninelives.core.errors import SchemaMismatch, StoreError
from ninelives.core.model import Run, RunQuery
from tests.contract.makers import AGENTS, append, new_run, new_session
from tests.integration.conftest import Opener, Starter
from tests.integration.roles import EXTRA

TWO = (*schema.migrations(), EXTRA)


def made(path: Path) -> None:
    """Make a store with two runs in it, and let go of it."""
    store = SqliteStore(path)
    store.create_runs([new_run("victim"), new_run("other")])
    store.close()


def changed(path: Path, *statements: str) -> None:
    """Change a database as another program would."""
    connection = connect(path)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def asked(path: Path, query: str) -> list[tuple[object, ...]]:
    """Ask the database without the store."""
    connection = connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE TRIGGER evil BEFORE UPDATE ON store BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE TRIGGER evil AFTER DELETE ON waiters BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE VIEW evil AS SELECT * FROM runs", "view evil"),
        ("CREATE TABLE evil (x)", "table evil"),
        ("CREATE INDEX evil ON runs (lower(agent))", "index evil"),
        ("CREATE VIRTUAL TABLE evil USING fts5(x)", "table evil"),
        ("DROP INDEX runs_due", "index runs_due"),
        ("DROP TABLE waiters", "table waiters"),
        ("ALTER TABLE runs ADD COLUMN more TEXT", "table runs"),
        ("ALTER TABLE keys RENAME COLUMN action TO deed", "table keys"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(path: Path, statement: str, named: str) -> None:
    made(path)
    changed(path, statement)
    for _ in range(2):
        with pytest.raises(SchemaMismatch) as caught:
            SqliteStore(path)
        assert named in caught.value.what
        assert caught.value.remedy
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


def test_a_trigger_that_hides_under_a_name_of_sqlites_own_is_refused(path: Path, opened: Opener) -> None:
    made(path)
    changed(
        path,
        "PRAGMA writable_schema = 1",
        "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('trigger', 'sqlite_evil',"
        " 'records', 0, 'CREATE TRIGGER sqlite_evil AFTER INSERT ON records BEGIN DELETE FROM runs; END')",
    )
    with pytest.raises(SchemaMismatch, match="sqlite_evil"):
        opened()
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER UPDATE ON store BEGIN DELETE FROM runs; END",
        "CREATE TRIGGER evil BEFORE INSERT ON records BEGIN DELETE FROM runs; END",
        "CREATE TABLE evil (x); CREATE TRIGGER e AFTER INSERT ON evil BEGIN DELETE FROM runs; END",
    ],
)
def test_an_old_store_is_looked_at_before_it_is_migrated(path: Path, statement: str) -> None:
    made(path)
    changed(path, statement)
    with pytest.raises(SchemaMismatch, match="evil"):
        SqliteStore(path, migrations=TWO)
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]
    assert asked(path, "PRAGMA user_version") == [(1,)]


def test_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    SqliteStore(path, migrations=TWO).close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=r"version 2; this Nine Lives knows 1") as caught:
        SqliteStore(path)
    assert "Upgrade" in str(caught.value.remedy)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_refused_clearly(path: Path, version: int) -> None:
    made(path)
    changed(path, f"PRAGMA user_version = {version}")
    with pytest.raises(SchemaMismatch) as caught:
        SqliteStore(path)
    assert caught.value.remedy
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


# Migrations --------------------------------------------------------------------------------------


def test_every_migration_is_numbered_without_a_gap() -> None:
    folder = Path(schema.__file__).parent / "migrations"
    names = sorted(file.name for file in folder.glob("*.sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert len(schema.migrations()) == len(names)


def test_an_old_store_is_migrated_when_it_is_opened_and_keeps_its_data(path: Path, opened: Opener) -> None:
    made(path)
    store = opened(migrations=TWO)
    assert store.migrate() == (1, 2)
    assert asked(path, "SELECT note FROM extra") == [("migrated",)]
    assert {run.id for run in store.list_runs(_all())} == {"victim", "other"}
    store.create_runs([new_run("new")])
    assert store.verify() == []
    assert opened(migrations=TWO).migrate() == (2, 2)


def test_a_store_made_at_a_version_is_as_one_migrated_to_it(path: Path, tmp_path: Path) -> None:
    made(path)
    SqliteStore(path, migrations=TWO).close()
    SqliteStore(tmp_path / "new.db", migrations=TWO).close()
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2"
    assert asked(path, query) == asked(tmp_path / "new.db", query)


def test_a_migration_that_fails_changes_nothing(path: Path, opened: Opener) -> None:
    made(path)
    half = "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)"
    for _ in range(2):
        with pytest.raises(StoreError):
            SqliteStore(path, migrations=(*schema.migrations(), half))
    assert asked(path, "PRAGMA user_version") == [(1,)]
    store = opened()
    assert store.verify() == []
    assert store.read_run("victim") is not None


def test_a_running_process_of_the_old_version_stops_at_its_next_write(path: Path, opened: Opener) -> None:
    old = opened()
    old.register_session(new_session(lease_ms=1_000_000))
    old.create_runs([new_run("a"), new_run("b")])
    (first, second) = old.claim_runs("s1", 2, AGENTS).runs
    new = opened(migrations=TWO)
    assert new.migrate() == (1, 2)
    for attempt in (
        lambda: old.commit([append(first, b"late")]),
        lambda: old.commit([append(second, b"late")]),
        lambda: old.create_runs([new_run("c")]),
        lambda: old.renew_session("s1"),
    ):
        with pytest.raises(SchemaMismatch, match="another schema version") as caught:
            attempt()
        assert caught.value.remedy
    assert old.read_run("c") is None
    row = new.read_run("a")
    assert isinstance(row, Run)
    assert row.length == 1
    (verdict,) = new.commit([append(first, b"in time")])
    assert verdict.outcome is Outcome.COMMITTED


def test_two_processes_that_open_an_old_store_at_once_migrate_it_once(
    path: Path, started: Starter, opened: Opener
) -> None:
    made(path)
    both = [started("open_once") for _ in range(2)]
    assert [child.read() for child in both] == ["ready", "ready"]
    for child in both:
        child.tell()
    assert sorted(child.read() for child in both) == ["1 2", "2 2"]
    assert [child.wait() for child in both] == [0, 0]
    assert asked(path, "SELECT count(*) FROM extra") == [(1,)]
    assert len(opened(migrations=TWO).list_runs(_all())) == 4


def test_two_processes_that_make_a_store_at_once_make_one(
    path: Path, started: Starter, opened: Opener
) -> None:
    both = [started("open_once") for _ in range(2)]
    assert [child.read() for child in both] == ["ready", "ready"]
    for child in both:
        child.tell()
    assert [child.read() for child in both] == ["2 2", "2 2"]
    assert [child.wait() for child in both] == [0, 0]
    assert len(opened(migrations=TWO).list_runs(_all())) == 2


def _all() -> RunQuery:
    return RunQuery(limit=1000)
