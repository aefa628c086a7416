"""Every statement of the hot paths finds its rows by an index, in tables of any size."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ninelives.backends.postgres import PostgresStore
from ninelives.backends.postgres.queries import Values, statements
from tests.servers.postgres import shared_url

RUNS, STEPS = 20_000, 5
ONE = ("r7", 1, 1, b"h", b"i", 0, None, 1, "result", "s", 1, b"b")
MANY = {
    "runs": ["r7"], "epochs": [1], "lengths": [1], "heads": [b"h"], "new_lengths": [2], "new_heads": [b"i"],
    "effects": [0], "ends": [True], "kinds": ["result"], "steps": ["s"], "times": [1], "bodies": [b"b"],
    "checks": [b"c"], "now": None, "version": 1, "owners": [1], "more_seqs": [99], "more_kinds": ["result"],
    "more_steps": ["s"], "more_times": [1], "more_bodies": [b"b"], "more_checks": [b"c"], "channels": [],
    "doors": [],
}  # fmt: skip
CLAIM = {"queues": ["default"], "agents": ["a"], "quotas": [10], "host": "h", "alone": False, "now": 1}
PLANS: list[tuple[str, Values]] = [
    ("append_one", ONE),
    ("append_many", MANY),
    ("lock_runs", (["r7", "r8"],)),
    ("due_runs", CLAIM),
    ("first_due", CLAIM),
    ("read_turns", ([7, 8], [0, 0])),
    ("runs_with_news", (["r7"], [0])),
    ("waiting_signals", (["r7"],)),
    ("items_of_runs", (["r7"],)),
    ("lock_keys", (["k"],)),
    ("runs_of_session", ("s",)),
    ("ended_runs", (1,)),
    ("forgettable_runs", (1,)),
]


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[psycopg.Connection[tuple[object, ...]], str]]:
    """Yield a connection to a store with many runs, most of them parked for later, as a planner sees it."""
    schema = "test_plans"
    PostgresStore(f"{shared_url()}?schema={schema}").close()
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO {schema}.runs SELECT n, 'r' || n, 'a', '', 'default', NULL, n %% 3, '{{}}', NULL,
              CASE n %% 4 WHEN 0 THEN 'completed' WHEN 1 THEN 'running' ELSE 'checkpointed' END, false, false,
              1,
              CASE n %% 4 WHEN 1 THEN 's' || n %% 50 END, 'h', 1, n %% 2, '', 0, 0,
              CASE WHEN n %% 4 > 1 THEN 10 + n END, '', 0, 0, 0, 0, false, NULL, n, n, 0
              FROM generate_series(1, %s) AS n""".encode(),
            (RUNS,),
        )
        connection.execute(
            f"""INSERT INTO {schema}.records SELECT n, s, 'result', 's', 1, '', NULL, 'c'
              FROM generate_series(1, %s) AS n, generate_series(0, %s) AS s""".encode(),
            (RUNS, STEPS - 1),
        )
        connection.execute(f"ANALYZE {schema}.runs, {schema}.records".encode())
        yield connection, schema
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@pytest.mark.parametrize(("name", "values"), PLANS, ids=[name for name, _ in PLANS])
def test_it_is_found_by_an_index(
    filled: tuple[psycopg.Connection[tuple[object, ...]], str], name: str, values: Values
) -> None:
    connection, schema = filled
    # Without our own preference for indexes: the planner itself must choose them.
    statement = statements(schema)[name]
    found = connection.pgconn.exec_params(
        b"EXPLAIN " + statement.text, statement.bound(values), statement.types, statement.formats
    )
    plan = "\n".join(str(found.get_value(line, 0)) for line in range(found.ntuples))
    assert "Scan" in plan, found.error_message
    assert "Seq Scan on runs" not in plan, plan
    assert "Seq Scan on records" not in plan, plan
