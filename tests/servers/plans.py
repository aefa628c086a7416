"""How many pages the statements of the hot paths touch, by plans that were made when the store was empty.

`python -m tests.servers.plans [--records 10000000]` fills a store on a server of its own, 100 records to a
run, and measures on the way: if a plan walked a table, the pages would grow with it. Exit 1 if they do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from ninelives.stores.postgres import PostgresStore
from ninelives.stores.postgres.server.address import parse
from ninelives.stores.postgres.server.open_connection import Connection, connect
from ninelives.stores.postgres.server.queries import Statement, Values, statements
from tests.servers.postgres import PostgresServer

RECORDS_EACH = 100
PAGES_MORE = 20
"""How many pages more a statement may touch in a large store: indexes get a level deeper, here and there."""

SUMS = (1, 0, 0, "", "", "")
ONE = ("r7", 1, 1, b"h", b"i", 0, None, "result", "s", 1, b"b", "action", 1, *SUMS)
MANY = {
    "runs": ["r7"], "epochs": [1], "lengths": [1], "heads": [b"h"], "new_lengths": [2], "new_heads": [b"i"],
    "effects": [0], "ends": [True], "kinds": ["result"], "steps": ["s"], "times": [1], "bodies": [b"b"],
    "checks": [b"c"], "step_kinds": ["action"], "took": [1], "now": None, "version": 2,
    "owners": [1], "more_seqs": [999], "more_kinds": ["result"],
    "more_steps": ["s"], "more_times": [1], "more_bodies": [b"b"], "more_checks": [b"c"],
    "more_step_kinds": [None], "more_took": [None], "sum_steps": [1], "sum_in": [0], "sum_out": [0],
    "sum_progress": [""], "sum_error": [""], "sum_retrying": [None], "channels": [], "doors": [],
    "needs": [True], "required": "absent", "required_version": 0,
}  # fmt: skip
CLAIM = {"queues": ["default"], "agents": ["a"], "quotas": [10], "host": "h", "solo": False, "now": 1}
LIST = {
    "after": None,
    "states": ["failed"],
    "agent": None,
    "session": None,
    "labels": "{}",
    "changed_since_ms": None,
    "limit": 10,
}
STATEMENTS: tuple[tuple[str, Values], ...] = (
    ("append_one", ONE),
    ("append_many", MANY),
    ("read_runs", (["r7", "r9"],)),
    ("lock_runs", (["r7", "r9"],)),
    ("lock_family", {"run": "r7"}),
    ("due_runs", CLAIM),
    ("first_due", CLAIM),
    ("read_turns", ([7, 9], [0, 0])),
    ("read_checks", ([7, 9], [3, 3])),
    ("runs_with_news", (["r7"], [0])),
    ("waiting_signals", (["r7"],)),
    ("items_of_runs", (["r7"],)),
    ("lock_keys", (["k"],)),
    ("runs_of_session", ("s",)),
    ("live_children", (["r7"],)),
    ("has_progressed", ([7, 9], [0, 0])),
    ("ended_runs", (1, "{}", 1)),
    ("forgettable_runs", (1,)),
    ("list_runs", LIST | {"states": []}),
    ("list_in_states", LIST),
    ("list_labelled", LIST | {"states": [], "labels": '{"team": "x"}'}),
    ("list_children", LIST | {"states": [], "parent": "r7"}),
    ("list_owned", LIST | {"session": "s", "states": []}),
)


def fill(connection: Connection, schema: str, runs: range, each: int = RECORDS_EACH) -> None:
    """Add runs: a quarter each ended, owned, and two quarters parked for later; the first few are ours."""
    connection.execute(
        f"""INSERT INTO {schema}.runs SELECT n, 'r' || n, 'a', '', 'default', NULL, n % 3,
          CASE WHEN n < 10 THEN '{{"team": "x"}}' WHEN n % 2 = 0 THEN '{{"team": "y"}}' ELSE '{{}}' END, NULL,
          CASE n % 4 WHEN 0 THEN 'completed' WHEN 3 THEN 'running' ELSE 'checkpointed' END, false, false,
          1, CASE n % 4 WHEN 3 THEN 's' || n % 5000 END, 'h', 1, n % 2, '', 0, 0,
          CASE WHEN n % 4 IN (1, 2) THEN 10 + n END, '', 0, 0, 0, 0, false, NULL, n, n, 0,
          CASE n % 4 WHEN 0 THEN n END, n % 8 = 0
          FROM generate_series({runs.start}, {runs.stop - 1}) AS n""".encode()
    )
    connection.execute(
        f"""INSERT INTO {schema}.records SELECT n, s, 'result', 's', 1, '', NULL, 'c'
          FROM generate_series({runs.start}, {runs.stop - 1}) AS n,
          generate_series(2, {each + 1}) AS s""".encode()
    )


def prepare(connection: Connection, statement: Statement) -> None:
    """Have a statement parsed, and planned by its first use, as our connections have it."""
    done = connection.pgconn.prepare(statement.name, statement.text, statement.types)
    assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, done.error_message


def plan_of(connection: Connection, statement: Statement, values: Values) -> dict[str, Any]:
    """Execute a prepared statement, take it back, and return its plan with what it touched."""
    given = [values[name] for name in statement.names] if isinstance(values, Mapping) else values
    bound = sql.SQL(", ").join(map(sql.Literal, given))
    text = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}({})")
    connection.execute("BEGIN")
    try:
        ((plan,),) = connection.execute(
            text.format(sql.Identifier(statement.name.decode()), bound)
        ).fetchall()
    finally:
        connection.execute("ROLLBACK")
    (found,) = plan if isinstance(plan, list) else json.loads(plan)
    root: dict[str, Any] = found["Plan"]
    return root


def pages_in(plan: Mapping[str, Any]) -> int:
    """Return how many pages a plan touched: its root's, and those of parts that the root does not count."""
    apart = (one for one in nodes_in(plan) if one.get("Subplan Name") in ("CTE written", "CTE closed"))
    return sum(int(one["Shared Hit Blocks"] + one["Shared Read Blocks"]) for one in (plan, *apart))


def nodes_in(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all nodes of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_in(child)


def measure(connection: Connection, schema: str) -> dict[str, int]:
    """Return the pages that each statement touches, when what it needs is in memory."""
    found = statements(schema)
    plans = [
        (name, [plan_of(connection, found[name], values) for _ in range(2)]) for name, values in STATEMENTS
    ]
    return {name: pages_in(twice[-1]) for name, twice in plans}


def grown(url: str, sizes: Sequence[int]) -> Iterator[tuple[int, float, dict[str, int]]]:
    """Yield how many records there are, the seconds that it took, and the pages of each statement."""
    PostgresStore(url).close()
    address = parse(url)
    with connect(address)[0] as connection:
        for name, _ in STATEMENTS:
            prepare(connection, statements(address.schema)[name])
        measure(connection, address.schema)  # the plans of an empty store
        runs = 0
        for size in sizes:
            began = time.monotonic()
            fill(connection, address.schema, range(runs + 1, size // RECORDS_EACH + 1))
            runs = size // RECORDS_EACH
            yield size, time.monotonic() - began, measure(connection, address.schema)


def main() -> int:
    """Fill, measure, and print a table."""
    options = argparse.ArgumentParser(prog="python -m tests.servers.plans", description=__doc__)
    options.add_argument("--records", type=int, default=10_000_000)
    asked = options.parse_args()
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size < asked.records] + [asked.records]
    server = PostgresServer()
    seen: dict[int, dict[str, int]] = {}
    try:
        for size, seconds, pages in grown(f"{server.url}?schema=plans", sizes):
            print(f"{size:,} records after {seconds:.0f} s", file=sys.stderr, flush=True)
            seen[size] = pages
    finally:
        server.remove()
    print(f"{'pages touched, by records in the store':40}" + "".join(f"{size:>12,}" for size in sizes))
    for name, _ in STATEMENTS:
        print(f"{name:40}" + "".join(f"{seen[size][name]:>12,}" for size in sizes))
    first, last = seen[sizes[0]], seen[sizes[-1]]
    return int(any(last[name] > first[name] + PAGES_MORE for name in first))


if __name__ == "__main__":
    sys.exit(main())
