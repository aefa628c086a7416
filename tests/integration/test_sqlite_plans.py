"""Query plans: no statement of the hot path walks a whole table."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import apsw.ext
import pytest

from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.files import schema
from ninelives.stores.sqlite.queries import SQL

# What operators ask for now and then may walk a table; each walk is counted here, so that none slips in.
OPERATORS = {
    "all_entries",
    "all_documents",
    "all_counters",
    "count_runs_by_agent",
    "list_runs",
    "list_inbox",
    "count_runs",
    "count_others",
    "stray_labels",
    "stray_records",
    "lost_references",
    "old_blobs",
    "old_sessions",
    "oldest_entries",
    "read_log_base",
    "unfinished_runs",
}
# Partial: they hold only what is open or lives now, or may live on.
SMALL_INDEXES = ("items_open", "sessions_live", "sessions_expired")
INLINE = ("json_each", "CONSTANT ROW")


@pytest.fixture(scope="module")
def model() -> Iterator[apsw.Connection]:
    """Yield an empty database of our schema."""
    connection = apsw.Connection(":memory:")
    checks.register(connection)
    for step in schema.migrations():
        connection.execute(step)
    yield connection
    connection.close()


def plan(connection: apsw.Connection, name: str) -> list[str]:
    """Return the lines of a statement's plan."""
    info = apsw.ext.query_info(connection, SQL[name], explain_query_plan=True)
    lines: list[str] = []
    waiting = list(info.query_plan.sub or []) if info.query_plan else []
    while waiting:
        step = waiting.pop(0)
        lines.append(step.detail)
        waiting = list(step.sub or []) + waiting
    return lines


@pytest.mark.parametrize("name", sorted(SQL.keys() - OPERATORS))
def test_a_hot_statement_walks_no_table(model: apsw.Connection, name: str) -> None:
    walks = [
        line
        for line in plan(model, name)
        if line.startswith("SCAN")
        and line
        not in ("SCAN CONSTANT ROW", "SCAN new", "SCAN family")  # what is bound; one run and its descendants
        and not any(inline in line for inline in ("VIRTUAL TABLE", "VALUES CLAUSE"))  # the few that are bound
        and not any(small in line for small in SMALL_INDEXES)
    ]
    assert walks == []


@pytest.mark.parametrize(
    "name", ["read_run", "due_runs", "first_due", "next_priority", "waiting_agents", "read_records"]
)
def test_a_hot_statement_sorts_nothing(model: apsw.Connection, name: str) -> None:
    assert not [line for line in plan(model, name) if "TEMP B-TREE" in line]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("read_run", "sqlite_autoindex_runs_1"),
        ("append_plain", "sqlite_autoindex_runs_1"),
        ("append_known", "INTEGER PRIMARY KEY"),
        ("append_known_rows", "INTEGER PRIMARY KEY"),
        ("appended", "INTEGER PRIMARY KEY"),
        ("append_end", "sqlite_autoindex_runs_1"),
        ("append_end_known", "INTEGER PRIMARY KEY"),
        ("read_runs", "sqlite_autoindex_runs_1"),
        ("update_run", "INTEGER PRIMARY KEY"),
        ("read_records", "records_run"),
        ("read_turns", "records_run"),
        ("read_check", "records_run"),
        ("due_runs", "runs_due"),
        ("waiting_agents", "runs_due"),
        ("next_priority", "runs_due"),
        ("first_due", "runs_due"),
        ("runs_of_session", "runs_session"),
        ("take_signal", "PRIMARY KEY"),
        ("waiting_signals", "PRIMARY KEY"),
        ("read_signal", "signals_id"),
        ("items_of_run", "items_run"),
        ("open_items_of_run", "items_run"),
        ("items_of_runs", "items_run"),
        ("signals_of_runs", "PRIMARY KEY"),
        ("close_item", "sqlite_autoindex_items_1"),
        ("close_items_of_runs", "items_"),
        ("list_open_items", "items_open"),
        ("read_key", "PRIMARY KEY"),
        ("held_keys_of_run", "keys_run"),
        ("waiters", "PRIMARY KEY"),
        ("drop_waiter", "PRIMARY KEY"),
        ("waits", "waiters_run"),
        ("live_sessions", "sessions_live"),
        ("read_session", "sqlite_autoindex_sessions_1"),
        ("has_blob", "sqlite_autoindex_blobs_1"),
        ("ended_runs", "runs_ended"),
        ("forgettable_runs", "runs_ended"),
        ("delete_records", "records_run"),
        ("settled_keys_of_run", "keys_run"),
    ],
)
def test_the_index_is_the_one_that_was_made_for_it(model: apsw.Connection, name: str, index: str) -> None:
    lines = plan(model, name)
    assert any(index in line for line in lines), lines


def test_what_operators_may_walk_is_still_there() -> None:
    assert SQL.keys() >= OPERATORS
